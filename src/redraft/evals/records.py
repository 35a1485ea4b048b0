"""The folder of a run: items.jsonl, batches.jsonl, card.json, summary.json, whole or not there.

While a run lasts each process has its lines in a .part file of its own. Started again, with as many processes or with
others, it goes on from all of them. The items of a finished run are the same bytes whatever happened on the way; how
long its batches took is not, and stands apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redraft.evals.processes import Processes
from redraft.evals.run import Graded, Record
from redraft.output import AnswerFile

ITEMS, BATCHES, CARD, SUMMARY = "items.jsonl", "batches.jsonl", "card.json", "summary.json"
PART = re.compile(r"(items|batches)\.(\d+)\.jsonl\.part")


class RunFolder:
    """What one process writes of a run. `settings` tell runs apart: lines of another are never mixed in."""

    def __init__(self, folder: Path, settings: dict[str, Any], processes: Processes, *, overwrite: bool) -> None:
        self.folder, self.processes = folder, processes
        check_free(folder, overwrite=overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        paths = {kind: self._path(kind, processes.rank) for kind in ("items", "batches")}
        self.files = {kind: AnswerFile(path, settings, overwrite=overwrite) for kind, path in paths.items()}
        for path in self._abandoned():
            if overwrite:
                path.unlink()
                continue
            left = AnswerFile(path.with_suffix(""), settings)
            left.close()
            for line in left.finished.values():
                self.files[path.name.split(".")[0]].add(line)

    def _path(self, kind: str, rank: int) -> Path:
        return self.folder / (f"{kind}.jsonl" if rank == 0 else f"{kind}.{rank}.jsonl")

    def _abandoned(self) -> list[Path]:
        """Parts of an earlier run's processes that this run has no process for; each is taken over by one."""
        numbered = [(path, PART.fullmatch(path.name)) for path in self.folder.iterdir()]
        ranks = sorted((int(found[2]), path) for path, found in numbered if found)
        world = self.processes.world
        return [path for rank, path in ranks if rank >= world and rank % world == self.processes.rank]

    @property
    def finished(self) -> set[int]:
        """The items that this process knows to be done."""
        return set(self.files["items"].finished)

    def add(self, batch: Graded) -> None:
        for record in batch.records:
            self.files["items"].add(asdict(record))
        tokens = sum(record.first_eos for record in batch.records)
        what = {"index": batch.records[0].index, "items": len(batch.records), "process": self.processes.rank}
        self.files["batches"].add({**what, "new_tokens": tokens, "seconds": round(batch.seconds, 3)})

    def gathered(self) -> tuple[list[Record], list[dict[str, Any]]]:
        """The lines of all processes. All must ask."""
        for file in self.files.values():
            for lines in self.processes.gather(list(file.finished.values())):
                for line in lines:
                    file.finished.setdefault(line["index"], line)
        items, batches = ([file.finished[index] for index in sorted(file.finished)] for file in self.files.values())
        return [Record(**line) for line in items], batches

    def finish(self, card: dict[str, Any], summary: dict[str, Any]) -> None:
        """Everything under its name, the items last: with them the run is finished. The first process does this."""
        for name, content in ((CARD, card), (SUMMARY, summary)):
            (self.folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for kind in ("batches", "items"):
            self.files[kind].finish()

    def leave(self) -> None:
        """Nothing but the finished run stays."""
        self.close()
        for path in list(self.folder.iterdir()):
            if PART.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        for file in self.files.values():
            file.close()


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds a finished run, or is none, before any work is done for it."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give --out the name of a folder")
    if (folder / ITEMS).exists() and not overwrite:
        raise ValueError(f"{folder} holds a finished run: give another --out, or --overwrite to replace it")


def begun(folder: Path) -> set[int]:
    """The items of an unfinished run that are done, as far as can be told without opening it to go on."""
    found = set()
    for path in folder.glob("items*.jsonl.part"):
        for line in path.read_bytes().split(b"\n")[1:-1]:  # the first names the run, the last may be cut off
            with suppress(ValueError, KeyError, TypeError):
                found.add(int(json.loads(line)["index"]))
    return found


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a finished run."""
    if not (folder / ITEMS).is_file():
        unfinished = (folder / f"{ITEMS}.part").is_file()
        said = "is not finished: repeat its command, which goes on" if unfinished else "is not the folder of a run"
        raise ValueError(f"{folder} {said}")
    with _undamaged(folder):
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        for half in ("subject", "protocol"):
            card[half].keys()
    return card


def read_run(folder: Path) -> tuple[dict[str, Any], list[Record]]:
    """The card and the records of a finished run."""
    card = read_card(folder)
    with _undamaged(folder):
        records = [Record(**json.loads(line)) for line in _lines(folder / ITEMS)]
    return card, records


@contextmanager
def _undamaged(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise ValueError(f"{folder} is not the folder of a run, or is damaged: {wrong}") from None


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]  # not splitlines: a response may hold its separators
