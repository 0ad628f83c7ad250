"""Floor 4, kernels. The reads and writes of a launch: inferred from the PTX, or narrowed by hand.

`In`, `Out` and `InOut` around an argument narrow them where inference must be cautious. A use is a
position among the arguments, or the token of a variable of the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudasync.array.interchange.cuda_array_interface import seen
from cudasync.engine import Var
from cudasync.engine.hazards.accesses import Accessed, Tokens, variables_explained
from cudasync.engine.hazards.interval_map import keep_what_lies_between
from cudasync.engine.hazards.variable import resolve_one
from cudasync.engine.op import OpKind
from cudasync.ptx.types import Access

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from cudasync.driver import Kernel, Parameter, Stream
    from cudasync.engine import Engine, Op
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.interval_map import Region

    Uses: TypeAlias = list[int | Var]


@dataclass(frozen=True, slots=True)
class In:
    """An argument that the kernel only reads."""

    array: Any


@dataclass(frozen=True, slots=True)
class Out:
    """An argument that the kernel overwrites whole: its old value is not needed."""

    array: Any


@dataclass(frozen=True, slots=True)
class InOut:
    """An argument that the kernel reads and writes."""

    array: Any


# By access: whether the op reads, and whether it writes. A kernel may leave elements as they were,
# so an inferred write needs the old value, too.
READS_WRITES = {
    Access.VALUE: (False, False),
    Access.READ: (True, False),
    Access.WRITE: (True, True),
    Access.READ_WRITE: (True, True),
    Access.UNKNOWN: (True, True),
}
NARROWED = {In: (True, False), Out: (False, True), InOut: (True, True)}


def declared(parameter: Parameter, argument: Any) -> tuple[Any, bool, bool, str]:
    """The memory of an argument, whether it is read and written, and the caller's word for that."""
    if type(argument) in NARROWED:
        return seen(argument.array), *NARROWED[type(argument)], type(argument).__name__
    return seen(argument), *READS_WRITES[parameter.access], ""


def parts(reads: Uses, writes: Uses) -> tuple[list[int], list[int], list[int]]:
    """The positions of arguments that are only read, of those read and written, and of those
    overwritten."""
    return (
        [use for use in reads if isinstance(use, int) and use not in writes],
        [use for use in reads if isinstance(use, int) and use in writes],
        [use for use in writes if isinstance(use, int) and use not in reads],
    )


def tokens(uses: Uses) -> tuple[Var, ...]:
    return tuple(use for use in uses if isinstance(use, Var))


class Declared:
    """The reasons for the accesses of a launch to its arguments and its module's variables."""

    __slots__ = ("_only_read", "_reasons", "_updated", "_written")

    def __init__(self, kernel: Kernel, arguments: Sequence[Any], uses: tuple[Uses, Uses]) -> None:
        self._only_read, self._updated, self._written = parts(*uses)
        self._reasons = [
            f"parameter `{parameter.name}`: "
            + (f"declared {type(argument).__name__}" if narrowed else parameter.reason)
            for parameter, argument in zip(kernel.parameters, arguments, strict=True)
            for narrowed in [type(argument) in NARROWED]
        ]

    def explained(self, accesses: Accesses) -> tuple[Accessed, ...]:
        """The arguments' bytes, then the variables."""
        (only_read, updated, written), read, also_written = accesses
        # Overwritten views with gaps were moved to the end of the updated ones.
        moved = len(updated) - len(self._updated)
        rows = self._rows(only_read, self._only_read, reads=True, writes=False)
        rows += self._rows(
            updated, [*self._updated, *self._written[:moved]], reads=True, writes=True
        )
        rows += self._rows(written, self._written[moved:], reads=False, writes=True)
        return (*rows, *variables_explained(read, also_written, _of_module))

    def _rows(
        self, regions: Sequence[Region], positions: Sequence[int], *, reads: bool, writes: bool
    ) -> list[Accessed]:
        return [
            Accessed(region, reads, writes, self._reasons[position])
            for region, position in zip(regions, positions, strict=True)
        ]


def _of_module(variable: Var) -> str:
    return f"module global `{variable.name}`"


def reasoned(
    kernel: Kernel, arguments: Sequence[Any], reads: Uses, writes: Uses
) -> tuple[Tokens, tuple[Var, ...]]:
    """The variables that are read, which carry the reasons for all accesses, and those written."""
    return Tokens.of(tokens(reads), Declared(kernel, arguments, (reads, writes))), tokens(writes)


def accesses_of(
    kernel: Kernel, arguments: Sequence[Any], reads: Uses, writes: Uses, values: Sequence[Any]
) -> Accesses:
    """The reads and writes of a call with these arguments, and the values in them, by its
    arrays."""
    only_read, updated, written = (
        tuple(resolve_one(values[position], "reads") for position in part)
        for part in parts(reads, writes)
    )
    regions = keep_what_lies_between(only_read, updated, written)
    return (regions, *reasoned(kernel, arguments, reads, writes))


def push_otherwise(
    engine: Engine,
    issue: Callable[[Stream], None],
    kernel: Kernel,
    accesses: Accesses,
    name: str,
    priority: int,
) -> Op:
    """Push a launch onto any engine, with any function that issues it."""
    (only_read, updated, written), tokens_read, tokens_written = accesses
    op = engine._push(
        issue,
        OpKind.KERNEL,
        reads=(*only_read, *updated, *tokens_read),
        writes=(*updated, *written, *tokens_written),
        name=name,
        priority=priority,
        device=kernel.device,
        kernel=kernel.name,
    )
    op._said = accesses
    return op
