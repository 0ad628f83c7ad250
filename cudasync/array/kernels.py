"""Floor 4. Kernels that are called on arrays: `kernel[grid, block](*args)` is a push.

What a call reads and writes is inferred from the PTX, parameter by parameter, when the module is
loaded. `In`, `Out` and `InOut` narrow it by hand where inference has to be cautious.

Whatever does not change from call to call is worked out once: the shape's checks when a shape is
first used, and for each combination of argument types one function that packs them and tells
what the launch reads and writes.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from cudasync import driver
from cudasync.array.allocation import DEAD, reap
from cudasync.array.array import Array
from cudasync.array.checked import check_of, variable_of
from cudasync.array.foreign import ForeignArray, seen, take_over_foreign
from cudasync.array.prepared import PreparedLaunch, prepared
from cudasync.array.reach import note_module, reach_of
from cudasync.array.touching import Touching
from cudasync.array.uses import (
    NARROWED,
    READS_WRITES,
    accesses_of,
    declared,
    parts,
    push_otherwise,
    reasoned,
)
from cudasync.driver.lending import LENT
from cudasync.driver.packing import OUT_OF_RANGE, PackerTable
from cudasync.driver.unpicklable import unpicklable
from cudasync.engine.current import engine as current_engine
from cudasync.engine.device import launching
from cudasync.engine.hazards.interval_map import keep_what_lies_between
from cudasync.engine.hazards.variable import resolve_one
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudasync.array.checked import Check
    from cudasync.array.uses import Uses
    from cudasync.driver import Launch, Parameter
    from cudasync.driver.kernel import Shape
    from cudasync.driver.packing import Packer
    from cudasync.engine import Var
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.op import Op
    from cudasync.ptx.access import Access


# How many shapes a kernel keeps what it made for.
_MOST_SHAPES = 256

_push = launching.push
_getframe = sys._getframe
_dead = DEAD.items


class Kernel(driver.Kernel):
    """A kernel of a module; `kernel[grid, block](*args)` pushes a launch onto the engine."""

    def __init__(
        self,
        module: driver.Module,
        name: str,
        function: Any,
        parameters: tuple[Parameter, ...],
        symbols: Mapping[str, Access],
        beyond: str = "",
    ) -> None:
        super().__init__(module, name, function, parameters, symbols, beyond)
        # Each packs arguments, and answers with what the launch reads and what it writes.
        self.calls = PackerTable(self.packing, self._call_packer)
        self._bound: dict[Any, BoundKernel] = {}
        # What holds calls to what they declare; None but in checked mode.
        self.check: Check | None = check_of(self, declared)

    def __getitem__(self, shape: Any) -> BoundKernel:
        """`kernel[grid, block]` or `kernel[grid, block, shared_bytes]`, counts of blocks and of
        threads per block as integers or tuples of up to three."""
        try:
            return self._bound[shape]
        except (KeyError, TypeError):  # TypeError: with a list in it, which is all right.
            pass
        if not isinstance(shape, tuple) or not 2 <= len(shape) <= 3:
            raise TypeError("write kernel[grid, block] or kernel[grid, block, shared_bytes]")
        return BoundKernel(self, shape[0], shape[1], shape[2] if len(shape) == 3 else 0)

    def keep(self, bound: BoundKernel) -> None:
        """Let later look-ups of its shape, which was checked, find `bound`."""
        grid, block, shared = bound.grid, bound.block, bound.shared_bytes
        with suppress(TypeError):  # A list can not be looked up.
            if len(self._bound) >= _MOST_SHAPES:
                self._bound.clear()
            self._bound[(grid, block, shared) if shared else (grid, block)] = bound

    def prepare(
        self,
        *,
        grid: Sequence[int] | int,
        block: Sequence[int] | int = (1,),
        args: Sequence[Any] = (),
        shared_bytes: int = 0,
    ) -> PreparedLaunch:
        """Check and pack a whole launch once, to `push()` it again and again, or launch it `.on` a
        stream.

        `args` as for `kernel[grid, block](*args)`. Raises what such a call raises.
        """
        shape = self.shape(grid, block, shared_bytes)
        self.get()
        return prepared(self, shape, args)

    def uses(self, arguments: Sequence[Any], values: Sequence[Any]) -> tuple[Uses, Uses]:
        """What a call reads and what it writes: positions of arguments, and the module's tokens.

        `values` are those of `arguments`, and known to be what the kernel takes. Raises ValueError
        where it writes to read-only memory, of which arrays are of a type of their own.
        """
        reads: Uses = []
        writes: Uses = []
        for i, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            if self.packing.is_memory(i, value):
                inferred = READS_WRITES[self.parameters[i].access]
                does_read, does_write = NARROWED.get(type(argument), inferred)
                if does_write and getattr(value, "is_read_only", False):
                    raise ValueError(
                        f"the array for {self.parameters[i].name} is read-only, and {self.name} "
                        "writes to it as far as is known; if it does not, wrap it in In(...)"
                    )
                reads += [i] * does_read
                writes += [i] * does_write
        assert isinstance(self.module, Module)
        for symbol, access in self.symbols.items():
            does_read, does_write = READS_WRITES[access]
            reads += [self.module.variable(symbol)] * does_read
            writes += [self.module.variable(symbol)] * does_write
        return reads, writes

    def accesses(self, arguments: Sequence[Any], values: Sequence[Any]) -> Accesses:
        """What a call with these arguments, and the values in them, is ordered by."""
        found = accesses_of(self, arguments, *self.uses(arguments, values), values)
        reach = reach_of(self, arguments, values)
        return found if reach is None else reach.widened(found, reach.looked_at(values))

    def _call_packer(self, arguments: Sequence[Any], values: Sequence[Any]) -> Packer:
        """For arguments of these types: packs them, and tells what is read and what written."""
        places = [f"a{i}" for i in range(len(values))]
        guards: list[str] = []
        names: dict[str, Any] = {}
        for i, argument in enumerate(arguments):
            if type(argument) in NARROWED:
                guards.append(f"type(a{i}) is narrowed{i}")
                names[f"narrowed{i}"] = type(argument)
                places[i] = f"a{i}.array"

        def region(position: int) -> str:
            if isinstance(values[position], Array):
                return f"{places[position]}.region"
            return f"region_of({places[position]}, 'reads')"

        def written_out(positions: list[int]) -> str:
            return f"({''.join(f'{region(each)}, ' for each in positions)})"

        reads, writes = self.uses(arguments, values)
        names["region_of"] = resolve_one
        names["tokens_read"], names["tokens_written"] = reasoned(self, arguments, reads, writes)
        regions = ", ".join(map(written_out, parts(reads, writes)))
        has_overwritten = parts(reads, writes)[2]
        names["keep"] = keep_what_lies_between
        regions = f"keep({regions})" if has_overwritten else f"({regions})"
        answer = f"({regions}, tokens_read, tokens_written)"
        reach = reach_of(self, arguments, values)
        if reach is not None:
            names["widened"] = reach.widened
            looked_at = "".join(f"{places[position]}, " for position in reach.positions)
            answer = f"widened({answer}, ({looked_at}))"
        return self.packing.packer(values, places=places, guards=guards, answer=answer, names=names)


class Module(driver.Module):
    """PTX or CUDA C, loaded on a device; `module.kernel(name)` gives kernels to call on arrays."""

    kernel_type: ClassVar[type[driver.Kernel]] = Kernel

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        note_module(self)

    @property
    def written_variables(self) -> list[Var]:
        """The tokens of all variables that a kernel could write."""
        declared = self._parsed.variables if self._parsed is not None else ()
        return [self.variable(each.name) for each in declared if each.space is StateSpace.GLOBAL]

    def variable(self, name: str) -> Var:
        """The token that orders launches which share the module's global `name`."""
        variables: dict[str, Var] = self.__dict__.setdefault("_variables", {})
        known = variables.get(name)
        return known or variables.setdefault(name, variable_of(self, name))

    def kernel(self, name: str) -> Kernel:
        """The kernel called `name`; ValueError if the module has none of that name."""
        kernel = super().kernel(name)
        assert isinstance(kernel, Kernel)
        return kernel


