"""Floor 1. The gate: every answer of the driver passes here and becomes a value or an error.

A binding returns a tuple whose first item is the CUresult; the rest are its results. Zero is
success everywhere, so hot paths test `answer[0]` themselves and call `failure` only to fail.
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from cudasync.errors import CudaError, DeadlockError

_HINTS = {
    1: "an argument is outside of what the driver takes: check sizes, addresses and flags",
    2: "close buffers that are no longer needed, or work in smaller pieces",
    3: "CUDA does not survive fork(): start processes with the 'spawn' method",
    4: "the interpreter is shutting down, or the driver has been unloaded",
    100: "no device is visible: look at CUDA_VISIBLE_DEVICES, or set CUDASYNC_DEVICE=soft",
    101: "there is no device with this ordinal: cudasync.device_count() tells how many there are",
    201: "another library may have changed this thread's context: call device.use()",
    209: "the module holds no code for this device: give PTX, or build for its compute capability",
    218: "the driver's compiler refused the PTX",
    222: "the PTX is of a later version than this driver knows: update it, or lower .version",
    304: "the operating system refused; page-locked memory may be limited (ulimit -l)",
    400: "the handle is not alive in this context: was it closed, or is it another device's?",
    500: "the driver or the module has nothing by this name",
    600: "the work has not finished: synchronize first",
    700: "a kernel or copy touched memory outside of any allocation; "
    "the context is unusable until device.reset()",
    701: "too many registers or too much shared memory for this block: use a smaller block",
    702: "a kernel ran too long, perhaps for ever; the context is unusable until device.reset()",
    716: "a kernel's address is not a multiple of its access size; "
    "the context is unusable until device.reset()",
    719: "a kernel failed; the context is unusable until device.reset()",
    801: "this device, or this driver, does not offer the function",
    803: "the NVIDIA driver and its library are of different versions: restart, or reinstall them",
}


def check(answer: Any, call: str) -> Any:
    """The results in `answer`: None, the only one, or a tuple of them.

    `call` is the driver function's name. Raises CudaError where the driver refused.
    """
    if answer[0]:
        raise failure(answer[0], call)
    if len(answer) == 2:
        return answer[1]
    return answer[1:] or None


def failure(code: Any, call: str) -> CudaError | DeadlockError:
    """The error for a CUresult that is not success, to be raised by the caller.

    The hint is what the driver itself reports where that is more than its standing phrase for
    the code: "an illegal memory access was encountered: kernel k, line 12 ...". It is a
    DeadlockError where the driver reports one.
    """
    number = int(code)
    report = _report(number)
    if report.startswith("deadlock"):
        return DeadlockError(f"{call}: {report}")
    hint = _HINTS.get(number, "")
    if report and hint:
        hint = f"{report} ({hint})"
    return CudaError(number, _name(number), call=call, hint=hint or report)


def _name(number: int) -> str:
    try:
        return str(driver.CUresult(number).name)
    except ValueError:  # A driver newer than the bindings.
        return "CUDA_ERROR_UNRECOGNIZED"


def _report(number: int) -> str:
    """What cuGetErrorString says after its standing phrase and a colon, or ""."""
    try:
        refused, text = driver.cuGetErrorString(driver.CUresult(number))
    except (ValueError, RuntimeError):
        return ""
    if refused or not text:
        return ""
    return str(text.decode(errors="replace")).partition(": ")[2].strip()
