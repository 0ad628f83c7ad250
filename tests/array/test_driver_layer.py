"""The driver layer accepts an engine's array only where its use is ordered."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirStream, is_held_up, pinned
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.array.interchange import stream_ownership
from cudasync.array.interchange.stream_ownership import Handed
from cudasync.array.kernels.bundled_ptx import kernel_file
from cudasync.testing import Latch

REFUSAL = r"kernel\[grid, block\].*cs\.hand_over\(x, to=stream\)"


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def fill():
    return cs.Module.from_file(kernel_file("fill")).kernel("fill_u32")


def uses(fill):
    """Each way to use an array `x` through the driver layer, on a stream."""
    host = pinned([7] * 4, np.uint32)
    buffer = cs.DeviceBuffer(16)
    shape = {"grid": 1, "block": 4}

    def args(x):
        return (np.uint32(7), x, np.uint32(4))

    return {
        "launch": lambda x, stream: cs.launch(fill, **shape, args=args(x), stream=stream),
        "launch of packed arguments": lambda x, stream: cs.launch(
            fill, **shape, args=fill.pack(args(x)), stream=stream
        ),
        "prepared launch": lambda x, stream: fill.prepare(**shape, args=args(x)).on(stream),
        "narrowed": lambda x, stream: fill.prepare(**shape, args=args(cs.Out(x))).on(stream),
        "memset": lambda x, stream: cs.memset_async(x, np.uint32(7), stream=stream),
        "copy in": lambda x, stream: cs.memcpy_async(x, host, stream=stream),
        "copy out": lambda x, stream: cs.memcpy_async(host, x, stream=stream),
        "copy to a buffer": lambda x, stream: cs.memcpy_async(buffer, x, stream=stream),
    }


WAYS = list(uses(None))


@pytest.mark.parametrize("way", WAYS)
def test_an_array_of_the_engine_is_refused_past_it(engine, fill, way):
    x, stream = cs.zeros(4, np.uint32), cs.Stream()
    use = uses(fill)[way]
    for on in (stream, None, TheirStream()):
        with pytest.raises(ValueError, match=REFUSAL):
            use(x, on)
    stream.synchronize()
    assert x.numpy().tolist() == [0] * 4


@pytest.mark.parametrize("way", WAYS)
def test_after_a_hand_over_it_is_taken_on_that_stream_until_it_is_given_back(engine, fill, way):
    x, mine, another = cs.zeros(4, np.uint32), cs.Stream(), cs.Stream()
    use = uses(fill)[way]
    cs.hand_over(x, to=mine)
    use(x, mine)
    with mine:
        use(x, None)
    with pytest.raises(ValueError, match=REFUSAL):
        use(x, another)
    cs.take_over(x, after=mine)
    assert set(x.numpy().tolist()) <= {0, 7}
    with pytest.raises(ValueError, match=REFUSAL):
        use(x, mine)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["async", "serial"])
def test_in_an_op_it_is_the_op_that_is_ordered(fill, way, mode):
    with cs.Engine(mode) as engine:
        x = cs.zeros(4, np.uint32)
        use = uses(fill)[way]
        engine.push(lambda stream: use(x, stream), reads=[x], writes=[x], device=0).wait()

        def by_hand():
            with cs.Stream() as stream:
                use(x, stream)
                stream.synchronize()

        engine.push(by_hand, reads=[x], writes=[x]).wait()
        assert set(x.numpy().tolist()) <= {0, 7}


def test_both_ways_out_that_the_refusal_names_keep_the_order(engine, fill):
    """The array's writer is blocked, so each op behind it, by either way, is blocked too."""
    with Latch() as latch:
        x, stream = cs.zeros(4, np.uint32), cs.Stream()
        engine.push(latch.hold, writes=[x], device=0)
        cs.hand_over(x, to=stream)
        cs.launch(fill, grid=1, block=4, args=(np.uint32(3), x, np.uint32(4)), stream=stream)
        cs.take_over(x, after=stream)
        op = fill[1, 2](np.uint32(4), x, np.uint32(2))
        assert is_held_up(op.done)
        latch.release()
        assert x.numpy().tolist() == [4, 4, 3, 3]


def test_an_array_without_elements_is_nobodys(engine, fill):
    x = cs.zeros(0, np.uint32)
    cs.memset_async(x, 1)
    cs.launch(fill, grid=1, block=4, args=(np.uint32(3), x, np.uint32(0)))
    cs.Device(0).synchronize()


def test_a_part_that_was_given_back_is_the_engines(engine):
    x, stream = cs.zeros(8, np.uint8), cs.Stream()
    cs.hand_over(x, to=stream)
    cs.take_over(x[2:4], after=stream)
    cs.memset_async(x[:2], 1, stream=stream)
    cs.memset_async(x[4:], 1, stream=stream)
    for part in (x, x[1:3], x[3:5]):
        with pytest.raises(ValueError, match=REFUSAL):
            cs.memset_async(part, 1, stream=stream)
    cs.take_over(x, after=stream)
    assert x.numpy().tolist() == [1, 1, 0, 0, 1, 1, 1, 1]


def test_what_an_interface_handed_over_counts(engine):
    x = cs.zeros(4, np.uint8)
    stream = cs.Stream.from_handle(x.__cuda_array_interface__["stream"])
    cs.memset_async(x, 1, stream=stream)
    cs.take_over(x, after=stream)
    assert x.numpy().tolist() == [1] * 4


def test_a_new_array_at_an_old_address_was_handed_to_nobody(engine):
    stream = cs.Stream()
    for _ in range(8):
        x = cs.zeros(4, np.uint8)
        with pytest.raises(ValueError, match=REFUSAL):
            cs.memset_async(x, 1, stream=stream)
        cs.hand_over(x, to=stream)
        stream.synchronize()
        del x
        engine.waitall()


PARTS = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted).map(tuple)


@given(st.lists(st.tuples(st.booleans(), PARTS, st.integers(0, 1))), PARTS, st.integers(0, 1))
def test_what_was_handed_is_the_bytes_that_were_and_not_taken_since(steps, asked, stream):
    whole, plain = Handed(), [set(), set()]
    for is_handed, (start, end), to in steps:
        if start == end:
            continue
        if is_handed:
            whole.add(start, end, to)
            plain[to] |= set(range(start, end))
        else:
            whole.remove(start, end)
            plain = [each - set(range(start, end)) for each in plain]
    if asked[0] < asked[1]:
        assert whole.covers(*asked, stream) is (set(range(*asked)) <= plain[stream])


def test_the_tests_would_notice_if_nothing_was_ever_given_back(engine, monkeypatch):
    monkeypatch.setattr(stream_ownership.Handed, "remove", lambda self, start, end: None)
    x, stream = cs.zeros(4, np.uint8), cs.Stream()
    cs.hand_over(x, to=stream)
    cs.take_over(x, after=stream)
    cs.memset_async(x, 1, stream=stream)
    stream.synchronize()
