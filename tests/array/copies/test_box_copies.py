"""Copies of rows with gaps, in one driver call where the driver has such a call."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.array.copies import box_copies
from cudasync.array.copies.box_copies import box_between
from cudasync.driver.memory.box_copies import Box, memcpy_box_async

LAST = cs.device_count() - 1
SHAPE = (6, 8, 24)
PLACES = ("pageable", "pinned", "device 0", "device 1")


@st.composite
def views(draw):
    """An index and an order of axes: a view of an array of SHAPE, some reversed or transposed."""
    picked = []
    for length in SHAPE:
        start = draw(st.integers(0, length // 2))
        step = draw(st.sampled_from([1, 1, 1, 2, -1]))
        picked.append(slice(None, None, -1) if step < 0 else slice(start, None, step))
    order = draw(st.sampled_from([(0, 1, 2)] * 4 + [(1, 0, 2), (0, 2, 1)]))
    return tuple(picked), order


def viewed(array, view, shape=None):
    index, order = view
    found = array[index]
    if isinstance(found, np.ndarray):
        found = found.transpose(order)
    else:
        found = cs.xp.permute_dims(found, order)
    return found if shape is None else found[tuple(slice(n) for n in shape)]


def common(one, other):
    return tuple(map(min, zip(one.shape, other.shape, strict=True)))


def at(place, host):
    """A copy of `host` at this place."""
    if place.startswith("device"):
        return cs.array(host, device=int(place[-1]) % cs.device_count())
    made = np.empty_like(host) if place == "pageable" else cs.pinned_empty(host.shape, host.dtype)
    made[...] = host
    return made


def values(dtype, start=0):
    count = int(np.prod(SHAPE))
    return (np.arange(count) + start).astype(dtype).reshape(SHAPE)


def bytes_of(array):
    """The addresses of the bytes of each element, in order."""
    start = array.__array_interface__["data"][0]
    first = np.zeros(array.shape, np.int64) + start
    for axis, (length, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        along = [1] * array.ndim
        along[axis] = length
        first += (np.arange(length) * stride).reshape(along)
    return (first[..., None] + np.arange(array.itemsize)).reshape(-1)


def pairs_of(box, target, source):
    """The bytes that the box copies, as pairs of source and target address."""
    z, y, x = np.ogrid[: box.slices, : box.rows, : box.width]
    to = target + (z * box.target_height + y) * box.target_pitch + x
    of = source + (z * box.source_height + y) * box.source_pitch + x
    return set(zip(of.reshape(-1).tolist(), to.reshape(-1).tolist(), strict=True))


def wrong_box(one, other, dtype):
    """A box that copies other bytes than NumPy; None if the box is right, or if there is none."""
    to, of = np.empty(SHAPE, dtype), np.empty(SHAPE, dtype)
    shape = common(viewed(to, one), viewed(of, other))
    to, of = viewed(to, one, shape), viewed(of, other, shape)
    box = box_copies.box_between((shape, to.strides, to.itemsize), (shape, of.strides, of.itemsize))
    if box is None:
        return None
    left, right = bytes_of(to), bytes_of(of)
    expected = set(zip(right.tolist(), left.tolist(), strict=True))
    return None if pairs_of(box, left.min(), right.min()) == expected else box


@settings(max_examples=100)
@given(views(), views(), st.sampled_from(["u1", "i4", "c16"]))
def test_a_box_is_the_bytes_that_numpy_would_copy(one, other, dtype):
    assert wrong_box(one, other, dtype) is None


BUGS = {
    "slices one behind the other": lambda box: box._replace(source_height=box.rows),
    "the pitch of the other side": lambda box: box._replace(source_pitch=box.target_pitch),
    "a row is left out": lambda box: box._replace(rows=max(1, box.rows - 1)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, monkeypatch):
    def planted(target, source):
        box = box_between(target, source)
        return box and BUGS[bug](box)

    monkeypatch.setattr(box_copies, "box_between", planted)
    found = []

    @settings(max_examples=300, derandomize=True, database=None, phases=[Phase.generate])
    @given(views(), views())
    def search(one, other):
        if not found and wrong_box(one, other, "i4"):
            found.append((one, other))

    search()
    assert found


@given(
    st.sampled_from(PLACES),
    st.sampled_from(PLACES),
    views(),
    views(),
    st.sampled_from(["u1", "i4"]),
    st.sampled_from(["pushed", "recorded", "within one array"]),
)
def test_any_box_is_copied_as_numpy_would(to, of, one, other, dtype, how):
    hosts = values(dtype), values(dtype, 77)
    shape = common(viewed(hosts[0], one), viewed(hosts[1], other))
    with cs.Engine() as engine:
        target, source = at(to, hosts[0]), at(of, hosts[1])
        if how == "within one array":
            source, hosts = target, (hosts[0], hosts[0])
        cs.waitall()
        if how == "recorded":
            with cs.graph() as g:
                cs.copy(viewed(target, one, shape), viewed(source, other, shape))
            g.instantiate().launch()
        else:
            cs.copy(viewed(target, one, shape), viewed(source, other, shape))
        viewed(hosts[0], one, shape)[...] = viewed(hosts[1], other, shape).copy()
        engine.waitall()
        found = target.numpy() if isinstance(target, cs.Array) else target
        # Bytes in the gaps stay unchanged.
        assert found.tolist() == hosts[0].tolist()


def made(place, shape, dtype=np.float32):
    if place == "device":
        return cs.empty(shape, dtype)
    if place == "other":
        return cs.empty(shape, dtype, device=LAST)
    return cs.pinned_empty(shape, dtype) if place == "pinned" else np.empty(shape, dtype)


BOX, LINE, FROM_HOST = "cuMemcpy3DAsync", "cuMemcpyDtoDAsync", "cuMemcpyHtoDAsync"
PEER = "cuMemcpy3DPeerAsync" if LAST else BOX


@pytest.mark.parametrize(
    ("to", "of", "call"),
    [
        ("device", "device", BOX),
        ("device", "pinned", BOX),
        ("device", "pageable", BOX),
        ("pinned", "device", BOX),
        ("pageable", "device", BOX),
        ("other", "device", PEER),
    ],
)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x[1, :, 2:10], lambda x: x[2, :, 3:11]),
        (lambda x: x[1:3, :4, 2:10], lambda x: x[::2, 1:5, 3:11]),
        (lambda x: x[1:3], lambda x: x[::2]),
        (lambda x: x[::-1, :, :8], lambda x: x[::-1, :, 8:16]),
    ],
    ids=["rows", "slices", "long rows", "both backwards"],
)
def test_it_is_one_call_of_the_driver(to, of, call, one, other):
    target, source = made(to, (4, 8, 16)), made(of, (4, 8, 16))
    cs.waitall()
    with counted_calls() as calls:
        cs.copy(one(target), other(source)).wait()
    # The contents of pageable memory are set aside without their gaps.
    assert moved(calls) in ([call], [FROM_HOST] if of == "pageable" else [call])


def moved(calls):
    return sorted(name for name in calls.elements() if "Memcpy" in name or "Launch" in name)


def test_a_read_only_view_is_a_source():
    source = np.arange(64, dtype=np.int32).reshape(8, 8)
    source.flags.writeable = False
    target = cs.zeros((8, 4), np.int32)
    cs.waitall()
    with counted_calls() as calls:
        cs.copy(target, source[:, 2:6]).wait()
    assert moved(calls) == [FROM_HOST]
    assert target.numpy().tolist() == source[:, 2:6].tolist()
    with pytest.raises(ValueError, match="read-only"):
        cs.copy(source[:, 2:6], target)


def test_both_in_another_order_without_gaps_is_a_plain_copy():
    target, source = cs.zeros((4, 8)), cs.array(np.arange(32, dtype=np.float32).reshape(4, 8))
    cs.waitall()
    with counted_calls() as calls:
        cs.copy(target.T, source.T).wait()
    assert moved(calls) == [LINE]
    assert target.numpy().tolist() == source.numpy().tolist()


def test_one_half_of_the_rows_goes_to_the_other_in_one_call():
    host = np.arange(64, dtype=np.int32).reshape(8, 8)
    x = cs.array(host)
    cs.waitall()
    with counted_calls() as calls:
        cs.copy(x[:, 4:], x[:, :4]).wait()
    assert moved(calls) == [BOX]
    assert x.numpy().tolist() == np.hstack([host[:, :4]] * 2).tolist()


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ((slice(None), slice(4)), (slice(None), slice(2, 6))),
        ((slice(1, None),), (slice(-1),)),
    ],
)
def test_bytes_of_both_sides_are_not_given_to_one_call(target, source):
    """CUDA does not define copies whose source and target overlap."""
    host = np.arange(64, dtype=np.int32).reshape(8, 8)
    x = cs.array(host)
    cs.waitall()
    with counted_calls() as calls:
        cs.copy(x[target], x[source]).wait()
    assert len(moved(calls)) == 2
    host[target] = host[source].copy()
    assert x.numpy().tolist() == host.tolist()


def test_buffers_take_part_that_overlap():
    buffer = cs.DeviceBuffer(64, 0)
    view = buffer.view(16, np.int32)
    cs.copy(view, np.arange(16, dtype=np.int32))
    cs.copy(buffer.view(12, np.int32, offset_bytes=16), buffer.view(12, np.int32))
    back = np.zeros(16, np.int32)
    cs.copy(back, buffer).wait()
    assert back.tolist() == [0, 1, 2, 3, *range(12)]


@pytest.mark.parametrize(
    ("shape", "index", "call"),
    [
        ((4096, 8), np.s_[:, :4], BOX),
        ((4097, 8), np.s_[:, :4], "cuLaunchKernel"),
        ((4097, 32), np.s_[:, :16], BOX),
        ((64, 8), np.s_[:, :1], "cuLaunchKernel"),
        ((64, 8), np.s_[:, ::2], "cuLaunchKernel"),
    ],
)
def test_many_short_rows_are_for_a_kernel(shape, index, call):
    x = cs.zeros(shape, np.int32)
    y = cs.empty(x[index].shape, np.int32)
    cs.waitall()
    with counted_calls() as calls:
        cs.copy(y, x[index]).wait()
    assert call in moved(calls)
    assert (call == BOX) == (BOX in moved(calls))


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (Box(8, 3, 1, 16, 8, 3, 3), "do not fit the target, 32"),
        (Box(8, 2, 2, 8, 16, 2, 2), "do not fit the source, 32"),
        (Box(8, 2, 1, 4, 8, 2, 2), "rows that do not overlap"),
        (Box(8, 2, 2, 8, 8, 1, 2), "rows that do not overlap"),
        (Box(8, 0, 1, 8, 8, 0, 0), "a copy needs at least one byte"),
    ],
)
def test_a_box_that_does_not_fit_is_refused_before_the_driver(box, words):
    memory = [cs.DeviceBuffer(32, 0), cs.DeviceBuffer(32, 0)]
    with counted_calls() as calls, pytest.raises(ValueError, match=words):
        memcpy_box_async(*memory, box)
    assert not moved(calls)


def test_a_box_that_is_captured_is_a_memcpy_node():
    source, target = cs.DeviceBuffer(64, 0), cs.DeviceBuffer(64, 0)
    cs.memcpy_async(source, np.arange(16, dtype=np.int32))
    cs.memset_async(target, 0)
    cs.Device(0).synchronize()
    stream = cs.Stream()
    with stream.capture() as captured:
        memcpy_box_async(target, source, Box(8, 2, 2, 8, 16, 2, 2), stream=stream)
    assert [node.kind for node in captured.nodes] == ["memcpy"]
    captured.instantiate().launch(stream)
    back = np.zeros(16, np.int32)
    cs.memcpy_async(back, target, stream=stream)
    stream.synchronize()
    assert back.tolist() == [0, 1, 4, 5, 8, 9, 12, 13, *[0] * 8]
