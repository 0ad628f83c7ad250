"""Floor 4, steps. Compiles a text of CUDA C to a kernel on a device.

A kernel is loaded once in the life of a device's context; NVRTC's output is kept on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver import Module

if TYPE_CHECKING:
    from cudasync.driver import Device, Kernel

# A product and a sum are rounded separately, as in NumPy.
_OPTIONS = ("--fmad=false",)
# Beyond this many kernels, the table begins anew.
_MOST = 1024

_kernels: dict[tuple[str, int, object, tuple[str, ...]], Kernel] = {}


def kernel_of(text: str, name: str, device: Device, options: tuple[str, ...] = _OPTIONS) -> Kernel:
    """The kernel `name` of `text` on this device. The first call blocks while it is compiled.
    CudasyncError without NVRTC."""
    # The context has its token only after this.
    device.context.enter()
    key = (text, device.ordinal, device.context.token, options)
    found = _kernels.get(key)
    if found is None:
        module = Module.of_generated(text, device=device, name=f"{name}.cu", options=options)
        if len(_kernels) >= _MOST:
            _kernels.clear()
        found = _kernels.setdefault(key, module.kernel(name))
    return found
