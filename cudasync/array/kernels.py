"""Floor 4. Kernels that are called on arrays: `kernel[grid, block](*args)` is a push.

What a call reads and writes is inferred from the PTX, parameter by parameter, when the module is
loaded. `In`, `Out` and `InOut` narrow it by hand where inference has to be cautious.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cudasync import driver
from cudasync.array.allocation import reap
from cudasync.array.foreign import seen, take_over_foreign
from cudasync.engine import Op, Var, engine
from cudasync.engine.op import OpKind
from cudasync.ptx.access import Access

if TYPE_CHECKING:
    from cudasync.driver import Stream


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


class Kernel(driver.Kernel):
    """A kernel of a module; `kernel[grid, block](*args)` pushes a launch onto the engine."""

    def __getitem__(self, shape: Any) -> BoundKernel:
        """`kernel[grid, block]` or `kernel[grid, block, shared_bytes]`, counts of blocks and of
        threads per block as integers or tuples of up to three."""
        if not isinstance(shape, tuple) or not 2 <= len(shape) <= 3:
            raise TypeError("write kernel[grid, block] or kernel[grid, block, shared_bytes]")
        return BoundKernel(self, shape[0], shape[1], shape[2] if len(shape) == 3 else 0)


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


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A kernel with its launch shape; call it with the kernel's arguments."""

    kernel: Kernel
    grid: Any
    block: Any
    shared_bytes: int

    def __call__(self, *args: Any, name: str | None = None, priority: int = 0) -> Op:
        """Push a launch with these arguments, values as of now; returns the op at once.

        Raises TypeError and ValueError for a wrong number, type or range of arguments and for a
        launch shape that no device could run.
        """
        reap()
        kernel = self.kernel
        parameters = kernel.parameters
        values = [seen(a.array if type(a) in _NARROWED else a) for a in args]
        reads: list[Any] = []
        writes: list[Any] = []
        for parameter, argument, value in zip(parameters, args, values, strict=False):
            does_read, does_write = _NARROWED.get(type(argument), _READS_WRITES[parameter.access])
            if not hasattr(value, "ptr"):
                continue
            if does_read:
                reads.append(value)
            if does_write:
                writes.append(value)
        assert isinstance(kernel.module, Module)
        for symbol, access in kernel.symbols.items():
            does_read, does_write = _READS_WRITES[access]
            token = kernel.module.variable(symbol)
            if does_read:
                reads.append(token)
            if does_write:
                writes.append(token)
        # Checked and packed now: wrong arguments are the caller's mistake, and values count as of
        # now, though the launch may come later.
        kernel.shape(self.grid, self.block, self.shared_bytes)
        prepared = kernel.pack(values)
        take_over_foreign(values)

        def enqueue(stream: Stream) -> None:
            driver.launch(
                kernel,
                grid=self.grid,
                block=self.block,
                args=prepared,
                stream=stream,
                shared_bytes=self.shared_bytes,
            )

        return engine()._push(
            enqueue,
            OpKind.KERNEL,
            reads=reads,
            writes=writes,
            name=name if name is not None else kernel.name,
            priority=priority,
            device=kernel.device,
            kernel=kernel.name,
        )
