"""Floor 0. Every error that a user of cudasync can meet, and its attributes.

A program branches on an error's attributes; a person reads its message. A caller's mistake is a
`TypeError` or `ValueError`, raised before anything is enqueued. The classes here report errors of
the driver, of the PTX, or of an op that ran.

An error keeps its fields across processes: `concurrent.futures` and multiprocessing pickle a
worker's exception, and an error that cannot be unpickled breaks the pool.
"""

from __future__ import annotations

import pickle
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# Driver errors after which the context is dead, on a GPU until the process ends: CUDA calls them
# sticky. From the descriptions of CUresult in the CUDA driver API reference.
STICKY_CODES = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})


class _Portable:
    """An exception that is copied and pickled with its fields, whatever its constructor takes.

    A copy shares the exceptions that are fields. In a pickle, an `UnpicklableCause` replaces an
    exception that cannot be unpickled.
    """

    # Fields of Exception: the constructor's arguments, and the cause that `raise ... from` names.
    args: tuple[Any, ...]
    __cause__: BaseException | None

    def __copy__(self) -> Any:
        twin = _without_init(type(self), self.args)
        vars(twin).update(vars(self))
        if self.__cause__ is not None:
            twin.__cause__ = self.__cause__
        return twin

    def __deepcopy__(self, memo: object) -> Any:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        # By identity: `cause` and `__cause__` of an `OpError` are one exception.
        carried: dict[int, BaseException] = {}
        fields = dict(vars(self))
        if self.__cause__ is not None:
            fields["__cause__"] = self.__cause__
        for name, value in fields.items():
            if isinstance(value, BaseException):
                if id(value) not in carried:
                    carried[id(value)] = _as_pickled(value)
                fields[name] = carried[id(value)]
        return _without_init, (type(self), self.args), fields


def _without_init(kind: type[Any], args: tuple[Any, ...]) -> Any:
    return kind.__new__(kind, *args)


def _as_pickled(error: BaseException) -> BaseException:
    """`error` if pickle can restore it, else an `UnpicklableCause` for it."""
    if isinstance(error, _Portable):
        # It handles its own fields: a try here would pickle each cause of a chain twice.
        return error
    tried = _tried.get()
    token = _tried.set(tried | {id(error)})
    try:
        if id(error) in tried:
            raise ValueError("the error is part of its own cause")
        pickle.loads(pickle.dumps(error))
    except Exception:
        return UnpicklableCause(
            f"{type(error).__module__}.{type(error).__qualname__}", _text_of(error)
        )
    finally:
        _tried.reset(token)
    return error


# The ids of the errors that are being tried with pickle.
_tried: ContextVar[frozenset[int]] = ContextVar("cudasync pickled", default=frozenset())


def _text_of(error: BaseException) -> str:
    """`str(error)`, also if the exception's own method fails."""
    try:
        return str(error)
    except Exception as failed:
        return f"<its text cannot be read: {type(failed).__name__}>"


class CudasyncError(_Portable, Exception):
    """Base class of every error that cudasync defines."""


class CudaError(CudasyncError):
    """The driver refused a call, or cuBLAS did.

    `code` and `name` are the driver's (700, "CUDA_ERROR_ILLEGAL_ADDRESS"), `call` is the
    function, and `hint` is a remedy if one is known. `sticky` is True if the context is lost: on a
    GPU until the process ends, on the software GPU until `Device.reset()`.
    """

    def __init__(self, code: int, name: str, *, call: str, hint: str = "") -> None:
        self.code = code
        self.name = name
        self.call = call
        self.hint = hint
        self.sticky = code in STICKY_CODES
        super().__init__(f"{call}: {name} ({code})" + (f": {hint}" if hint else ""))


class OutOfMemoryError(MemoryError, CudaError):
    """A device has no memory for an array, even after the cache and dead arrays were freed.

    `device` is the device's ordinal, `size_bytes` the size of the request. `table` shows the users
    of memory: the numbers of `memory_stats`, and the largest living arrays with their shapes,
    dtypes, and the line that wrote or made them.
    """

    def __init__(
        self, code: int, name: str, *, call: str, device: int, size_bytes: int, table: str
    ) -> None:
        self.device = device
        self.size_bytes = size_bytes
        self.table = table
        hint = f"{size_bytes:,} bytes on Device({device}): delete arrays, or work on parts\n{table}"
        # Not `super()`, which is MemoryError: it is the first base, since it allocates its objects.
        CudaError.__init__(self, code, name, call=call, hint=hint)


