"""Products by a library with cuBLAS's interface: the call, its order, handles and workspaces.

The library is compiled from helpers/arrays/reference_blas.c, and computes on the software GPU in
stream order. Only a real device can show the results and the speed of the real library.
"""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np
import pytest
from helpers.arrays.layouts import laid
from helpers.arrays.matrix_products import disagreement
from helpers.arrays.reference_blas import c_compiler, compiled, opened
from helpers.concurrency.thread_crew import together
from helpers.engine_programs.runner import kernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.products import blas_step, operation
from cudasync.array.products.blas_form import blas_form
from cudasync.array.products.problem import problem_of
from cudasync.driver.blas import choice, handles
from cudasync.driver.blas.choice import VARIABLE, blas_of
from cudasync.testing import HostLatch


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    if c_compiler() is None:
        pytest.skip("no C compiler")
    if not cs.Device(0).is_software:
        pytest.skip("no software GPU, whose memory is the host's")
    return compiled(tmp_path_factory.mktemp("blas"))


@pytest.fixture
def library(path, monkeypatch):
    """The library that computes products from now on."""
    monkeypatch.setenv(VARIABLE, str(path))
    monkeypatch.setattr(operation, "_plans", {})
    found = opened(path)
    yield found
    cs.waitall()
    found.reference_fail_next(0)
    found.reference_fail_create(0)
    assert found.reference_clashes() == 0


def reset():
    """Reset device 0 with no work in flight."""
    cs.waitall()
    cs.Device(0).reset()


def values(shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "shapes",
    [((33, 65), (65, 31)), ((4, 7, 9), (4, 9, 5)), ((4, 7, 9), (9, 5)), ((300,), (300,)),
     ((70, 30), (30,)), ((7, 9), (4, 9, 5))],
    ids=str,
)  # fmt: skip
def test_a_product_is_the_librarys_and_numpys(library, shapes, dtype):
    left, right = (values(shape, dtype, seed) for seed, shape in enumerate(shapes))
    before = library.reference_calls()
    found = (cs.array(left) @ cs.array(right)).numpy()
    assert library.reference_calls() == before + 1
    assert disagreement(found, left, right) is None


LENGTHS = st.sampled_from([1, 2, 5, 33])


@st.composite
def laid_pairs(draw):
    rows, depth, columns = draw(LENGTHS), draw(LENGTHS), draw(LENGTHS)
    stack = draw(st.sampled_from([(), (2,), (2, 3)]))
    return [
        draw(laid(shape, broadcasts=False)) for shape in [(*stack, rows, depth), (depth, columns)]
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8)
@given(pair=laid_pairs())
def test_operands_of_any_layout_give_what_numpy_gives(library, pair):
    bases = [each.base(np.dtype("f8"), seed) for seed, each in enumerate(pair)]
    hosts = [each.of(base) for each, base in zip(pair, bases, strict=True)]
    mine = [each.of(cs.array(base)) for each, base in zip(pair, bases, strict=True)]
    assert disagreement((mine[0] @ mine[1]).numpy(), *hosts) is None


def test_float32_is_not_shortened_to_tf32(library, monkeypatch):
    x = xp.full((2, 2), 1 + 2.0**-20, dtype=xp.float32)
    assert (x @ xp.ones((2, 2))).numpy().tolist() == [[2 + 2.0**-19] * 2] * 2
    # The library can show the difference: TF32 has ten bits.
    monkeypatch.setattr(handles, "_DEFAULT_MATH", 3)
    monkeypatch.setattr(choice, "_choices", {})
    monkeypatch.setattr(operation, "_plans", {})
    assert (x @ xp.ones((2, 2))).numpy().tolist() == [[2.0] * 2] * 2


def test_a_product_returns_before_its_operands_are_there_and_comes_after_them(library):
    x, latch = xp.ones((3, 3)), HostLatch()
    cs.engine().push(latch.wait, writes=[x])
    z = x @ x @ x[0] + 1
    assert not latch.is_released
    latch.release()
    assert z.numpy().tolist() == [10, 10, 10]


def test_special_values_of_a_block_used_before_are_not_read(library):
    # The pool gives a result the memory of an array of NaN.
    (xp.ones((8, 8)) * float("nan")).wait()
    assert (xp.ones((8, 8)) @ xp.ones((8, 8))).numpy().tolist() == [[8.0] * 8] * 8


