"""Floor 4. Modules whose kernels are called on arrays, and run on the device of these arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cudasync import driver
from cudasync.array.kernels.checked_mode import variable_of
from cudasync.array.kernels.indirect_memory import note_module
from cudasync.array.kernels.kernel import Kernel
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from cudasync.driver.device import DeviceLike
    from cudasync.engine import Var


class Module(driver.Module):
    """PTX or CUDA C, loaded on a device; `module.kernel(name)` gives kernels to call on arrays."""

    kernel_type: ClassVar[type[driver.Kernel]] = Kernel

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        note_module(self)

    @property
    def written_variables(self) -> list[Var]:
        """The tokens of all variables that a kernel of the module could write."""
        declared = self._parsed.variables if self._parsed is not None else ()
        return [self.variable(each.name) for each in declared if each.space is StateSpace.GLOBAL]

    def variable(self, name: str, *, device: DeviceLike | None = None) -> Var:
        """The token that orders launches which share the module's global `name`.

        The variable exists once on each device that the module is loaded on. Without a `device`
        this is the variable on the device where the module was made.
        """
        if device is not None:
            return self.on(device).variable(name)
        variables: dict[str, Var] = self.__dict__.setdefault("_variables", {})
        known = variables.get(name)
        return known or variables.setdefault(name, variable_of(self, name))

    def kernel(self, name: str) -> Kernel:
        """The kernel called `name`, as `driver.Module.kernel` finds it; it runs on the device of
        its arguments."""
        kernel = super().kernel(name)
        assert isinstance(kernel, Kernel)
        return kernel

    def close(self) -> None:
        """Unload the module, on all devices, once no kernel of it runs. Closing twice is harmless.

        (cuModuleUnload)
        """
        super().close()
        for each in self._kernels.copy().values():
            assert isinstance(each, Kernel)
            each.refuse()
