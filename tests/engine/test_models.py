"""Every interleaving of small programs over the engine's parts, by model checking.

The files in `models/` are explored in other processes, under frontrun's command. The end of the
test run shows the number of interleavings.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from types import FunctionType

import pytest
from helpers.concurrency.model_checking import Exploration, Explored, Length, explored, models_of
from hypothesis import settings

from cudasync import atomic

FILES = sorted((Path(__file__).parent / "models").glob("*.py"))
MODELS = {
    f"{path.stem}-{name}": (path, name, model)
    for path in FILES
    for name, model in models_of(path).items()
}
# A process tells results by the names of models alone.
assert len({name for _, name, _ in MODELS.values()}) == len(MODELS)
RIGHT = [key for key, (_, _, model) in MODELS.items() if not model.planted]
PLANTED = [key for key, (_, _, model) in MODELS.items() if model.planted]


# Parts of the engine that need their own model, as does each operation of `cudasync.atomic`.
HANDSHAKES = {
    "record.of",
    "record.finish",
    "fences.issue",
    "histories.MADE",
    "histories.let_rest",
    "permits.take",
    "permits.give_back",
    "pool.ring_for_a_sleeper",
    "pool.take_ring",
    "run.join",
    "run.piece",
}


@cache
def explore(length: Length, names: frozenset[str]) -> dict[Path, Exploration]:
    """The exploration of these models, by file; two processes share the files of a long one."""
    parts = [FILES] if length is Length.SHORT else [[path] for path in FILES]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(partial(explored, length=length, names=names), parts))
    return {path: each for part, each in zip(parts, found, strict=True) for path in part}


def length_of(request: pytest.FixtureRequest) -> Length:
    """The length, by --run-slow or else by the Hypothesis profile, as for the properties."""
    if request.config.getoption("--run-slow"):
        return Length.LONG
    is_short = settings.get_current_profile_name() in ("plain", "dev")
    return Length.SHORT if is_short else Length.USUAL


def names_of_this_run(request: pytest.FixtureRequest) -> frozenset[str]:
    """The models whose results this run looks at. A plain run has a few of the right ones."""
    cases = [each for each in request.session.items if each.path == request.path]
    return frozenset(
        MODELS[each.callspec.params["key"]][1] for each in cases if hasattr(each, "callspec")
    )


def result(key: str, request: pytest.FixtureRequest) -> Explored:
    path, name, _ = MODELS[key]
    exploration = explore(length_of(request), names_of_this_run(request))[path]
    assert name in exploration.results, f"{key} was not explored:\n{exploration.said}"
    found = exploration.results[name]
    request.node.user_properties.append(("explored", f"{path.stem} {found}"))
    return found


@pytest.mark.parametrize("key", RIGHT)
def test_no_interleaving_breaks_it(key, request):
    found = result(key, request)
    assert found.counterexample is None, f"{key}\n{found.counterexample}"
    assert found.interleavings > 1, "nothing was explored"
    assert found.drawn > 1


@pytest.mark.parametrize("key", PLANTED)
def test_a_planted_bug_is_found(key, request):
    found = result(key, request)
    assert found.counterexample is not None, f"not found: {MODELS[key][2].planted}"
    assert found.interleavings > 0


def test_each_atomic_operation_has_a_planted_bug():
    """Each definition of `cudasync.atomic` has a check, and each check has a planted bug."""
    blocks = {
        name
        for name, each in vars(atomic).items()
        if isinstance(each, (type, FunctionType))
        and each.__module__ == atomic.__name__
        and not name.startswith("_")
    }
    assert blocks | HANDSHAKES == {MODELS[key][2].block for key in RIGHT} - {""}
    assert blocks | HANDSHAKES == {MODELS[key][2].block for key in PLANTED} - {""}