def test_out_is_written_by_the_library(library):
    target = xp.zeros((3, 5))
    before = library.reference_calls()
    assert xp.matmul(xp.ones((3, 4)), xp.ones((4, 5)), out=target) is target
    assert target.numpy().tolist() == [[4.0] * 5] * 3
    assert library.reference_calls() == before + 1


def test_each_device_has_a_handle_and_computes_by_it(library):
    for ordinal in range(min(2, cs.device_count())):
        x = xp.ones((3, 3), device=ordinal)
        assert (x @ x).numpy().tolist() == [[3.0] * 3] * 3


# Chains of products on two arrays: each reads results of others.
STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(steps=STEPS, kind=st.sampled_from(["async", "serial"]))
def test_programs_of_products_equal_the_serial_program(library, steps, kind):
    hosts = [np.random.default_rng(seed).integers(-2, 3, (4, 4)).astype("f8") for seed in range(3)]
    with cs.Engine(kind):
        mine = [xp.asarray(each) for each in hosts]
        for to, of in steps:
            mine[to] = mine[of] @ mine[to].T - mine[to]
            hosts[to] = hosts[of] @ hosts[to].T - hosts[to]
            mine[to], hosts[to] = xp.remainder(mine[to], 7.0), hosts[to] % 7.0
        assert [each.numpy().tolist() for each in mine] == [each.tolist() for each in hosts]


def side_by_side(library):
    """The stream and the workspace of each of several independent products."""
    with cs.Engine(streams=3):
        arrays = [xp.ones((4, 4)) for _ in range(6)]
        cs.waitall()
        before, latches = library.reference_calls(), []
        made = []
        for x in arrays:
            latch = HostLatch()
            latches.append(latch)
            cs.engine().push(latch.wait, writes=[x])
            made.append(x @ x)
        for latch in latches:
            latch.release()
        for each in made:
            assert each.numpy().tolist() == [[4.0] * 4] * 4
        calls = range(before, library.reference_calls())
        assert len(calls) == len(arrays)
        return {(library.reference_stream(i), library.reference_workspace(i)) for i in calls}


def is_one_each(pairs):
    """True if each stream has one workspace, and each workspace one stream."""
    streams, workspaces = map(set, zip(*pairs, strict=True))
    return len(streams) == len(workspaces) == len(pairs)


def test_each_stream_has_a_workspace_of_its_own(library):
    assert is_one_each(side_by_side(library))


def test_a_workspace_goes_with_its_stream(library):
    device = cs.Device(0)
    x = xp.ones((4, 4))
    (x @ x).wait()
    blas, gemm = blas_of(device).blas, blas_form(problem_of(x.layout, x.layout))
    result, stream = cs.DeviceBuffer(64, 0), cs.Stream(0)
    device.synchronize()
    before = device.memory().free_bytes
    blas.multiply(gemm, x.ptr, x.ptr, result.ptr, stream)
    device.synchronize()
    assert before - device.memory().free_bytes >= 4 << 20
    stream.close()
    del stream
    device.synchronize()
    assert device.memory().free_bytes == before


def test_a_workspace_for_all_is_found(library, monkeypatch):
    shared = cs.DeviceBuffer(32 << 20)
    monkeypatch.setattr(handles.Blas, "_workspace_of", lambda self, stream: shared.ptr)
    assert not is_one_each(side_by_side(library))


def clashes_of_two_threads(library):
    """How often two threads inside the library use one handle at once."""
    x = xp.ones((4, 4))
    (x @ x).wait()
    blas, gemm = blas_of(x.device).blas, blas_form(problem_of(x.layout, x.layout))
    before = library.reference_clashes()
    library.reference_meet(2)
    streams, results = [cs.Stream(0) for _ in range(2)], [cs.DeviceBuffer(64, 0) for _ in range(2)]

    def work(index):
        blas.multiply(gemm, x.ptr, x.ptr, results[index].ptr, streams[index])
        streams[index].synchronize()

    together(*(partial(work, index) for index in range(2)))
    return library.reference_clashes() - before


def test_threads_use_no_handle_at_once(library):
    assert clashes_of_two_threads(library) == 0


class Shared(deque):
    """The planted bug: one handle for all threads."""

    def pop(self):
        return self[0]


