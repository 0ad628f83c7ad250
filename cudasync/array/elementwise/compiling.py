"""Floor 4, elementwise. From an expression and a class of layout to a kernel on a device.

A kernel is compiled once for each, and loaded once in the life of a device's context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.expressions.kernel import kernel_name, source
from cudasync.driver import Module
from cudasync.driver.nvrtc import architecture_for, compile_program

if TYPE_CHECKING:
    from cudasync.array.expressions.kernel import LayoutClass
    from cudasync.array.expressions.tree import Expression
    from cudasync.driver import Device, Kernel

# A product and a sum are rounded twice, as in NumPy.
_OPTIONS = ("--fmad=false",)

_kernels: dict[Any, Kernel] = {}
_programs: dict[Any, str] = {}


def kernel_for(tree: Expression, kind: LayoutClass, device: Device) -> Kernel:
    """The kernel on this device. Blocks while it is compiled, the first time; CudasyncError where
    there is no NVRTC."""
    # The context has a token once it is made.
    device.context.enter()
    key = (tree, kind, device.ordinal, device.context.token)
    found = _kernels.get(key)
    if found is None:
        module = Module.from_ptx(_compiled(tree, kind, device), device=device)
        found = _kernels.setdefault(key, module.kernel(kernel_name(tree)))
    return found


def _compiled(tree: Expression, kind: LayoutClass, device: Device) -> str:
    architecture = architecture_for(device.compute_capability)
    key = (tree, kind, architecture)
    found = _programs.get(key)
    if found is None:
        options = (f"--gpu-architecture={architecture}", *_OPTIONS)
        name = f"{kernel_name(tree)}.cu"
        found, _, _ = compile_program(source(tree, kind), name, options, ())
        _programs[key] = found
    return found
