"""Floor 2. What an op's exception keeps alive by its traceback: the program's frames, not ours.

A traceback refers to frames, a frame to its locals and to whoever called it, up to the outermost.
So a launch that failed would keep its arguments, and all locals of whoever pushed it or waited for
it. And a failure may be kept for as long as the process runs: it poisons what the op wrote.

Nothing here touches a frame of the program: its locals are what a debugger shows after the fact.
"""

from __future__ import annotations

import copy
import os
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from types import TracebackType

# As they are for all exceptions: a class may forbid to write its attributes.
_CONTEXT: Any = BaseException.__dict__["__context__"]
_CAUSE: Any = BaseException.__dict__["__cause__"]
_with_traceback = BaseException.with_traceback
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def of_program(trace: TracebackType | None) -> TracebackType | None:
    """`trace` from the first frame that is not ours; None if all are."""
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


def let_go_of_ours(error: BaseException) -> None:
    """Let `error`, and what it names as its cause or context, refer to no locals of our frames.

    Where all frames are ours the traceback goes, and so does what the thread was handling when it
    called us. Of an error that is not one of ours either, the text of the traceback is kept.
    Raises nothing, whatever the program's classes say: exceptions may be frozen.
    """
    seen = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        trace = each.__traceback__
        theirs = of_program(trace)
        if theirs is not None:
            _with_traceback(each, theirs)
            _clear_ours(theirs)
            each = each.__cause__ or each.__context__
            continue
        if trace is not None and not isinstance(each, CudasyncError):
            with suppress(Exception):
                each.add_note(_text(trace))
        _with_traceback(each, None)
        cause = each.__cause__
        _CONTEXT.__set__(each, cause)
        each = cause


def without_frames(error: BaseException) -> BaseException:
    """A copy of `error`, and of the errors that it refers to, with the text of its traceback for a
    note. The error itself where it can not be copied."""
    return _twin(error, {})


def _twin(error: BaseException, known: dict[int, BaseException]) -> BaseException:
    if id(error) in known:
        return known[id(error)]
    # Until it is known better, also for a circle of errors.
    known[id(error)] = error
    twin: BaseException
    try:
        if isinstance(error, BaseExceptionGroup):
            twin = error.derive([_twin(each, known) for each in error.exceptions])
            vars(twin).update(vars(error))
        else:
            twin = _copy(error)
    except Exception:  # Its class does not have it.
        return error
    if twin is error or type(twin) is not type(error):
        return error
    known[id(error)] = twin
    _with_traceback(twin, None)
    fields = vars(twin)
    for name, value in fields.items():
        if isinstance(value, BaseException):
            fields[name] = _twin(value, known)
    trace = of_program(error.__traceback__)
    # A list of its own: the copy shares its fields.
    notes = [*fields.get("__notes__", ())]
    if trace is not None:
        notes.append(_text(trace))
    if notes:
        fields["__notes__"] = notes
    _CONTEXT.__set__(twin, None)
    cause = error.__cause__
    _CAUSE.__set__(twin, None if cause is None else _twin(cause, known))
    return twin


def _copy(error: BaseException) -> BaseException:
    try:
        return copy.copy(error)
    except Exception:
        # Frozen, or made from other arguments than it has.
        twin = type(error).__new__(type(error), *error.args)
        vars(twin).update(vars(error))
        return twin


def _text(trace: TracebackType) -> str:
    return "Raised in (most recent call last):\n" + "".join(traceback.format_tb(trace)).rstrip()


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _clear_ours(trace: TracebackType | None) -> None:
    """What the program's function called of ours is over: its arguments are not kept."""
    while trace is not None:
        if _is_ours(trace):
            with suppress(RuntimeError):  # It runs yet.
                trace.tb_frame.clear()
        trace = trace.tb_next
