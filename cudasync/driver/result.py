"""Floor 1. Answers of the driver: `check` turns each into a value or an error.

A binding returns a tuple: its first item is the CUresult, the rest are its results. Zero always
means success, so hot paths test `answer[0]` themselves and call `failure` only for an error.
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from cudasync.errors import CudaError, DeadlockError

_ILLEGAL_STATE = 401
# A driver gives no context to a process that had a fault; a reset heals only the software GPU.
_IS_LOST = (
    "the context is lost: start a new process (on the software GPU, device.reset() is enough)"
)

_HINTS = {
    1: "an argument is outside the range that the driver accepts: check sizes, addresses and flags",
    2: "close buffers that are no longer needed, or work in smaller pieces",
    3: "CUDA does not survive fork(): start processes with the 'spawn' method",
    4: "the interpreter is shutting down, or the driver was unloaded: call earlier",
    100: "no device is visible: check CUDA_VISIBLE_DEVICES, or set CUDASYNC_DEVICE=soft",
    101: "there is no device with this ordinal: use 0 to cudasync.device_count() - 1",
    201: "another library may have changed this thread's context: call device.use()",
    209: "the module has no code for this device: give PTX, or build for its compute capability",
    218: "the driver's compiler refused the PTX",
    222: "the PTX version is newer than this driver: update the driver, or lower .version",
    304: "the operating system refused; page-locked memory may be limited (ulimit -l)",
    400: "the handle is not valid in this context: it was closed, or belongs to another device",
    401: "the current state forbids this call, for example an open capture: end that first",
    500: "the driver or the module has no symbol of this name: check the spelling",
    600: "the work has not finished: synchronize first",
    700: f"a kernel or copy accessed memory outside all allocations; {_IS_LOST}",
    701: "too many registers or too much shared memory for this block: use a smaller block",
    702: f"a kernel ran too long, perhaps forever; {_IS_LOST}",
    710: f"an assertion in a kernel failed; {_IS_LOST}",
    714: f"a kernel's stack is corrupt or too small; {_IS_LOST}",
    715: f"a kernel executed an illegal instruction, or reached past its shared memory; {_IS_LOST}",
    716: f"a kernel's address is not a multiple of its access size; {_IS_LOST}",
    717: f"a kernel used an instruction on memory of the wrong state space; {_IS_LOST}",
    718: f"a kernel's program counter left its code; {_IS_LOST}",
    719: f"a kernel failed; {_IS_LOST}",
    801: "this device or this driver does not support the call",
    900: "captured work does not run: query, wait, synchronize and launch graphs after the capture",
    901: "an earlier error invalidated the capture: fix the first call that failed",
    902: "two captures were joined by an event: end one of them first",
    903: "the stream is not the one that the capture began on: end the capture on that stream",
    904: "a stream joined the capture and was not rejoined: let the first stream wait for its "
    "event",
    905: "the work is captured, and work outside the capture cannot wait for it",
    906: "the legacy default stream cannot take part in a capture: use a Stream, or mode='relaxed'",
    907: "the event was recorded in a capture: only work of this capture can wait for it",
    908: "another thread began the capture: end it there, or use mode='relaxed'",
    910: "the graphs differ in more than an update can change: instantiate the new graph",
    803: "the NVIDIA driver and its library have different versions: reboot, or reinstall them",
}


# The standard texts of cuGetErrorString for these codes. A longer text is a report.
_STANDING_PHRASES = {
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    4: "driver shutting down",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    201: "invalid device context",
    209: "no kernel image is available for execution on the device",
    218: "a PTX JIT compilation failed",
    222: "the provided PTX was compiled with an unsupported toolchain.",
    304: "OS call failed or operation not supported on this OS",
    400: "invalid resource handle",
    500: "named symbol not found",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    701: "too many resources requested for launch",
    702: "the launch timed out and was terminated",
    716: "misaligned address",
    719: "unspecified launch failure",
    801: "operation not supported",
    803: "system has unsupported display driver / cuda driver combination",
}


def check(answer: Any, call: str) -> Any:
    """The results in `answer`: None, a single value, or a tuple of values.

    `call` is the driver function's name. Raises CudaError if the driver refused.
    """
    if answer[0]:
        raise failure(answer[0], call)
    if len(answer) == 2:
        return answer[1]
    return answer[1:] or None


def failure(code: Any, call: str, remedy: str = "") -> CudaError | DeadlockError:
    """The error for a CUresult other than success, for the caller to raise.

    Its hint is the driver's report, followed by `remedy` or the library's hint for the code. A
    report is more than the standard text: "an illegal memory access was encountered: kernel k,
    line 12 ...". The error is a DeadlockError if the driver reports that nothing can run any more.
    """
    number = int(code)
    report = report_of(number)
    if number == _ILLEGAL_STATE and "deadlock" in report:
        return DeadlockError(f"{call}: {report}")
    hint = remedy or _HINTS.get(number, "")
    if report:
        hint = f"{report} ({hint})" if hint else report
    return CudaError(number, _name(number), call=call, hint=hint)


def _name(number: int) -> str:
    try:
        return str(driver.CUresult(number).name)
    except ValueError:  # A driver newer than the bindings.
        return "CUDA_ERROR_UNRECOGNIZED"


def report_of(number: int) -> str:
    """The driver's report on the code, "" if it gives only its standard text."""
    try:
        refused, raw = driver.cuGetErrorString(driver.CUresult(number))
    except (ValueError, RuntimeError):
        return ""
    if refused or not raw:
        return ""
    text = str(raw.decode(errors="replace")).strip()
    return text if len(text) > len(_STANDING_PHRASES.get(number, "")) else ""