def test_a_handle_for_all_is_found(library, monkeypatch):
    blas = handles.Blas(blas_of(cs.Device(0)).blas.library, cs.Device(0))
    blas._idle = Shared(blas._idle)
    monkeypatch.setattr(choice, "_choices", {})
    monkeypatch.setattr(choice, "_chosen", lambda device, wish: choice.Choice(blas, "as planted"))
    assert clashes_of_two_threads(library) == 1
    library.reference_forget()


def test_what_the_library_refuses_fails_the_op_by_name_and_poisons_what_reads_it(library):
    with cs.Engine() as engine:
        x = xp.ones((4, 4))
        (x @ x).wait()
        library.reference_fail_next(13)
        spoilt = x @ x
        with pytest.raises(cs.OpError, match="CUBLAS_STATUS_EXECUTION_FAILED") as caught:
            (spoilt + 1).numpy()
        assert isinstance(caught.value.cause, cs.CudaError)
        assert caught.value.cause.call == "cublasSgemmStridedBatched"
        assert (x @ x).numpy().tolist() == [[4.0] * 4] * 4
        engine.clear_errors()


def test_a_lost_device_is_told_of_as_such(library):
    x = xp.ones((4, 4))
    (x @ x).wait()
    blas, gemm = blas_of(x.device).blas, blas_form(problem_of(x.layout, x.layout))
    result, stream = cs.DeviceBuffer(64, 0), cs.Stream(0)
    blas.multiply(gemm, x.ptr, x.ptr, result.ptr, stream)
    stream.synchronize()
    cs.waitall()
    cs.launch(kernels(x.device)["wild"], grid=1, block=1, args=(result,), stream=stream)
    for fails in (
        stream.synchronize,
        lambda: blas.multiply(gemm, x.ptr, x.ptr, result.ptr, stream),
    ):
        with pytest.raises(cs.CudaError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
            fails()
        assert caught.value.sticky
    assert caught.value.call == "cublasSgemmStridedBatched"
    x.device.reset()


def test_after_a_reset_there_is_another_handle(library):
    x = xp.ones((4, 4))
    (x @ x).wait()
    first = blas_of(cs.Device(0)).blas
    made, ended = library.reference_created(), library.reference_destroyed()
    reset()
    y = xp.ones((4, 4))
    assert (y @ y).numpy().tolist() == [[4.0] * 4] * 4
    assert blas_of(cs.Device(0)).blas is not first
    assert library.reference_created() == made + 1
    # The old library handle went with its context. The library must not destroy it in another
    # context.
    del first
    cs.Device(0).synchronize()
    assert library.reference_destroyed() == ended


def test_a_handle_that_nobody_has_is_destroyed(library):
    device = cs.Device(0)
    blas = handles.Blas(blas_of(device).blas.library, device)
    ended = library.reference_destroyed()
    del blas
    device.synchronize()
    assert library.reference_destroyed() == ended + 1


def test_what_is_recorded_is_a_kernel_of_ours(library):
    x = xp.ones((4, 4))
    (x @ x).wait()
    before = library.reference_calls()
    with cs.graph() as recorded:
        y = x @ x
    with recorded.instantiate() as executable:
        executable.launch()
        assert y.numpy().tolist() == [[4.0] * 4] * 4
    assert library.reference_calls() == before
    assert all(node.launch is not None for node in recorded.nodes)


@pytest.mark.parametrize("dtype", ["i4", "f2"])
def test_what_has_no_call_is_a_kernel_of_ours(library, dtype):
    x = xp.ones((3, 3), dtype=np.dtype(dtype))
    before = library.reference_calls()
    assert (x @ x).numpy().tolist() == [[3] * 3] * 3
    assert library.reference_calls() == before
    assert not isinstance(operation._plans[x.layout, x.layout]._step, blas_step.BlasStep)


def test_a_library_that_is_insisted_on_and_refuses_is_an_error_at_the_call(library):
    reset()
    library.reference_fail_create(8)
    x = xp.ones((3, 3))
    before = cs.engine().push(lambda stream: None, device=0).number
    with pytest.raises(cs.CudaError, match="CUBLAS_STATUS_ARCH_MISMATCH"):
        _ = x @ x
    assert cs.engine().push(lambda stream: None, device=0).number == before + 1
    library.reference_fail_create(0)
    assert (x @ x).numpy().tolist() == [[3.0] * 3] * 3
