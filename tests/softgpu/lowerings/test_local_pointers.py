"""Pointers to local variables are valid in every function of a thread, in NVRTC's code.

The programs `ptx/isa/local_*` show this form by form. The kernels here are a compiler's output for
CUDA C++.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind

pytestmark = pytest.mark.sampled(4)

CORPUS = Path(__file__).parents[1] / "corpus"
THREADS = 48
I = np.arange(THREADS)  # noqa: E741
ROOMS = {
    "jit": jit.compile_module,
    "oracle": oracle.compile_module,
    "jit without shapes": lambda module, **how: jit.compile_module(
        module, assume_varying=True, **how
    ),
}
everywhere = pytest.mark.parametrize(
    ("room", "target", "memcheck"),
    [
        pytest.param(room, target, memcheck, id=f"{room}-{target}-memcheck {memcheck}")
        for target in (75, 120)
        for room in ROOMS
        for memcheck in (True, False)
    ],
)


@cache
def compiled(room, target, memcheck):
    text = (CORPUS / f"locals_sm{target}.ptx").read_text()
    return ROOMS[room](parse(text), memcheck=memcheck)


def arrays(i):
    own, array = [i, i + 1, i + 2, i + 3], []
    for k in range(8):
        array.append(own[(k + i) & 3] * 10 + k)
        own[k & 3] += 1
    array[i & 7] += 1000
    return sum(value * (k + 1) for k, value in enumerate(array))


def structs(i):
    first, second, more = i, 2.0, i
    mine = (i + 1) * 3
    first += mine + (i + 1) + mine
    second += 1.5
    first *= 3
    second += 0.5
    more += first
    return first * 100 + int(second * 2) + more * 10000


def grown(x):
    sign, y = (-1, -2 * x + 1) if x < -34 else (1, 2 * x)
    return y * sign


def descend(n, above):
    own = [n, 2 * n, 3 * n]
    if n > 0:
        cell = [own[n % 3]]
        above[0] += descend(n - 1, cell)
        own[n % 3] = cell[0]
    return sum(own)


def deep(i):
    top = [7]
    return descend(i & 15, top) * 1000 + top[0]


def alone(i):
    mine, other = 1, 2
    if i % 3 == 0:
        mine += i
    elif i % 3 == 1:
        mine, other = (mine + 10 * i, other) if i & 1 else (mine, other + 10 * i)
    return mine * 10000 + other


def kept(i):
    one, two = i, 1000 + i
    return (one, two + 5)[::-1][0] * 10000 + one if i & 1 else (one + 5) * 10000 + two


EXPECTED = {
    "scalars": I + 100,
    "arrays": [arrays(i) for i in range(THREADS)],
    "structs": [structs(i) for i in range(THREADS)],
    "deep": [deep(i) for i in range(THREADS)],
    "alone": [alone(i) for i in range(THREADS)],
    "values": (I + 5 + 10 * I + 4) * 1000 + I,
    "kept": [kept(i) for i in range(THREADS)],
    "barriers": I * 3 + (I + 1) % THREADS * 3,
}


@pytest.mark.sampled(22)
@everywhere
@pytest.mark.parametrize("name", EXPECTED)
def test_a_function_finds_its_caller_s_variables(room, target, memcheck, name):
    out = bare_launch.aligned(np.zeros(THREADS, np.int32))
    run(compiled(room, target, memcheck), name, out)
    assert out.tolist() == list(EXPECTED[name])


@everywhere
def test_a_function_that_calls_itself_finds_them_too(room, target, memcheck):
    out = bare_launch.aligned(np.linspace(-80, 80, THREADS))
    wanted = [grown(x) for x in out]
    run(compiled(room, target, memcheck), "recursive", out)
    assert out.tolist() == wanted


def run(module, name, out):
    outcome = bare_launch.run(module, name, grid=(1,), block=(THREADS,), args=[out])
    assert outcome.kind is OutcomeKind.DONE, outcome.fault


BEYOND = """
.version 6.4
.target sm_75
.address_size 64
.func touch(.param .u64 pointer)
{{
    .local .align 4 .b8 own[4];
    .reg .u64 %rd_pointer;
    ld.param.u64 %rd_pointer, [pointer];
    st.local.u32 [own], 1;
    st.local.u32 [%rd_pointer+{offset}], 1;
    ret;
}}
.visible .entry test()
{{
    .local .align 4 .b8 variable[16];
    .reg .u64 %rd_local;
    mov.u64 %rd_local, variable;
    .param .u64 given;
    st.param.u64 [given], %rd_local;
    call touch, (given);
    ret;
}}
"""


@pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
@pytest.mark.parametrize("offset", [-4, 1 << 20, -(1 << 20)])
def test_what_lies_outside_of_the_thread_s_memory_is_a_fault_in_a_function_too(room, offset):
    module = room.compile_module(parse(BEYOND.format(offset=offset)))
    outcome = bare_launch.run(module, "test", grid=(1,), block=(3,), args=[])
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.ILLEGAL_ADDRESS


@pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
@pytest.mark.parametrize("offset", [0, 12])
def test_what_lies_inside_is_none(room, offset):
    module = room.compile_module(parse(BEYOND.format(offset=offset)))
    outcome = bare_launch.run(module, "test", grid=(1,), block=(3,), args=[])
    assert outcome.kind is OutcomeKind.DONE
