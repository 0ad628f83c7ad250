"""The public names: each has one place of export and a docstring.

A name is added here on purpose, in the commit that makes it public. It is removed only by a
decision that cudasync/DESIGN.md records.
"""

from __future__ import annotations

import inspect
import types

import pytest

import cudasync as cs
import cudasync.testing

PUBLIC = {
    # The driver layer.
    "ANY", "Device", "DeviceBuffer", "Event", "Graph", "GraphExec", "GraphNode", "LEGACY_STREAM",
    "PER_THREAD_STREAM", "PinnedBuffer", "Stream", "current_device", "current_stream",
    "device_count", "launch", "memcpy_async", "memset_async", "pinned_empty",
    # The engine.
    "Engine", "Op", "Statistics", "TraceEntry", "Var", "engine", "use", "waitall",
    # Observation.
    "Profile", "annotate", "dump", "live", "profile", "progress",
    # Graphs.
    "Executable", "Node", "RecordedGraph", "graph", "graph_function",
    # Arrays and kernels.
    "Array", "BoundKernel", "In", "InOut", "Kernel", "MemoryStats", "Module", "Out",
    "PreparedLaunch", "array", "copy", "elementwise", "empty", "empty_cache", "empty_like",
    "from_dlpack", "hand_over", "memory_stats", "strided", "take_over", "zeros", "random", "xp",
    "data", "distributed", "kvstore", "parallel", "zeros_like",
    # Errors.
    "ClosedError", "CompileError", "CudaError", "CudasyncError", "DeadlockError", "OpError",
    "OutOfMemoryError", "PtxError", "RecordingError", "UnhandledFailureWarning", "UnpicklableCause",
}  # fmt: skip

TESTING = {
    "Access", "Exploration", "Finding", "HostLatch", "Latch", "check", "explore", "host_access",
    "LaunchShape", "Program", "ProgramStep", "arrays", "check_against_serial", "dags", "launches",
    "programs", "run_seeds",
}  # fmt: skip

DOORS = [(cs, PUBLIC), (cudasync.testing, TESTING)]


@pytest.mark.parametrize(("door", "names"), DOORS, ids=["cudasync", "cudasync.testing"])
def test_the_door_lets_out_these_names_and_no_other(door, names):
    assert set(door.__all__) == names
    assert len(door.__all__) == len(names)
    visible = {
        name
        for name in dir(door)
        for value in (getattr(door, name),)
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name not in {"annotations", "TYPE_CHECKING"}
    }
    assert visible == names - ROOMS


ROOMS = {"data", "distributed", "kvstore", "parallel", "random", "xp"}


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_lists_its_public_names_and_no_module(room):
    assert dir(getattr(cs, room)) == sorted(getattr(cs, room).__all__)


@pytest.mark.parametrize(
    ("name", "instead"), [("ones", r"xp\.ones"), ("synchronize", r"cs\.waitall")]
)
def test_the_door_says_what_to_write_for_a_name_that_it_lacks(name, instead):
    with pytest.raises(AttributeError, match=f"no attribute '{name}': write {instead}"):
        getattr(cs, name)


def test_names_that_the_door_leads_to_the_namespace_are_there():
    assert set(cs.xp.__all__) >= cs._OF_XP


def test_each_name_and_each_thing_has_one_door():
    assert not PUBLIC & TESTING
    things = [(id(getattr(door, name)), name) for door, names in DOORS for name in names]
    assert len({thing for thing, _ in things}) == len(things)


def public_things():
    for door, names in DOORS:
        for name in sorted(names):
            yield f"{door.__name__}.{name}", getattr(door, name)


def methods(thing):
    """The public methods that a class itself defines. A property may lack a docstring."""
    for name, value in vars(thing).items():
        if not name.startswith("_") and isinstance(value, types.FunctionType | classmethod):
            yield name, value


def test_every_public_name_has_a_docstring_of_its_own():
    bare = []
    for name, thing in public_things():
        own = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
        if not own.__dict__.get("__doc__", None) and not (inspect.isroutine(own) and own.__doc__):
            bare.append(name)
        if inspect.isclass(thing):
            bare += [f"{name}.{member}" for member, value in methods(thing) if not value.__doc__]
    assert not bare


def test_a_docstring_opens_with_a_plain_sentence():
    """The first paragraph ends as a sentence does, or with the name of its CUDA function."""
    wrong = []
    for name, thing in public_things():
        first = (inspect.getdoc(thing) or "").partition("\n\n")[0]
        if not first.rstrip().endswith((".", ":", ")")):
            wrong.append(name)
    assert not wrong
