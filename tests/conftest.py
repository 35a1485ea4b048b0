"""One environment for every test: offline, one thread a process, the same examples each time.

Import nothing of redraft here: its shapes are checked by a hook that pytest installs after this file is read.
"""

import os

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Two busy processes on two cores slow small products tenfold when each takes both; subprocesses inherit this.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="module")
def unchecked_shapes():
    """For modules that take tens of thousands of steps: checked shapes make a step five times as slow."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
