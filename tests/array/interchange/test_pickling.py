"""Objects that belong to one process are not pickled by accident: the error says what to send."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import cudasync as cs
from cudasync.array.kernels.bundled_ptx import kernel_file
from cudasync.driver.ownership import unpicklable


def things():
    """One object of each public type that belongs to its process, and the remedy in its error."""
    module = cs.Module.from_file(kernel_file("fill"))
    kernel = module.kernel("fill_u32")
    engine = cs.engine()
    buffer = cs.DeviceBuffer(4)
    args = (np.uint32(1), buffer, np.uint32(1))
    yield buffer, "memcpy_async"
    yield buffer.view(1, np.float32), "memcpy_async"
    yield cs.PinnedBuffer(4), "view"
    yield cs.Stream(), "make a Stream"
    yield cs.LEGACY_STREAM, "make a Stream"
    yield cs.Event(), "make an Event"
    yield module, "send the PTX"
    yield kernel, "send the PTX"
    yield kernel[1, 1], "send the PTX"
    yield kernel.pack(args), "pack them there"
    yield kernel.prepare(grid=1, args=args), "prepare the launch there"
    yield engine, "make an Engine"
    yield engine.push(int), r"result\(\)"
    yield engine.push(lambda stream: None, device=0), r"result\(\)"
    yield cs.Var("v"), "make a Var"
    yield cs.Profile(), r"save\(\)"
    driver_graph = cs.Graph()
    yield driver_graph, "make the graph there"
    yield driver_graph.add_empty(), "make the graph there"
    yield driver_graph.instantiate(), "make the graph there"
    with cs.graph() as recorded:
        yield cs.engine().push(int), "record the graph there"
    yield recorded, "record it there"
    yield recorded.instantiate(), "record and instantiate"


@pytest.mark.parametrize(
    "send", [pickle.dumps, lambda x: pickle.dumps(x, 0), copy.copy, copy.deepcopy],
    ids=["pickle", "pickle 0", "copy", "deepcopy"],
)  # fmt: skip
def test_nothing_that_belongs_to_a_process_is_pickled_or_copied(send):
    for thing, words in things():
        with pytest.raises(TypeError, match=words):
            send(thing)
        with pytest.raises(TypeError, match=words):
            send([{"deep": thing}, cs.In(thing)] if send is not copy.copy else thing)


def test_every_public_class_with_a_handle_is_among_them():
    """Each public class either raises this error or has no handle that only this process knows."""
    told = {type(thing) for thing, _ in things()}
    plain = {cs.Array, cs.Device, cs.In, cs.Out, cs.InOut, cs.Statistics, cs.TraceEntry}
    plain |= {cs.MemoryStats}
    for name in cs.__all__:
        public = getattr(cs, name)
        if isinstance(public, type) and not issubclass(public, Exception) and public not in plain:
            assert any(issubclass(each, public) for each in told), name


@pytest.mark.parametrize(
    "sent", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)  # fmt: skip
def test_an_array_is_sent_by_value(sent):
    x = cs.array(np.arange(6, dtype=np.int16).reshape(2, 3))
    for each in (x, x[:, ::-2], x[0, 0]):
        found = sent(each)
        assert type(found) is cs.Array
        assert found.dtype == np.int16
        assert found.device is x.device
        assert found.numpy().tolist() == each.numpy().tolist()
        assert found.ptr != each.ptr


def test_an_array_goes_through_a_pool_of_processes():
    x = cs.array([1.0, 2.0])
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(np.asarray, x).result(timeout=60).tolist() == [1, 2]


def test_what_holds_no_handle_is_sent_as_always():
    host = cs.pinned_empty(4, np.int32)
    host[:] = range(4)
    assert pickle.loads(pickle.dumps(host)).tolist() == [0, 1, 2, 3]
    assert pickle.loads(pickle.dumps(cs.Device(0))) is cs.Device(0)


def test_a_class_that_was_forgotten_would_be_noticed():
    class Forgotten:
        __slots__ = ("ptr",)

    forgotten = Forgotten()
    forgotten.ptr = 4096
    assert copy.copy(forgotten).ptr == 4096
    told = unpicklable.unpicklable("do without")(Forgotten)
    with pytest.raises(TypeError, match="do without"):
        copy.copy(told())
