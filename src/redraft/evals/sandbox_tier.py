"""What this system gives to hold a program with, found by trying."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import cache

from redraft.evals.sandbox_processes import BUBBLEWRAP, PATIENCE, Child, Reader, Tier


@cache
def tier() -> Tier:
    """What this system gives, found by trying: the layers that hold, and whether they hold what they should."""
    if os.name != "posix":
        raise ValueError("generated code is run on Linux and macOS only: nothing here would hold it")
    layers = ["landlock", "seccomp"] if sys.platform == "linux" else []
    if sys.platform == "linux":
        layers.insert(0, BUBBLEWRAP if shutil.which("bwrap") else "namespaces")
    while True:
        found = probe(Tier(tuple(layers)))
        if found and found[0] == "tried":
            return Tier(tuple(layers), tuple(found[1:]))
        refused = found[1] if found else BUBBLEWRAP
        if refused not in layers:
            raise RuntimeError(f"the sandbox cannot even be tried here: {found}")
        layers.remove(refused)
        if refused == BUBBLEWRAP:
            layers.insert(0, "namespaces")


def probe(held: Tier) -> list[str] | None:
    """What a process that these layers hold says: "tried" and what it could do, or "refused" and the layer."""
    verdicts, said = os.pipe()
    with tempfile.NamedTemporaryFile(prefix="redraft-") as outside:
        given = {"verdicts": said, "outside": outside.name}
        with Child("probe", held, given, seconds=PATIENCE, memory_mb=1024):
            os.close(said)
            found = Reader(verdicts).line(PATIENCE)
        os.close(verdicts)
        shutil.rmtree(f"{outside.name}.made", ignore_errors=True)
    return found
