"""Cellar. Redirects cuda.bindings.runtime to functions of the runtime API above the driver.

These bindings carry the CUDA runtime as machine code, which finds its driver through undocumented
tables. But `runtime` takes each C function from a capsule of `cyruntime` once, when it is imported.
So it calls any capsule of the same signature that was put there before. No code is overwritten, and
a process that never imports the bindings pays nothing.

Functions that are not here return cudaErrorNotSupported and say so. Functions that need no driver
(names of errors, versions) stay NVIDIA's.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from cudasync import late
from cudasync.softgpu.abi.marshalling.signature_letters import kinds_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from cudasync.softgpu.abi.runtime import chapters
    from cudasync.softgpu.abi.stub import registry
    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

else:
    # All functions of the runtime API, which most programs do not use.
    chapters = late.Module("cudasync.softgpu.abi.runtime.chapters")

_BINDINGS: Final = "cuda.bindings.runtime"
_C_FUNCTIONS: Final = "cuda.bindings.cyruntime"
_NEEDS_NO_DRIVER: Final = re.compile("cuda(Runtime|Driver)GetVersion|cudaGetError|getLocal|make_")
_MISSING: Final = "the software GPU has only the core of the runtime API: call the driver API"

_api = ctypes.pythonapi
_name_of = _api.PyCapsule_GetName
_name_of.restype = ctypes.c_void_p
_name_of.argtypes = [ctypes.py_object]
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)(("PyCapsule_New", _api))

_signatures: list[ctypes.Array[ctypes.c_char]] = []


class RuntimeFinder:
    """Finds nothing, but redirects the functions of the runtime's bindings before their import."""

    def __init__(self, table: FunctionTable) -> None:
        self._table = table

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _BINDINGS and self in sys.meta_path:
            sys.meta_path.remove(self)
            lead(self._table)
        return None


def await_bindings(table: FunctionTable) -> None:
    """Redirect the bindings when they are imported; bindings imported before stay unchanged."""
    if _BINDINGS not in sys.modules:
        sys.meta_path.insert(0, RuntimeFinder(table))


def lead(table: FunctionTable) -> None:
    """Exchange the capsules."""
    capsules: dict[str, Any] = importlib.import_module(_C_FUNCTIONS).__pyx_capi__
    here = chapters.entries()
    for name, capsule in capsules.items():
        # Our own copy: the name belongs to the old capsule, which will be freed.
        signature = ctypes.create_string_buffer(ctypes.string_at(_name_of(capsule)))
        if not signature.value.startswith(b"cudaError_t ("):
            continue
        if _NEEDS_NO_DRIVER.match(name) and name not in here:
            continue
        address = table.enter(name, _entry(name, signature.value.decode()), _MISSING)
        if address:
            _signatures.append(signature)
            capsules[name] = _new_capsule(address, ctypes.addressof(signature), None)


def _entry(name: str, signature: str) -> registry.Entry | None:
    """The entry of a function as the bindings call it; None for older ones with other arguments."""
    return chapters.entries().get(name) if chapters.KINDS.get(name) == kinds_of(signature) else None
