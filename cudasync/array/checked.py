"""Floor 4. Checked mode: what a call declares is held against the PTX, and against what happens.

Two kinds of narrowing contradict what is certain, and are refused before anything is pushed: `Out`
for what the kernel can not write, and `In` for what it can not read. All others go with
the launch, to the driver that records it; see `driver.checking`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudasync.driver.checking import Expected, expecting, is_checked, warn_unless_recorded
from cudasync.engine.ranges import Region
from cudasync.engine.variable import resolve_one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from cudasync.driver import Kernel, Parameter, Stream

    # Of a parameter and the argument given for it: the memory (or value) itself, whether it is
    # read, whether it is written, and the word by which the caller said so ("" if inferred).
    Declared: TypeAlias = Callable[[Parameter, Any], tuple[Any, bool, bool, str]]
    Issue: TypeAlias = Callable[[Stream], None]


_PACKAGE = str(Path(__file__).parents[1])


class Check:
    """Checks the calls of one kernel."""

    def __init__(self, kernel: Kernel, declared: Declared) -> None:
        warn_unless_recorded()
        self._kernel = kernel
        self._declared = declared

    def __call__(self, arguments: Sequence[Any], issue: Issue) -> Issue:
        """`issue`, with what these arguments may be used for told to the driver.

        Raises ValueError for a narrowing that the PTX says is wrong.
        """
        kernel, rows, site = self._kernel, [], _call_site()
        for index, (parameter, argument) in enumerate(
            zip(kernel.parameters, arguments, strict=True)
        ):
            memory, reads, writes, word = self._declared(parameter, argument)
            if not hasattr(memory, "ptr"):
                continue
            if word:
                self._refuse_contradiction(index, parameter, reads, writes, word)
            region = resolve_one(memory, "reads")
            assert isinstance(region, Region)
            rows.append(Expected(index, *region, reads, writes, bool(word)))

        def checked(stream: Stream) -> None:
            with expecting(kernel, rows, site):
                issue(stream)

        return checked

    def _refuse_contradiction(
        self, index: int, parameter: Parameter, reads: bool, writes: bool, word: str
    ) -> None:
        """What is inferred errs on the side of too much: what it denies does not happen."""
        access = parameter.access
        if writes and not reads and not access.writes:
            truth = "never written"
        elif reads and not writes and not access.reads and access.writes:
            truth = "never read, only written"
        else:
            return
        raise ValueError(
            f"kernel {self._kernel.name}: argument {index + 1} ({parameter}) is declared {word}, "
            f"but the PTX says that it is {truth}"
        )


def _call_site() -> str:
    """File and line of the first caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def check_of(kernel: Kernel, declared: Declared) -> Check | None:
    """What checks the calls of `kernel`; None unless the mode is on."""
    return Check(kernel, declared) if is_checked() else None
