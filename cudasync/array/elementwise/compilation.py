"""Floor 4, elementwise. Compiles an expression and a class of layout to a kernel on a device.

A kernel is loaded once in the life of a device's context; NVRTC's output is kept on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.expressions.kernel import kernel_name, source

if TYPE_CHECKING:
    from cudasync.array.expressions.kernel import LayoutClass
    from cudasync.array.expressions.tree import Expression
    from cudasync.driver import Device, Kernel

# A product and a sum are rounded separately, as in NumPy.
_OPTIONS = ("--fmad=false",)

_kernels: dict[Any, Kernel] = {}


def kernel_for(tree: Expression, kind: LayoutClass, device: Device) -> Kernel:
    """The kernel on this device. The first call blocks while it is compiled. CudasyncError without
    NVRTC."""
    found = _kernels.get((tree, kind, device.ordinal, device.context.token))
    if found is None:
        # Imported late, because this import loads the compiler and the analysis of PTX.
        from cudasync.driver import Module

        # The context has its token only after this.
        device.context.enter()
        key = (tree, kind, device.ordinal, device.context.token)
        name = kernel_name(tree)
        text = source(tree, kind)
        module = Module.of_generated(text, device=device, name=f"{name}.cu", options=_OPTIONS)
        found = _kernels.setdefault(key, module.kernel(name))
    return found
