"""Cellar, abi. Redirects CuPy's module of the runtime API to functions above the driver.

`cupy_backends.cuda.api.runtime` carries NVIDIA's runtime as machine code, which finds its driver
through undocumented tables. But CuPy's other modules take each of its functions from a capsule
once, when they are imported. So they call the capsules that were put there first. The parts that
need no driver (versions, structures, names of errors) stay.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.cupy import trampolines
from cudasync.softgpu.abi.cupy.calling import Runtime, converted
from cudasync.softgpu.abi.cupy.functions import Functions
from cudasync.softgpu.abi.cupy.rows import forwarded
from cudasync.softgpu.abi.cupy.signatures import Signature, parse, skips_dispatch, text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

    Compile = Callable[[str, list[str]], tuple[dict[str, int], Any]]

_NEEDS_NO_DRIVER: Final = re.compile(
    "runtimeGetVersion|_getCUDAMajorVersion|_getLocalRuntimeVersion|make_|_export_enum|__pyx|_?[A-Z]"
)
_MAJORS: Final = (12, 13)
# These return zero on failure. The caller then checks for an exception, or it always checks.
_FAILS_WITH_ZERO: Final = ("streamGetPriority", "streamIsCapturing")

_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))

_kept: list[object] = []
"""The objects that the capsules point to, kept for the life of the process."""


def lead(module: ModuleType, table: FunctionTable, compile_functions: Compile) -> None:
    """Exchange the module's capsules and functions.

    ImportError for a CuPy of another CUDA, and for a capsule whose C signature cannot be read: no
    function may stay as it was.
    """
    major = module.runtimeGetVersion() // 1000
    if major not in _MAJORS:
        raise ImportError(
            f"this CuPy is built for CUDA {major}, which the software GPU does not support: "
            "install cupy-cuda12x or cupy-cuda13x"
        )
    runtime = Runtime(table, module.CUDARuntimeError)
    here = {
        name: (letters, call)
        for source in (forwarded(runtime), Functions(runtime, module).named())
        for name, letters, call in source
    }
    _exchange_capsules(module, here, compile_functions)
    for name in list(vars(module)):
        value = getattr(module, name)
        if not callable(value) or _NEEDS_NO_DRIVER.match(name):
            continue
        if name in here:
            letters, call = here[name]
            plain = letters[2:-1].replace("+", "")
            setattr(module, name, converted(plain, call))
        else:
            setattr(
                module,
                name,
                refusal(f"cupy.cuda.runtime.{name}", "the software GPU does not model it"),
            )


def refusal(name: str, why: str) -> Callable[..., Any]:
    """A function that raises: it is not supported, with the reason."""

    def refuse(*_arguments: Any, **_keywords: Any) -> Any:
        raise NotImplementedError(f"{name} is not supported by the software GPU: {why}")

    return refuse


def _exchange_capsules(
    module: ModuleType,
    here: dict[str, tuple[str, Callable[..., Any]]],
    compile_functions: Compile,
) -> None:
    capsules: dict[str, Any] = module.__pyx_capi__
    chosen: list[tuple[str, str, Signature, Callable[..., Any]]] = []
    for name, capsule in capsules.items():
        text = text_of(capsule)
        if "(" not in text or _NEEDS_NO_DRIVER.match(name):
            continue
        signature = parse(text)
        if signature is None:
            raise ImportError(
                f"this CuPy's {module.__name__}.{name} has an unknown C signature ({text}): "
                "install CuPy 13 or 14, or a newer cudasync"
            )
        chosen.append((name, text, signature, _callable(name, signature, here)))
    shapes = [
        (signature, _on_failure(name, signature), skips_dispatch(text))
        for name, text, signature, _ in chosen
    ]
    names = [trampolines.name_of(index) for index in range(len(chosen))]
    addresses, owner = compile_functions(
        trampolines.text_of(shapes), [*names, trampolines.FUNCTIONS]
    )
    table = (ctypes.c_void_p * len(chosen)).from_address(addresses[trampolines.FUNCTIONS])
    _kept.append(owner)
    for index, (name, text, _, call) in enumerate(chosen):
        label = ctypes.create_string_buffer(text.encode())
        _kept.append((label, call))
        table[index] = id(call)
        at = ctypes.addressof(label)
        capsules[name] = _new_capsule(addresses[names[index]], at, None)


def _callable(
    name: str, signature: Signature, here: dict[str, tuple[str, Callable[..., Any]]]
) -> Callable[..., Any]:
    """The function for a capsule; a refusal if its letters are not the expected ones."""
    letters, call = here.get(name, ("", None))
    if call is None:
        return refusal(name, "the software GPU does not model it")
    expected = re.sub(r".\+", "+", letters)
    if expected != signature.letters:
        why = f"its signature is {signature.letters}, not {expected} as expected"
        return refusal(name, f"{why}; install CuPy 13 or 14, or a newer cudasync")
    return _with_optional(call) if signature.optional else call


def _with_optional(call: Callable[..., Any]) -> Callable[..., Any]:
    """Unpack the structure {int count; value} of an optional argument into the value."""

    def unpacked(*arguments: Any) -> Any:
        *plain, address = arguments
        if not address:
            return call(*plain)
        count, value = (ctypes.c_int * 2).from_address(address)
        return call(*plain, value & 0xFFFFFFFF) if count else call(*plain)

    return unpacked


def _on_failure(name: str, signature: Signature) -> int:
    """The number that means "an exception may be set" in CuPy's declarations."""
    is_signed = signature.result == "i" or name == "deviceGetLimit"
    return -1 if is_signed and name not in _FAILS_WITH_ZERO else 0
