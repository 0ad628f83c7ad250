"""Floor 4, kernels. Checked mode: the declarations of a call are checked against the PTX.

Two kinds of narrowing contradict certain facts, and are refused before anything is pushed: `Out`
for a parameter that the kernel cannot write, and `In` for one that it cannot read. The engine
checks the rest: it holds each launch to the accesses that order it; see `engine.held`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions.declared_accesses import is_checked, warn_unless_recorded
from cudasync.engine import Var
from cudasync.engine.hazards.interval_map import Region

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from cudasync.driver import Kernel, Module, Parameter

    # For a parameter and its argument: the memory (or value) itself, whether it is read, whether it
    # is written, and the caller's word for that ("" if inferred).
    Declared: TypeAlias = Callable[[Parameter, Any], tuple[Any, bool, bool, str]]


class Check:
    """Checks the calls of one kernel."""

    def __init__(self, kernel: Kernel, declared: Declared) -> None:
        warn_unless_recorded()
        self._kernel = kernel
        self._declared = declared

    def __call__(self, arguments: Sequence[Any]) -> None:
        """Raises ValueError for a narrowing that contradicts the PTX.

        Inference errs on the side of too many accesses: an access that it denies does not happen.
        """
        kernel = self._kernel
        for index, (parameter, argument) in enumerate(
            zip(kernel.parameters, arguments, strict=True)
        ):
            _, reads, writes, word = self._declared(parameter, argument)
            access = parameter.access
            if word and writes and not reads and not access.writes:
                truth = "never written"
            elif word and reads and not writes and not access.reads and access.writes:
                truth = "never read, only written"
            else:
                continue
            raise ValueError(
                f"kernel {kernel.name}: argument {index + 1} ({parameter}) is declared {word}, "
                f"but the PTX shows {truth}"
            )


class _Variable(Var):
    """A module's own variable, and its bytes."""

    __slots__ = ("memory",)


def variable_of(module: Module, name: str) -> Var:
    """The token of a module's variable; in checked mode it knows its bytes."""
    if not is_checked():
        return Var(name)
    made = _Variable(name)
    start, size_bytes = module.variable_place(name)
    made.memory = Region(start, start + size_bytes)
    return made


def check_of(kernel: Kernel, declared: Declared) -> Check | None:
    """The checker of `kernel`'s calls; None outside of checked mode."""
    return Check(kernel, declared) if is_checked() else None
