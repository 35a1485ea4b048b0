"""Starts a process of the sandbox: `driver`, `worker` or `probe`, with what it needs as JSON."""

from __future__ import annotations

import json
import os
import sys

from .confine import Refused

sys.dont_write_bytecode = True  # what a program imports leaves nothing behind
role, said = sys.argv[1:]
given = json.loads(said)
try:
    if role == "driver":  # each imports what it needs and no more: both are started for every program
        from . import driver

        driver.main(given["line"], given["verdicts"], given["terms"], given["packages"])
    elif role == "worker":
        from . import worker

        worker.main(given["line"], given["terms"], given["packages"])
    else:
        from . import probe

        probe.main(given["verdicts"], given["terms"], given["outside"])
except Refused as refused:
    if role != "worker":  # whose end the driver notices
        os.write(given["verdicts"], json.dumps(["refused", *refused.args]).encode() + b"\n")
