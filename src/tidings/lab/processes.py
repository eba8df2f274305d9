"""Run independent tasks of an experiment, in this process or in several."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
#: Progress report with the name of the current task and the steps finished since the last report.
Report = Callable[[str, float], None]


def run_tasks(
    work: Callable[[Task, Report | None], Result],
    tasks: Sequence[Task],
    jobs: int = 1,
    report: Report | None = None,
    *,
    name: Callable[[Task], str] = str,
    steps: float = 1.0,
) -> list[Result]:
    """Run all tasks and return their results in the order of the tasks.

    In one process ``work`` reports progress itself. In several, each finished task is reported with
    its ``name`` and all of its ``steps``; tasks and results must then be picklable.
    """
    if jobs <= 1 or len(tasks) <= 1:
        return [work(task, report) for task in tasks]
    results: dict[int, Result] = {}
    # Use new interpreters, because a forked child would inherit threads of numerical libraries.
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(work, task, None): place for place, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                place = futures[future]
                results[place] = future.result()
                if report is not None:
                    report(f"{name(tasks[place])} is done", steps)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [results[place] for place in range(len(tasks))]
