"""The benchmarks' own files, for the tests that read them: in $REDRAFT_DATA, or in shared/data beside the checkout."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("REDRAFT_DATA") or Path(__file__).parents[2] / "shared" / "data")
needs_data = pytest.mark.skipif(not (DATA / "math500.jsonl").is_file(), reason="no benchmark files")


@cache
def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
