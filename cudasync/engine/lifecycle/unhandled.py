"""Floor 2. The failures of one engine, and the report of those that nobody was told of.

They belong to the engine alone: a cause refers to its traceback, that to frames, and these mostly
to the engine. What the engine's threads hold would keep an engine alive that nobody else does.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from typing import TYPE_CHECKING

from cudasync.atomic import Tickets
from cudasync.engine.frames import of_program
from cudasync.errors import UnhandledFailureWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.engine.failure import Failure
    from cudasync.engine.op import Op

# How many failures of this process were reported, whatever the warnings filter made of that.
REPORTED = Tickets()


class Failures:
    """What failed in one engine and was not cleared; reports what is not handled when it goes."""

    def __init__(self) -> None:
        # A dict, since each op that is poisoned adds the failure it carries once more. True for one
        # that an op of this engine began.
        self._known: dict[Failure, bool] = {}

    def note(self, failure: Failure, op: Op) -> None:
        """`op` has failed with `failure`, its own or another's."""
        if op.number == failure.op_number:
            self._known[failure] = True
        else:
            self._known.setdefault(failure, False)
            failure.dependents.next()

    def all(self) -> list[Failure]:
        """Those that were not cleared, told of or not."""
        return list(self._known)

    def first(self) -> Failure | None:
        """The failure of the op that was pushed first, of those that were not cleared."""
        left = [failure for failure in list(self._known) if not failure.cleared]
        return min(left, key=_number, default=None)

    def clear(self) -> None:
        """Forget them all; who asks for that knows of them."""
        for failure in list(self._known):
            failure.cleared = True
            failure.handle()
            failure.let_go()
            self._known.pop(failure, None)

    def end(self) -> None:
        """The engine has ended: report those that nobody was told of, and let go of all."""
        try:
            report(self.take())
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Keep no frames any more for those that began here. Others are another engine's."""
        for failure, is_own in list(self._known.items()):
            if is_own:
                failure.let_go()

    def disown(self) -> None:
        """In a forked child: the parent tells of them."""
        for failure in list(self._known):
            failure.handle()

    def take(self) -> list[Failure]:
        """Those that nobody was told of, by age; from now on the caller's to report."""
        left = [each for each in list(self._known) if not each.cleared and each.handle()]
        return sorted(left, key=_number)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # The engine is collected, or was closed and has none left. What the interpreter takes apart
        # at its end was closed before, and can not be told of any more.
        # Ctrl-C may have come before there were any.
        if getattr(self, "_known", None) and not is_finalizing():
            self.end()


def report(failures: Iterable[Failure]) -> None:
    """Warn of each of these, once; failures of one push site that differ in nothing count as one.

    Where the filter makes errors of these warnings the first is raised, the others are its notes.
    """
    alike: dict[tuple[str, str, str], Failure] = {}
    count: Counter[tuple[str, str, str]] = Counter()
    for failure in sorted(failures, key=_number):
        REPORTED.next()
        shown = failure.error()
        kind = type(failure.cause)
        key = str(shown), kind.__module__, kind.__qualname__
        alike.setdefault(key, failure)
        count[key] += 1
    raised: UnhandledFailureWarning | None = None
    for key, failure in alike.items():
        warning = UnhandledFailureWarning(
            failure.op_name,
            failure.push_site,
            failure.cause,
            suspects=failure.suspects,
            dependents=failure.dependents.taken,
            alike=count[key] - 1,
            trace=_trace(failure.cause),
        )
        file, _, line = failure.push_site.rpartition(":")
        try:
            # At the push, so that filters go by the module that pushed. Without a registry: who is
            # told once of an op of this place is told of the next one, too.
            warnings.warn_explicit(warning, UnhandledFailureWarning, file, int(line))
        except UnhandledFailureWarning as error:
            if raised is None:
                raised = error
            else:
                raised.add_note(str(error))
    if raised is not None:
        raise raised


def disown() -> None:
    """In a forked child: none were reported yet."""
    REPORTED.__init__()  # type: ignore[misc]


def _trace(cause: BaseException) -> str:
    """The traceback of `cause` from the first frame that is not ours; "" if all are."""
    trace = of_program(cause.__traceback__)
    if trace is None:
        return ""
    return "".join(traceback.format_exception(type(cause), cause, trace)).rstrip()


def _number(failure: Failure) -> int:
    return failure.op_number
