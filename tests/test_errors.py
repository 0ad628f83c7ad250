"""Every exception of cudasync, also a new one, survives pickle and copy with its fields."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest

import cudasync as cs
from cudasync import command, demo, errors
from cudasync.softgpu.semantics import unsupported_instructions

# A value for a parameter of each type.
SAMPLES = {
    "int": 700,
    "str": "words: %s {}",
    "bool": True,
    "BaseException": ValueError("the cause", 7),
    "Sequence[str]": ("one", "two"),
}


def exceptions_of(*modules):
    """All exception classes that these modules, or the modules of these packages, define."""
    found = set()
    for module in modules:
        inside = pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}.")
        for name in (module.__name__, *(each.name for each in inside)):
            for thing in vars(importlib.import_module(name)).values():
                if inspect.isclass(thing) and issubclass(thing, BaseException):
                    found.add(thing)
    return sorted(
        (each for each in found if each.__module__.startswith("cudasync")),
        key=lambda each: each.__name__,
    )


# The exceptions that a user's program can meet. Those of the software GPU stay behind its C calls.
EVERY = exceptions_of(errors, command, demo, unsupported_instructions)


def sample(kind):
    """An exception of this kind with a value in each field."""
    if kind.__init__ is Exception.__init__:
        return kind("words", 7)
    args, fields = [], {}
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = SAMPLES[parameter.annotation]
        if parameter.kind is parameter.KEYWORD_ONLY:
            fields[parameter.name] = value
        else:
            args.append(value)
    return kind(*args, **fields) if args else kind("words", 7)


def told(error):
    """All visible properties of an exception, except its traceback."""
    if not isinstance(error, BaseException):
        return error
    fields = {name: told(value) for name, value in vars(error).items()}
    return type(error), str(error), error.args, fields, told(error.__cause__)


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda error, n=protocol: pickle.loads(pickle.dumps(error, n))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


def test_those_that_are_public_are_among_them():
    public = {getattr(cs, name) for name in cs.__all__}
    public = {each for each in public if inspect.isclass(each) and issubclass(each, BaseException)}
    assert len(public) > 5
    assert public <= set(EVERY)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_it_comes_through_with_its_fields(kind, way):
    error = sample(kind)
    error.add_note("a note")
    back = way(error)
    assert back is not error
    assert told(back) == told(error)
    assert back.__suppress_context__ == error.__suppress_context__


class WithAConstructor(cs.CudasyncError):
    """A user's error whose constructor takes other arguments than `args`."""

    def __init__(self, number: int, *, unit: str) -> None:
        self.number = number
        super().__init__(f"{number} {unit}")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_one_that_is_derived_needs_nothing_of_its_own(way):
    assert told(way(WithAConstructor(3, unit="s"))) == told(WithAConstructor(3, unit="s"))


class Plain(Exception):
    """The same error without our base class: the checker must find it."""

    def __init__(self, number: int, *, unit: str) -> None:
        self.number = number
        super().__init__(f"{number} {unit}")


def test_the_checker_finds_one_that_does_not_come_through():
    with pytest.raises(TypeError):
        WAYS["pickle 4"](Plain(3, unit="s"))
    lost = copy.copy(sample(errors.CudaError))
    lost.call = ""
    assert told(lost) != told(sample(errors.CudaError))


class Mute(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise KeyError("no text")


class Recalcitrant(Exception):
    """An exception that can be pickled, but not restored."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)


def local_error():
    class LocalError(Exception):
        pass

    return LocalError("of this function")


# Causes that pickle cannot carry, and their descriptions.
AWKWARD = {
    "a lock": (lambda: ValueError(threading.Lock()), "ValueError", "lock"),
    "a class of a function": (local_error, "LocalError", "of this function"),
    "a constructor of its own": (lambda: Recalcitrant(1, 2), "Recalcitrant", "1"),
    "no text, and a lock": (
        lambda: Mute(threading.Lock()), "Mute", "its text cannot be read: KeyError",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "words"), AWKWARD.values(), ids=AWKWARD)
def test_a_cause_that_can_not_be_pickled_is_told_of(make, kind, words):
    cause = make()
    error = cs.OpError("load", "file.py:3", cause)
    assert copy.copy(error).cause is copy.deepcopy(error).cause is cause
    back = pickle.loads(pickle.dumps(error))
    assert (back.op, back.push_site, str(back)) == (error.op, error.push_site, str(error))
    assert isinstance(back.cause, cs.UnpicklableCause)
    assert back.__cause__ is back.cause
    assert back.cause.kind.endswith(kind)
    assert words in back.cause.message
    assert told(pickle.loads(pickle.dumps(back))) == told(back)


def test_a_chain_of_causes_is_tried_once_each():
    tries = []

    class Counted(Exception):
        def __reduce__(self):
            tries.append(1)
            return ValueError, ("counted",)

    error = cs.OpError("op 0", "file.py:0", Counted())
    for number in range(1, 20):
        error = cs.OpError(f"op {number}", "file.py:0", error)
    back = pickle.loads(pickle.dumps(error))
    # One call tries the pickling, and one does it.
    assert len(tries) == 2
    for _ in range(19):
        back = back.cause
    assert isinstance(back.cause, ValueError)


def test_a_cause_that_refers_back_ends():
    cause = ValueError("in a circle")
    error = cs.OpError("load", "file.py:3", cause)
    cause.args = ("in a circle", error)
    back = pickle.loads(pickle.dumps(error))
    assert isinstance(back.cause, ValueError)
    assert back.cause.args[1] is back


def failing_op(unpicklable: bool) -> object:
    def fail() -> None:
        raise ValueError(threading.Lock() if unpicklable else "planned")

    with cs.Engine("serial") as engine:
        return engine.push(fail, name="bad").result()


def test_a_pool_of_processes_is_told_and_goes_on():
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        for unpicklable, cause in ((False, ValueError), (True, cs.UnpicklableCause)):
            with pytest.raises(cs.OpError, match="'bad'") as caught:
                pool.submit(failing_op, unpicklable).result(60)
            assert isinstance(caught.value.cause, cause)
        assert pool.submit(pow, 2, 3).result(60) == 8
