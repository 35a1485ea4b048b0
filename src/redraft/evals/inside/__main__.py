"""Starts a process of the sandbox: `driver`, `worker` or `probe`, with what it needs as JSON."""

from __future__ import annotations

import json
import os
import sys

from . import driver, probe, worker
from .confine import Refused

role, said = sys.argv[1:]
given = json.loads(said)
try:
    if role == "driver":
        driver.main(given["line"], given["verdicts"], given["terms"])
    elif role == "worker":
        worker.main(given["line"], given["terms"], given["packages"])
    else:
        probe.main(given["verdicts"], given["terms"], given["outside"])
except Refused as refused:
    if role != "worker":  # whose end the driver notices
        os.write(given["verdicts"], json.dumps(["refused", *refused.args]).encode() + b"\n")