class PtxError(CudasyncError):
    """The text is not PTX that can run here.

    `file` names the text's origin ("<ptx>" for a string); `line` and `column` count from 1, and are
    0 if the error concerns the whole text; `instruction` is the statement's text or "".
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


class CompileError(CudasyncError):
    """CUDA C that NVRTC does not compile.

    `message` is NVRTC's first error, and `file`, `line` and `column` are its place. The numbers
    count from 1; both are 0 if the error concerns an option or a name. `source` is the line's text,
    and `log` the whole log of NVRTC.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str = "<cuda>",
        line: int = 0,
        column: int = 0,
        source: str = "",
        log: str = "",
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.source = source
        self.log = log
        place = ":".join([file, *(str(number) for number in (line, column) if number)])
        told = f"{place}: {message}"
        if source:
            margin = f"{line:5} | "
            told += f"\n{margin}{source}"
            if column:
                # A tab of the line is a tab here, too, so that the mark is below its column.
                before = "".join("\t" if each == "\t" else " " for each in source[: column - 1])
                told += f"\n{' ' * (len(margin) - 2)}| {before}^"
        if log:
            told += f"\nNVRTC said:\n{log}"
        super().__init__(told)


class OpError(CudasyncError):
    """An op failed, or read data of a failed op; every wait on that data raises it.

    `op` is the name of the op that failed first, `push_site` is "file:line" of its push. `cause` is
    its exception, with a traceback from the program's first frame on. Once the failure is cleared
    or the engine has ended, `cause` is a copy that has the traceback as a note. `suspects` names
    every op that may have caused a device fault if the fault cannot be attributed to one.
    """

    def __init__(
        self,
        op: str,
        push_site: str,
        cause: BaseException,
        *,
        suspects: Sequence[str] = (),
        hint: str = "",
    ) -> None:
        self.op = op
        self.push_site = push_site
        self.cause = cause
        self.suspects = tuple(suspects)
        told = _of_an_op(op, push_site, cause, self.suspects)
        super().__init__(f"{told}; {hint}" if hint else told)
        self.__cause__ = cause


class UnhandledFailureWarning(_Portable, RuntimeWarning):
    """An op failed, no wait raised the failure, and the op's engine has ended.

    Shown once for each failure when the engine closes, is collected, or the program ends.
    `op`, `push_site`, `cause` and `suspects` are as in `OpError`. `dependents` counts the other ops
    that failed with the op, `alike` the further equal failures of this op at this place. `trace` is
    the traceback of the cause, "" if it contains no frame of the program.
    """

    def __init__(
        self,
        op: str,
        push_site: str,
        cause: BaseException,
        *,
        suspects: Sequence[str] = (),
        dependents: int = 0,
        alike: int = 0,
        trace: str = "",
    ) -> None:
        self.op = op
        self.push_site = push_site
        self.cause = cause
        self.suspects = tuple(suspects)
        self.dependents = dependents
        self.alike = alike
        self.trace = trace
        told = _of_an_op(op, push_site, cause, self.suspects) + "; no wait raised the failure"
        if dependents:
            told += f"; {dependents} dependent ops failed with it"
        if alike:
            told += f"; {alike} equal failures follow"
        if trace:
            told += f"\n{trace}"
        super().__init__(told)
        self.__cause__ = cause


def _of_an_op(op: str, push_site: str, cause: BaseException, suspects: Sequence[str]) -> str:
    told = f"op {op!r}, pushed at {push_site}, failed: {type(cause).__name__}: {_text_of(cause)}"
    return told + (f" (it or one of: {', '.join(suspects)})" if suspects else "")


class UnpicklableCause(CudasyncError):
    """Replaces an exception that pickle cannot carry from one process to another.

    `kind` names the exception's class, module included; `message` is its text.
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(f"{kind}: {message}")


class DeadlockError(CudasyncError):
    """Nothing can run any more; the message names each blocked stream and its wait."""


class RecordingError(CudasyncError):
    """An operation that a graph cannot record, or that an incomplete graph does not allow."""


class ClosedError(CudasyncError):
    """The object was closed and cannot be used again."""
