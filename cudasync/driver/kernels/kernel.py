"""Floor 1. `Kernel`: its parameters, the limits of its launches, and its handle.

An impossible launch is refused here, with the name of the limit, before the driver sees it. Valid
shapes are remembered, so that the check costs one look-up in a loop of launches.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NoReturn

from cuda.bindings import driver

from cudasync.driver.arguments.argument_packing import Packing, PreparedArguments
from cudasync.driver.device import as_device
from cudasync.driver.kernels.launch import Launch
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self, TypeAlias

    from cudasync.driver.arguments.parameter import Parameter
    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.kernels.module import Module
    from cudasync.ptx.types import Access

    # Grid x y z, block x y z, dynamic shared bytes, in cuLaunchKernel's order.
    Shape: TypeAlias = tuple[int, int, int, int, int, int, int]

_MOST_SHAPES = 256


@unpicklable("send the PTX and load it there with Module.from_ptx")
class Kernel:
    """A kernel of a loaded module. `module.kernel(name)` makes it; it keeps the module loaded.

    `name` is its name in the PTX, `label` its name in the source (for CUDA C). `parameters` are in
    order. `symbols` has the access to each module variable that the kernel uses. `beyond` is the
    reason why it may reach other memory than through these, "" if it cannot. `max_threads` is the
    largest number of threads of its block.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        function: Any,
        parameters: tuple[Parameter, ...],
        symbols: Mapping[str, Access],
        beyond: str = "",
    ) -> None:
        self.module = module
        self.name = self.label = name
        self.device: Device = module.device
        self.parameters = parameters
        self.symbols = symbols
        self.beyond = beyond
        self.packing = Packing(name, parameters, module.device)
        # The driver's CUfunction.
        self.function = function
        attributes = driver.CUfunction_attribute
        self.max_threads = self._attribute(attributes.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        self.static_shared_bytes = self._attribute(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        # The dynamic shared memory that a launch may use without an opt-in.
        self._most_dynamic = (
            self.device.attribute("MAX_SHARED_MEMORY_PER_BLOCK") - self.static_shared_bytes
        )
        self._shapes: dict[Any, Shape] = {}

    def _attribute(self, attribute: Any) -> int:
        answer = driver.cuFuncGetAttribute(attribute, self.function)
        return int(check(answer, "cuFuncGetAttribute"))

    def __call__(self, *args: object, **named: object) -> NoReturn:
        """Raises TypeError, which says how a kernel is launched."""
        raise TypeError(
            f"kernel {self.name} needs a launch shape: write kernel[grid, block](...), or "
            "cs.launch(kernel, grid=, block=, args=, stream=) for your own stream"
        )

    def on(self, device: DeviceLike) -> Self:
        """This kernel on `device`, loaded there at the first call; itself on its own device.

        A call finds the device by its arrays; this is for calls without arrays.
        """
        on = as_device(device)
        if on is self.device:
            return self
        found: Any = self.module.on(on).kernel(self.name)
        return found  # type: ignore[no-any-return]

    def get(self) -> Any:
        """The driver's CUfunction. Raises ClosedError once the module is closed."""
        self.module.get()
        return self.function

    def pack(self, args: Sequence[Any]) -> PreparedArguments:
        """Check and pack arguments once, for many launches: pass the result as `args=`.

        Raises the errors of `launch` for them.
        """
        return PreparedArguments(self.packing, args)

    def prepare(
        self,
        *,
        grid: Sequence[int] | int,
        block: Sequence[int] | int = (1,),
        args: Sequence[Any] = (),
        shared_bytes: int = 0,
    ) -> Launch:
        """Check and pack a whole launch once; `.on(stream)` of the result launches it.

        Takes the arguments, and raises the errors, of `launch`.
        """
        shape = self.shape(grid, block, shared_bytes)
        self.get()
        return Launch(self, shape, self.packing.take(args), tuple(args))

    def shape(
        self, grid: Sequence[int] | int, block: Sequence[int] | int, shared_bytes: int
    ) -> Shape:
        """The launch shape, checked against the limits of the device and the kernel.

        Raises ValueError with the name of the limit, TypeError for anything but one to three
        integers.
        """
        key = (grid, block, shared_bytes)
        try:
            return self._shapes[key]
        except (KeyError, TypeError):  # TypeError: a list, which is allowed.
            pass
        shape = self._checked(_extents("grid", grid), _extents("block", block), shared_bytes)
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        if isinstance(grid, int | tuple) and isinstance(block, int | tuple):
            self._shapes[key] = shape
        return shape

    def _checked(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int
    ) -> Shape:
        limit = self.device.attribute
        for what, extents in (("GRID", grid), ("BLOCK", block)):
            for axis, extent in zip("XYZ", extents, strict=True):
                most = limit(f"MAX_{what}_DIM_{axis}")
                if not 1 <= extent <= most:
                    raise ValueError(
                        f"kernel {self.name}: {what.lower()} {extents}: {axis.lower()} is "
                        f"{extent}, but must be from 1 to {most}"
                    )
        threads = math.prod(block)
        if threads > self.max_threads:
            raise ValueError(
                f"kernel {self.name}: block {block} has {threads} threads, at most "
                f"{self.max_threads} are possible: use a smaller block"
            )
        shared = operator.index(shared_bytes)
        if shared < 0:
            raise ValueError(f"kernel {self.name}: shared_bytes is {shared}, but must be 0 or more")
        if shared > self._most_dynamic:
            self._raise_dynamic(shared)
        return (*grid, *block, shared)

    def _raise_dynamic(self, shared: int) -> None:
        """Opt in to more dynamic shared memory than the default limit."""
        most = self.device.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        most = max(most, self.device.attribute("MAX_SHARED_MEMORY_PER_BLOCK"))
        if shared + self.static_shared_bytes > most:
            raise ValueError(
                f"kernel {self.name}: {shared} bytes of dynamic and {self.static_shared_bytes} "
                f"of static shared memory exceed {most} for a block"
            )
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.device.context.enter()
        check(driver.cuFuncSetAttribute(self.get(), attribute, shared), "cuFuncSetAttribute")
        self._most_dynamic = shared

    def __repr__(self) -> str:
        return f"<Kernel {self.name}({', '.join(map(str, self.parameters))})>"


def _extents(what: str, given: Sequence[int] | int) -> tuple[int, int, int]:
    """One to three integers, padded with 1."""
    try:
        extents = [operator.index(n) for n in given]  # type: ignore[union-attr]
    except TypeError:
        try:
            extents = [operator.index(given)]  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"{what} takes one to three integers, not {given!r}") from None
    if not 1 <= len(extents) <= 3:
        raise ValueError(f"{what} takes one to three integers, not {len(extents)}")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
