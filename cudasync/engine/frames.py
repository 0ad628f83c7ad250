"""Floor 2. The frames of an op's exception: its traceback keeps the program's frames, not ours.

A traceback refers to frames, and a frame to its locals and its callers, up to the outermost. So a
failed launch would keep its arguments, and all locals of the callers that pushed it or waited for
it. A failure may live as long as the process, since it poisons the op's data.

Nothing here touches a frame of the program: a post-mortem debugger shows its locals.
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

# The descriptors of BaseException: a class may forbid writes to its attributes.
_CONTEXT: Any = BaseException.__dict__["__context__"]
_CAUSE: Any = BaseException.__dict__["__cause__"]
_with_traceback = BaseException.with_traceback
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def of_program(trace: TracebackType | None) -> TracebackType | None:
    """`trace` from the first frame outside this package; None if there is none."""
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


def let_go_of_ours(error: BaseException) -> None:
    """Let `error`, its causes and contexts refer to no locals of this package's frames.

    If all frames are this package's, the traceback and the implicit context are dropped. For an
    error of a foreign class the text of the traceback is kept. Raises nothing, whatever the
    program's classes do: exceptions may be frozen.
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
    """A copy of `error`, and of the errors that it refers to, with the text of its traceback as a
    note. The error itself if it cannot be copied."""
    return _twin(error, {})


def _twin(error: BaseException, known: dict[int, BaseException]) -> BaseException:
    if id(error) in known:
        return known[id(error)]
    # Provisional, also for a cycle of errors.
    known[id(error)] = error
    twin: BaseException
    try:
        if isinstance(error, BaseExceptionGroup):
            twin = error.derive([_twin(each, known) for each in error.exceptions])
            vars(twin).update(vars(error))
        else:
            twin = _copy(error)
    except Exception:  # Its class does not allow a copy.
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
    # A new list: the copy shares the error's fields.
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
        # Frozen, or `args` differ from the constructor's arguments.
        twin = type(error).__new__(type(error), *error.args)
        vars(twin).update(vars(error))
        return twin


def _text(trace: TracebackType) -> str:
    return "Raised in (most recent call last):\n" + "".join(traceback.format_tb(trace)).rstrip()


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _clear_ours(trace: TracebackType | None) -> None:
    """Clear this package's finished frames, so that their arguments are not kept."""
    while trace is not None:
        if _is_ours(trace):
            with suppress(RuntimeError):  # It still runs.
                trace.tb_frame.clear()
        trace = trace.tb_next
