"""Draws are commands in streams: state and parameters are read when they execute."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace

import pytest
from helpers.driver.driver_process import run_driver

from cudasync.softgpu.abi.cupy.random.generator import Draws
from cudasync.softgpu.abi.cupy.random.generator_api import COMPOSED, generator_class

START = """
import numpy as np
from cudasync import softgpu
from cudasync.softgpu.abi.cupy.random import distributions
from cudasync.softgpu.abi.cupy.random.bit_streams import BitStream
from cudasync.softgpu.abi.cupy.random.draws import Operand, draw, start
machine = softgpu._tables[0].machine
def there(values):
    at = int(ok(d.cuMemAlloc(max(1, values.nbytes))))
    ok(d.cuMemcpyHtoD(at, values.ctypes.data, values.nbytes))
    return at
def operand(values, at=None):
    return Operand(there(values) if at is None else at, values.dtype, values.shape, values.strides)
def back(target):
    values = np.empty(target.shape, target.dtype)
    ok(d.cuMemcpyDtoH(values.ctypes.data, target.address, values.nbytes))
    return values
def on(stream):
    return machine.streams.get(int(stream))
state = there(np.zeros(8, np.uint64))
target = operand(np.zeros(5))
def draw_uniform():
    draw(machine, on(stream), state, "random", distributions.uniform, target)
def expected(draws, seed=7, kind=1):
    return BitStream(kind, seed, draws).generator().random(5)
start(machine, on(stream), 1, state, 7)
"""


def run(program):
    return run_driver(START + textwrap.dedent(program))


def test_draws_go_on_where_the_last_one_ended_and_a_copied_state_repeats():
    program = """
    for number in range(3):
        draw_uniform()
        ok(d.cuStreamSynchronize(stream))
        assert (back(target) == expected(number)).all()
    copy = there(np.zeros(8, np.uint64))
    ok(d.cuMemcpyDtoDAsync(copy, state, 64, stream))
    for place in (state, copy):
        draw(machine, on(stream), place, "random", distributions.uniform, target)
        ok(d.cuStreamSynchronize(stream))
        assert (back(target) == expected(3)).all()
    """
    assert run(program) == ""


def test_each_launch_of_a_captured_draw_gives_new_numbers():
    program = """
    ok(d.cuStreamBeginCapture(stream, 0))
    draw_uniform()
    graph = ok(d.cuStreamEndCapture(stream))
    run = ok(d.cuGraphInstantiate(graph, 0))
    for number in range(3):
        ok(d.cuGraphLaunch(run, stream))
        ok(d.cuStreamSynchronize(stream))
        assert (back(target) == expected(number)).all()
    """
    assert run(program) == ""


def test_parameters_are_read_in_stream_order_with_any_strides():
    program = """
    rates = np.array([1.0, 100.0, 10000.0, 1e6])
    at = there(rates)
    whole = Operand(at, rates.dtype, (4,), (8,))
    backwards = Operand(at + 24, rates.dtype, (2,), (-16,))
    assert backwards.span == (at + 8, 24)
    rows = Operand(at, rates.dtype, (3, 4), (0, 8))
    for view, shape, means in (
        (whole, (4,), rates), (backwards, (2,), rates[::-2]), (rows, (3, 4), [rates] * 3)
    ):
        into = operand(np.zeros(shape, np.int64))
        draw(machine, on(stream), state, "poisson", distributions.poisson, into, (view,))
        ok(d.cuStreamSynchronize(stream))
        assert (abs(back(into) - means) <= 8 * np.sqrt(means)).all(), back(into)
    # The parameter is written behind the call, and before the draw.
    gate = ok(d.cuMemAlloc(4))
    ok(d.cuMemsetD32(gate, 0, 1))
    ok(d.cuStreamWaitValue32(stream, gate, 1, 0))
    into = operand(np.zeros(4, np.int64))
    ok(d.cuMemcpyHtoDAsync(at, np.full(4, 4e6).ctypes.data, 32, stream))
    draw(machine, on(stream), state, "poisson", distributions.poisson, into, (whole,))
    other = ok(d.cuStreamCreate(1))
    assert (back(into) == 0).all()
    ok(d.cuStreamWriteValue32(other, gate, 1, 0))
    ok(d.cuStreamSynchronize(stream))
    assert (abs(back(into) - 4e6) < 16000).all()
    """
    assert run(program) == ""


@pytest.mark.parametrize(
    ("spoilt", "code", "sentence"),
    [
        ("ok(d.cuMemsetD32Async(state, 0, 2, stream))", "LAUNCH_FAILED", "never initialised"),
        ("ok(d.cuMemcpyHtoD(p.address, np.full(5, -1.0).ctypes.data, 40))", "LAUNCH_FAILED",
         "cupy.random.Generator.poisson: lam < 0"),
        ("", "CUDA_SUCCESS", ""),
    ],
    ids=["state", "parameter", "nothing"],
)  # fmt: skip
def test_what_is_wrong_ends_the_command_with_a_sentence(spoilt, code, sentence):
    program = f"""
    p = operand(np.ones(5))
    into = operand(np.zeros(5, np.int64))
    {spoilt}
    draw(machine, on(stream), state, "poisson", distributions.poisson, into, (p,))
    found = d.cuStreamSynchronize(stream)[0]
    print(code((found,)), said(found), flush=True)
    """
    printed = run(program)
    assert code in printed
    assert sentence in printed


def test_a_draw_says_what_it_reads_and_writes():
    program = """
    made = []
    before = machine.executor.enqueue
    p, into = operand(np.ones(5)), operand(np.zeros(5, np.int64))
    machine.executor.enqueue = lambda command: (made.append(command), before(command))
    draw(machine, on(stream), state, "poisson", distributions.poisson, into, (p,))
    (touched,) = (command.touched() for command in made)
    own = (state, state + 32)
    assert sorted(touched.reads) == sorted([own, (p.address, p.address + 40)]), touched
    assert sorted(touched.writes) == sorted([own, (into.address, into.address + 40)]), touched
    """
    assert run(program) == ""


class Original:
    """A class like CuPy's."""

    def __init__(self, bit_generator):
        self.bit_generator = bit_generator

    def _check_output_array(self, *_arguments):
        return "CuPy's"

    def gamma(self):
        return "CuPy's"

    def poisson(self):
        return "machine code"

    def laplace(self):
        return "machine code"


def test_methods_are_replaced_kept_or_refused_by_name():
    made = generator_class(Original, SimpleNamespace())
    assert made.__name__ == "Original"
    assert issubclass(made, Original)
    assert "gamma" in COMPOSED
    generator = made("bits")
    assert (generator.bit_generator, generator.gamma()) == ("bits", "CuPy's")
    assert generator._check_output_array() == "CuPy's"
    assert made.poisson is Draws.poisson
    with pytest.raises(NotImplementedError, match=r"cupy\.random\.Generator\.laplace is not"):
        generator.laplace()
