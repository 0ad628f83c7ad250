"""Floor 0. Every error that a user of cudasync can meet, and what each one tells.

An error is a value first and a sentence second: what a program may want to branch on
is an attribute, what a person must read is the message. A caller's mistake is a
`TypeError` or `ValueError`, raised before anything is enqueued; the classes here are for
what the driver, the PTX, or an op that ran has to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Driver errors after which the context is dead until its device is reset: CUDA calls them
# sticky. From the descriptions of CUresult in the CUDA driver API reference.
STICKY_CODES = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})


class CudasyncError(Exception):
    """Base class of every error that cudasync defines."""


class CudaError(CudasyncError):
    """The driver refused a call.

    `code` and `name` are the driver's own (700, "CUDA_ERROR_ILLEGAL_ADDRESS"), `call` is the
    driver function, `hint` says what to do where we know it, and `sticky` is True when the
    context is unusable until `Device.reset()`.
    """

    def __init__(self, code: int, name: str, *, call: str, hint: str = "") -> None:
        self.code = code
        self.name = name
        self.call = call
        self.hint = hint
        self.sticky = code in STICKY_CODES
        super().__init__(f"{call}: {name} ({code})" + (f": {hint}" if hint else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return (_cuda_error, (self.code, self.name, self.call, self.hint))


def _cuda_error(code: int, name: str, call: str, hint: str) -> CudaError:
    return CudaError(code, name, call=call, hint=hint)


class PtxError(CudasyncError):
    """The text is not PTX that can run here.

    `file` names where the text came from ("<ptx>" when it came as a string); `line` and `column`
    count from 1, and are 0 where the whole text is meant; `instruction` is the statement's text
    or "".
    """

    def __init__(
        self,
        message: str,
        *,
        file: str = "<ptx>",
        line: int = 0,
        column: int = 0,
        instruction: str = "",
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.instruction = instruction
        place = f"{file}:{line}:{column}" if line else file
        super().__init__(f"{place}: {message}" + (f": {instruction}" if instruction else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return (_ptx_error, (self.message, self.file, self.line, self.column, self.instruction))


def _ptx_error(message: str, file: str, line: int, column: int, instruction: str) -> PtxError:
    return PtxError(message, file=file, line=line, column=column, instruction=instruction)


class OpError(CudasyncError):
    """An op failed, or read what a failed op wrote; raised by every wait on such data.

    `op` is the name of the op that failed first, `push_site` is "file:line" of its push, and
    `cause` is its exception. `suspects` names every op that may be to blame where a device fault
    cannot be pinned on one.
    """

    def __init__(
        self, op: str, push_site: str, cause: BaseException, *, suspects: Sequence[str] = ()
    ) -> None:
        self.op = op
        self.push_site = push_site
        self.cause = cause
        self.suspects = tuple(suspects)
        text = f"op {op!r}, pushed at {push_site}, failed: {type(cause).__name__}: {cause}"
        if self.suspects:
            text += f" (it or one of: {', '.join(self.suspects)})"
        super().__init__(text)
        self.__cause__ = cause


class DeadlockError(CudasyncError):
    """Nothing can run any more; the message names each blocked stream and what it waits for."""


class ClosedError(CudasyncError):
    """The object was closed and can not be used again."""
