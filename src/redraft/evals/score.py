"""An evaluation into a folder: going on from where it stopped, shared by the processes of a run, summed up at its end.

summary = score(evaluation, card, Path("runs/first"))
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from redraft.evals.processes import Processes
from redraft.evals.protocol import Card
from redraft.evals.records import RunFolder
from redraft.evals.run import Evaluation
from redraft.evals.summary import summarize
from redraft.evals.watcher import Watcher


def score(
    evaluation: Evaluation,
    card: Card,
    folder: Path,
    group: Processes | None = None,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    watcher: Watcher | None = None,
    estimate: bool = True,
) -> dict[str, Any]:
    """The summary, which the folder then holds as well. With several processes each must call this.

    `estimate`: the watcher is told beforehand what the run will take, for which a step is tried out.
    """
    group, watcher = group or Processes(), watcher or Watcher()
    workers = workers or max(1, (os.cpu_count() or 1) // group.world)
    settings = {**card["subject"], **card["protocol"]}
    group.agree(lambda: evaluation.encoded)  # prompts that do not fit are refused before there is a folder
    with ExitStack() as stack:
        run = group.agree(lambda: stack.enter_context(closing(RunFolder(folder, settings, group, overwrite=overwrite))))
        done = set().union(*group.gather(run.finished))
        left = evaluation.left(done, group.rank, group.world)
        watcher.begin(evaluation.forecast(left if estimate else []), len(done))
        for graded in evaluation.run(left, workers=workers, watch=watcher.step):
            run.add(graded)
            watcher.batch(graded)
        records, batches = run.gathered()
        summary = summarize(records, batches, length=evaluation.plan.length)
        if group.first:
            run.finish(card, summary)
        group.gather(None)  # the others leave once all is under its name
        run.leave()
        return summary
