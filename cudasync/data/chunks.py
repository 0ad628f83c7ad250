"""Floor 4. The work of one chunk, in a thread or in a process."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.data.views import View


@dataclass(slots=True)
class Outcome:
    """The result of a chunk: its items, and the exception that ended it.

    `failed_at` is the position of the sample in the chunk; `was_fetched` is False if fetching the
    sample failed.
    """

    found: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    failed_at: int = 0
    was_fetched: bool = True
    skipped: int = 0
    seconds: float = 0.0
    # Processor time of this thread: less than `seconds` if it waited.
    cpu_s: float = 0.0


def done(
    fn: Callable[[Any], Any] | None,
    items: Sequence[Any],
    first: int,
    view: View | None,
    *,
    skips: bool,
    is_stopped: Callable[[], bool],
) -> Outcome:
    """`fn` of each item, or of the sample with that number in `view`; None only fetches.

    `first` is the number of the first sample, for error messages.
    """
    outcome = Outcome()
    found = outcome.found
    began, cpu = time.perf_counter(), time.thread_time()
    for at, item in enumerate(items):
        if is_stopped():
            break
        was_fetched = False
        try:
            sample = item if view is None else view[item]
            was_fetched = True
            found.append(sample if fn is None else fn(sample))
        except Exception as error:
            if skips:
                outcome.skipped += 1
                continue
            outcome.error, outcome.failed_at, outcome.was_fetched = error, at, was_fetched
            break
    outcome.seconds = time.perf_counter() - began
    outcome.cpu_s = time.thread_time() - cpu
    return outcome
