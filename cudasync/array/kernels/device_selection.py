"""Floor 4, kernels. Finds the device on which a call of a kernel runs: the device of its memory.

A module is loaded on one device when it is made, and on another at the first call of one of its
kernels there (`driver/family`). The device of a call is computed only if its arguments differ in
type from the kernel's last ones. So a kernel that stays on its device never comes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver.any_device import ANY
from cudasync.driver.arguments.argument_checks import is_everywhere
from cudasync.driver.arguments.argument_form import form_of
from cudasync.driver.device import Device, as_device
from cudasync.driver.memory.peer_access import enable_peer_access
from cudasync.ptx.types import Access

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.kernels.kernel import Kernel
    from cudasync.driver.device import DeviceLike


def placed(
    kernel: Kernel, arguments: Sequence[Any], values: Sequence[Any], device: DeviceLike | None
) -> Kernel:
    """The kernel, loaded where a call with these arguments runs.

    `values` are those of `arguments`. Without a `device` the call runs where their memory is, or
    where the kernel is if there is no memory. With a `device`, memory of other devices is reached
    by peer access. Raises ValueError for memory of several devices, or without peer access.
    """
    found: dict[Device, int] = {}
    if len(values) == kernel.packing.count:
        for i, value in enumerate(values):
            form = form_of(value)
            if form is None or form.device is None or kernel.parameters[i].access is Access.VALUE:
                continue
            if not isinstance(form.device, Device):
                raise ValueError(
                    f"kernel {kernel.label}: argument {i + 1} ({kernel.parameters[i]}) is memory "
                    f"of {form.device!r}: give x.to_device({kernel.device.ordinal})"
                )
            if form.device is kernel.device or not is_everywhere(kernel.device, value.ptr):
                found.setdefault(form.device, i)
    if device is not None and device is not ANY:
        on = as_device(device)
        others = [each for each in found if each is not on]
        for each in others:
            enable_peer_access(on, each)
        there = kernel.on(on)
        return there.with_peers if others else there
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise ValueError(
            f"kernel {kernel.label}: argument {first + 1} ({kernel.parameters[first]}) is memory "
            f"of {one!r}, argument {second + 1} ({kernel.parameters[second]}) of {other!r}: copy "
            f"one with x.to_device({one.ordinal}), or give device={one.ordinal} if this device "
            f"has peer access to the other"
        )
    return kernel.on(next(iter(found), kernel.device))