@unpicklable("send the PTX and load it there with Module.from_ptx")
class BoundKernel:
    """A kernel with its launch shape; call it with the kernel's arguments."""

    __slots__ = ("_idle", "_shape", "block", "grid", "kernel", "shared_bytes")

    def __init__(self, kernel: Kernel, grid: Any, block: Any, shared_bytes: int) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.shared_bytes = shared_bytes
        # None until it is checked, at the first call.
        self._shape: Shape | None = None
        # Launches to be packed for a call; each comes back when it has been issued. deque.pop and
        # append are one C call each: no two calls get the same one.
        self._idle: deque[Launch] = deque()

    def __call__(self, *args: Any, name: str | None = None, priority: int = 0) -> Op:
        """Push a launch with these arguments, values as of now; returns the op at once.

        Raises TypeError and ValueError for a wrong number, type or range of arguments and for a
        launch shape that no device could run.
        """
        if _dead or LENT:
            reap()
        kernel = self.kernel
        try:
            launch = self._idle.pop()
        except IndexError:
            launch = self._another()
        # Checked and packed now: wrong arguments are the caller's mistake, and values count as of
        # now, though the launch may come later.
        buffer = launch.block.buffer
        calls = kernel.calls
        try:
            accesses = calls.latest(args, buffer)
        except OUT_OF_RANGE:
            accesses = None
        if accesses is None:
            accesses = self._pack_otherwise(args, buffer)
        # Alive until the launch is issued.
        launch.kept = args
        engine = current_engine()
        check = kernel.check
        if name is None:
            name = kernel.label
        if check is None and not priority and engine._is_direct:
            return _push(
                engine, launch.on, accesses, name, kernel.device, _getframe(1), kernel.name
            )
        if check is not None:
            check(args)
        return push_otherwise(engine, launch.on, kernel, accesses, name, priority)

    def touching(self, *, reads: Any = (), writes: Any = ()) -> Touching:
        """The same, for a kernel that follows pointers from memory: it says what these lead to.

        `reads` and `writes` are arrays (or one), variables, or what else `Engine.push` takes. They
        stand for all that can not be inferred; what is inferred of the arguments stays. What is
        only in `writes` is overwritten whole. Raises TypeError for what has no bytes, ValueError
        for read-only memory among `writes`.
        """
        return Touching(self, reads, writes)

    def _pack_otherwise(self, args: tuple[Any, ...], buffer: Any) -> Accesses:
        """Pack arguments of other types than those of the last call; what the launch uses."""
        kernel = self.kernel
        values = [seen(a.array if type(a) in NARROWED else a) for a in args]
        accesses: Accesses
        if not any(isinstance(value, ForeignArray) for value in values):
            accesses = kernel.calls.pack_otherwise(args, values, buffer)
            return accesses
        # What another library's array is, and on which stream, may be different in each call.
        kernel.packing.pack_exactly(values, buffer)
        accesses = kernel.accesses(args, values)
        take_over_foreign(values)
        return accesses

    def _another(self) -> Launch:
        kernel = self.kernel
        shape = self._shape
        if shape is None:
            shape = self._shape = kernel.shape(self.grid, self.block, self.shared_bytes)
            kernel.keep(self)
        return driver.Launch(kernel, shape, kernel.packing.block(), None, self._idle)

    def __repr__(self) -> str:
        return f"<BoundKernel {self.kernel.name}, grid {self.grid}, block {self.block}>"
