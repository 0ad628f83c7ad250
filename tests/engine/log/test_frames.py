"""A kept exception keeps its text without its frames, whatever its type."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from cudasync.engine.frames import let_go_of_ours, without_frames
from cudasync.errors import OpError


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class OneAndOnly(Exception):
    def __copy__(self):
        return self


class WithTwoArguments(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def caught(error, cause=None):
    """`error` as a handler catches it, with a traceback."""
    with pytest.raises(type(error)) as found:
        raise error from cause
    return found.value


def is_without(error):
    """True if neither the error nor any exception that it refers to has frames."""
    inner = [error.__cause__, error.__context__, *vars(error).values()]
    inner += getattr(error, "exceptions", ())
    return error.__traceback__ is None and all(
        is_without(each) for each in inner if isinstance(each, BaseException)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: caught(ValueError("planned")),
        lambda: caught(Frozen(7)),
        lambda: caught(KeyError("x"), caught(Frozen(1))),
        lambda: caught(FileNotFoundError(2, "no such file", "there")),
        lambda: caught(KeyboardInterrupt()),
        lambda: caught(WithTwoArguments(1, 2)),
        lambda: caught(OpError("scale", "here.py:1", caught(ValueError("planned")))),
        lambda: caught(ExceptionGroup("two", [caught(ValueError("a")), caught(Frozen(2))])),
    ],
)
def test_a_copy_says_the_same_and_tells_where_it_was_raised(make):
    error = make()
    twin = without_frames(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert repr(twin.args) == repr(error.args)
    assert is_without(twin)
    assert error.__traceback__ is not None
    assert "raise error from cause" in twin.__notes__[-1]
    assert not hasattr(error, "__notes__"), "the note is the copy's alone"
    assert type(twin.__cause__) is type(error.__cause__)
    assert without_frames(twin).__notes__ == twin.__notes__


def test_what_can_not_be_copied_stays_as_it_is():
    error = caught(OneAndOnly())
    assert without_frames(error) is error


def test_a_circle_of_errors_is_gone_through_once():
    first, second = caught(ValueError("first")), caught(KeyError("second"))
    first.__cause__, second.__cause__ = second, first
    twin = without_frames(first)
    assert twin.__traceback__ is twin.__cause__.__traceback__ is None
    assert "first" in str(pickle.loads(pickle.dumps(twin)))
    let_go_of_ours(first)


@pytest.mark.parametrize("error", [ValueError("planned"), Frozen(7)])
def test_the_frames_of_the_program_stay_as_they_are(error):
    found = caught(error)
    trace = found.__traceback__
    let_go_of_ours(found)
    assert found.__traceback__ is trace
    assert trace.tb_frame.f_locals["error"] is error
