"""Floor 4. Kernels that are called on arrays: `kernel[grid, block](*args)` is a push.

What a call reads and writes is inferred from the PTX, parameter by parameter, when the module is
loaded. `In`, `Out` and `InOut` narrow it by hand where inference has to be cautious.

Whatever does not change from call to call is worked out once: the shape's checks when a shape is
first used, and for each combination of argument types one function that packs them and tells
what the launch reads and writes.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cudasync import driver
from cudasync.array.allocation import reap
from cudasync.array.checked import check_of
from cudasync.array.foreign import ForeignArray, seen, take_over_foreign
from cudasync.driver.packing import OUT_OF_RANGE, PackerTable
from cudasync.engine import Op, Var, engine
from cudasync.engine.op import OpKind
from cudasync.ptx.access import Access

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudasync.array.checked import Check
    from cudasync.driver import Launch, Parameter, Stream
    from cudasync.driver.kernel import Shape
    from cudasync.driver.packing import Block, Packer


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


# By access: does the op read it, does it write it. A kernel may leave elements as they were, so
# an inferred write needs the old value too.
_READS_WRITES = {
    Access.VALUE: (False, False),
    Access.READ: (True, False),
    Access.WRITE: (True, True),
    Access.READ_WRITE: (True, True),
    Access.UNKNOWN: (True, True),
}
_NARROWED = {In: (True, False), Out: (False, True), InOut: (True, True)}


def _declared(parameter: Parameter, argument: Any) -> tuple[Any, bool, bool, str]:
    """The memory that an argument is, what is said of it, and the word by which it was said."""
    if type(argument) in _NARROWED:
        return seen(argument.array), *_NARROWED[type(argument)], type(argument).__name__
    return seen(argument), *_READS_WRITES[parameter.access], ""


# How many shapes a kernel keeps what it made for.
_MOST_SHAPES = 256

# Read once: to look up a member of an Enum costs as much as a call.
_KERNEL = OpKind.KERNEL


class Kernel(driver.Kernel):
    """A kernel of a module; `kernel[grid, block](*args)` pushes a launch onto the engine."""

    def __init__(
        self,
        module: driver.Module,
        name: str,
        function: Any,
        parameters: tuple[Parameter, ...],
        symbols: Mapping[str, Access],
    ) -> None:
        super().__init__(module, name, function, parameters, symbols)
        # Each packs arguments, and answers with what the launch reads and what it writes.
        self.calls = PackerTable(self.packing, self._call_packer)
        self._bound: dict[Any, BoundKernel] = {}
        # What holds calls to what they declare; None but in checked mode.
        self.check: Check | None = check_of(self, _declared)

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

    def uses(
        self, arguments: Sequence[Any], values: Sequence[Any]
    ) -> tuple[list[int | Var], list[int | Var]]:
        """What a call reads and what it writes: positions of arguments, and the module's tokens.

        `values` are those of `arguments`, and known to be what the kernel takes. Raises ValueError
        where it writes to read-only memory, of which arrays are of a type of their own.
        """
        reads: list[int | Var] = []
        writes: list[int | Var] = []
        for i, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            if self.packing.is_memory(i, value):
                inferred = _READS_WRITES[self.parameters[i].access]
                does_read, does_write = _NARROWED.get(type(argument), inferred)
                if does_write and getattr(value, "is_read_only", False):
                    raise ValueError(
                        f"the array for {self.parameters[i].name} is read-only, and {self.name} "
                        "writes to it as far as is known; if it does not, wrap it in In(...)"
                    )
                reads += [i] * does_read
                writes += [i] * does_write
        assert isinstance(self.module, Module)
        for symbol, access in self.symbols.items():
            does_read, does_write = _READS_WRITES[access]
            reads += [self.module.variable(symbol)] * does_read
            writes += [self.module.variable(symbol)] * does_write
        return reads, writes

    def _call_packer(self, arguments: Sequence[Any], values: Sequence[Any]) -> Packer:
        """For arguments of these types: packs them, and tells what is read and what written."""
        places = [f"a{i}" for i in range(len(values))]
        guards: list[str] = []
        names: dict[str, Any] = {}
        for i, argument in enumerate(arguments):
            if type(argument) in _NARROWED:
                guards.append(f"type(a{i}) is narrowed{i}")
                names[f"narrowed{i}"] = type(argument)
                places[i] = f"a{i}.array"

        def written_out(uses: Sequence[int | Var]) -> str:
            items = []
            for use in uses:
                if isinstance(use, Var):
                    items.append(f"token{len(names)}")
                    names[items[-1]] = use
                else:
                    items.append(places[use])
            return f"({''.join(f'{item}, ' for item in items)})"

        reads, writes = self.uses(arguments, values)
        answer = f"({written_out(reads)}, {written_out(writes)})"
        return self.packing.packer(values, places=places, guards=guards, answer=answer, names=names)


class Module(driver.Module):
    """PTX loaded on a device; `module.kernel(name)` gives kernels that can be called on arrays."""

    kernel_type: ClassVar[type[driver.Kernel]] = Kernel

    def variable(self, name: str) -> Var:
        """The token that orders launches which share the module's global `name`."""
        variables: dict[str, Var] = self.__dict__.setdefault("_variables", {})
        return variables.setdefault(name, Var(name))

    def kernel(self, name: str) -> Kernel:
        """The kernel called `name`; ValueError if the module has none of that name."""
        kernel = super().kernel(name)
        assert isinstance(kernel, Kernel)
        return kernel


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
        # deque.pop and append are one C call each: no two calls get the same one.
        self._idle: deque[_Pending] = deque()

    def __call__(self, *args: Any, name: str | None = None, priority: int = 0) -> Op:
        """Push a launch with these arguments, values as of now; returns the op at once.

        Raises TypeError and ValueError for a wrong number, type or range of arguments and for a
        launch shape that no device could run.
        """
        reap()
        kernel = self.kernel
        try:
            pending = self._idle.pop()
        except IndexError:
            pending = self._another()
        # Checked and packed now: wrong arguments are the caller's mistake, and values count as of
        # now, though the launch may come later.
        calls = kernel.calls
        try:
            accesses = calls.latest(args, pending.buffer)
        except OUT_OF_RANGE:
            accesses = None
        if accesses is None:
            accesses = self._pack_otherwise(args, pending.buffer)
        pending.kept = args
        reads, writes = accesses
        check = kernel.check
        return engine()._push(
            pending.issue if check is None else check(args, pending.issue),
            _KERNEL,
            reads=reads,
            writes=writes,
            name=name if name is not None else kernel.name,
            priority=priority,
            device=kernel.device,
            kernel=kernel.name,
        )

    def _pack_otherwise(self, args: tuple[Any, ...], buffer: Any) -> tuple[Any, Any]:
        """Pack arguments of other types than those of the last call; what is read, what written."""
        kernel = self.kernel
        values = [seen(a.array if type(a) in _NARROWED else a) for a in args]
        if not any(isinstance(value, ForeignArray) for value in values):
            accesses: tuple[Any, Any] = kernel.calls.pack_otherwise(args, values, buffer)
            return accesses
        # What another library's array is, and on which stream, may be different in each call.
        kernel.packing.pack_exactly(values, buffer)
        reads, writes = kernel.uses(args, values)
        take_over_foreign(values)
        return (
            [use if isinstance(use, Var) else values[use] for use in reads],
            [use if isinstance(use, Var) else values[use] for use in writes],
        )

    def _another(self) -> _Pending:
        kernel = self.kernel
        shape = self._shape
        if shape is None:
            shape = self._shape = kernel.shape(self.grid, self.block, self.shared_bytes)
            kernel.keep(self)
        block = kernel.packing.block()
        return _Pending(driver.Launch(kernel, shape, block, ()), block, self._idle)

    def __repr__(self) -> str:
        return f"<BoundKernel {self.kernel.name}, grid {self.grid}, block {self.block}>"


class _Pending:
    """A launch whose arguments are those of one call, until it is issued; then of the next."""

    __slots__ = ("_home", "_launch", "buffer", "kept")

    def __init__(self, launch: Launch, block: Block, home: deque[_Pending]) -> None:
        self._launch = launch
        self._home = home
        self.buffer = block.buffer
        # The arguments of the call, alive until the launch is issued; None in between.
        self.kept: tuple[Any, ...] | None = None

    def issue(self, stream: Stream) -> None:
        """Launch on `stream`: once for each time it was packed."""
        assert self.kept is not None, "a launch was issued twice"
        self._launch.on(stream)
        # cuLaunchKernel has read the arguments: the buffer is free for the next call.
        self.kept = None
        self._home.append(self)
