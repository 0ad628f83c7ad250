"""A thread that waits for memory which another lane, warp or block writes makes progress.

The programs `ptx/isa/spin_*` show this form by form. A corpus of kernels that NVRTC compiled shows
it too, on both lowerings. Planted bugs show that these programs would notice.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.lowering.isa_cases import Case, all_cases

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.access_recording import Recording, Touch
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind
from cudasync.softgpu.jit import findings as jit_findings
from cudasync.softgpu.jit.transforms import program as jit_program

CORPUS = Path(__file__).parents[1] / "corpus"
CASES = {
    case.name: case for case in all_cases() if case.name.startswith(("spin_", "bar_sync_in_func"))
}
LOWERINGS = {"jit": jit.compile_module, "oracle": oracle.compile_module}
SHAPES = [(3, 64), (5, 40), (1, 70), (2, 256)]


def run_case(case: Case, compile_module, *, budget=2**20, recording=None, **settings):
    """Run a program, and return its outcome and its memory."""
    memory = {name: bare_launch.aligned(array) for name, array in case.memories().items()}
    outcome = bare_launch.run(
        compile_module(parse(case.text), **settings),
        "test",
        grid=case.grid,
        block=case.block,
        args=[memory[name] for name in case.parameters],
        budget=budget,
        recording=recording(memory) if recording else None,
    )
    return outcome, memory


def is_right(case: Case, memory) -> bool:
    return not any(case.mismatches(name, memory[name]) for name in case.expected)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if index % 3 else [])
        for index, name in enumerate(CASES)
    ],
)
def test_programs_that_wait_get_on_without_shapes_too(name):
    outcome, memory = run_case(CASES[name], jit.compile_module, assume_varying=True)
    assert outcome.kind is OutcomeKind.DONE
    assert is_right(CASES[name], memory)


@pytest.mark.parametrize("name", [name for name in CASES if "in_func" in name])
def test_programs_that_wait_get_on_where_little_is_written_out(monkeypatch, name):
    monkeypatch.setattr(jit_program, "_MOST_WRITTEN_OUT", 0)
    outcome, memory = run_case(CASES[name], jit.compile_module)
    assert outcome.kind is OutcomeKind.DONE
    assert is_right(CASES[name], memory)


# Functions that a kernel calls in a loop, where the loop itself does not stop.
CALLED = """
.version 7.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 count;
.func (.param .u32 found) taken()
{{
  .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p<2>;
  mov.u64 %rd1, count;
{body}
  st.param.u32 [found], %r1;
  ret;
}}
.visible .entry test()
{{
  .reg .b32 %r<4>; .reg .pred %p<2>;
$again:
  call.uni (%r1), taken;
  setp.lt.u32 %p1, %r1, 9;
  @%p1 bra $again;
  ret;
}}
"""
ONCE = "atom.global.add.u32 %r1, [%rd1], 1;"
LOOP = "$next: {look} setp.ne.u32 %p1, %r1, 7; @%p1 bra $next;"
TURN = "bra $in; $out: bra $behind; $in: {look} bra $out; $behind: add.u32 %r1, %r1, 0;"


@pytest.mark.parametrize(
    ("body", "is_written_out"),
    [
        (ONCE, False),
        ("ld.volatile.global.u32 %r1, [%rd1];", False),
        # The jump goes back in the text only.
        (TURN.format(look=ONCE), False),
        (LOOP.format(look=ONCE), True),
        (LOOP.format(look="ld.volatile.global.u32 %r1, [%rd1];"), True),
        (LOOP.format(look="add.u32 %r1, %r1, 1;") + ONCE, False),
        ("bar.sync 0; mov.u32 %r1, 1;", True),
    ],
)
@pytest.mark.parametrize("most", [0, 2048])
def test_a_function_in_which_no_warp_stops_may_stay_one(monkeypatch, body, is_written_out, most):
    monkeypatch.setattr(jit_program, "_MOST_WRITTEN_OUT", most)
    module = parse(CALLED.format(body=body))
    (kernel,) = module.kernels
    program = jit_program.prepare(module, kernel)
    stays = not is_written_out and not most
    assert set(program.functions) == set(program.waiting) == ({"taken"} if stays else set())


def corpus_kernels(target: str):
    module = parse((CORPUS / f"waiting_{target}.ptx").read_text())
    for kernel in module.kernels:
        others = [each for each in module.functions if not each.is_kernel]
        yield kernel.name, replace(module, functions=(*others, kernel))


KERNELS = [
    pytest.param(
        module, lowering, id=f"{name}-{target}-{lowering}", marks=[pytest.mark.slow] * is_slow
    )
    for target, lowering, is_slow in (
        ("sm75", "jit", 0),
        ("sm120", "jit", 1),
        ("sm75", "oracle", 0),
    )
    for name, module in corpus_kernels(target)
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("module", "lowering"), KERNELS)
def test_kernels_of_nvrtc_that_wait_get_on(module, lowering):
    compiled = LOWERINGS[lowering](module)
    for grid, block in SHAPES if lowering == "jit" else SHAPES[:2]:
        memory = bare_launch.aligned(np.zeros(64, np.uint32))
        outcome = bare_launch.run(
            compiled, module.kernels[0].name, grid=(grid,), block=(block,), args=[memory],
            budget=2**24 if lowering == "jit" else 2**29,
        )  # fmt: skip
        assert outcome.kind is OutcomeKind.DONE, outcome
        assert memory[1] == grid * block
        assert memory[63] == 0


# Planted bugs: without one of the mechanisms some program hangs until its budget is spent, or
# computes nonsense.


def without_waiting_loops(flow, waiting, all_matter, find_stops=jit_findings.find_stops):
    found = find_stops(flow, waiting, all_matter=all_matter)
    return tuple(stop for stop in found if stop.is_barrier)


def without_meetings(_flow, stops, _held, _waiting):
    return stops


def without_waiting_calls(_functions):
    return {}


def without_inlining(kernel, _functions):
    return kernel


@pytest.mark.parametrize(
    ("place", "name", "bug", "program"),
    [
        (jit_findings, "find_stops", without_waiting_loops, "spin_lock_outside"),
        (jit_findings, "find_stops", without_waiting_loops, "spin_blocks_acquire"),
        (jit_findings, "find_stops", without_waiting_loops, "spin_warps"),
        (jit_findings, "with_meetings", without_meetings, "spin_shfl_meets"),
        (jit_program, "_with_its_stops", without_inlining, "spin_lock_in_function"),
        (jit_program, "waiting_functions", without_waiting_calls, "spin_lock_try_in_function"),
    ],
)
def test_a_lowering_that_forgets_who_waits_is_found(monkeypatch, place, name, bug, program):
    monkeypatch.setattr(place, name, bug)
    monkeypatch.setattr(jit_program, "_MOST_WRITTEN_OUT", 0)
    outcome, memory = run_case(CASES[program], jit.compile_module, budget=2**12)
    if outcome.kind is OutcomeKind.FAULT:
        assert outcome.fault.kind is FaultKind.TIMEOUT
    else:
        assert not is_right(CASES[program], memory)


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_a_recording_of_a_kernel_that_stops_and_goes_on_is_right(lowering):
    made = []

    def watch(memory):
        made.append(Recording((a.ctypes.data, a.ctypes.data + a.nbytes) for a in memory.values()))
        return made[0]

    outcome, memory = run_case(
        CASES["spin_blocks_acquire"], LOWERINGS[lowering], recording=watch, record=True
    )
    assert outcome.kind is OutcomeKind.DONE
    (recording,) = made

    def touched(name, kind):
        start = memory[name].ctypes.data
        index = recording.ranges.index((start, start + memory[name].nbytes))
        ranges = recording.touched(index, kind)
        return [(low - start, high - start) for low, high in ranges]

    # Each block reads the next block's flag and sets its own. The last flag is set beforehand.
    assert touched("flags", Touch.READ) == [(4, 20)]
    assert touched("flags", Touch.WRITTEN) == [(0, 16)]
    assert touched("flags", Touch.READ_FIRST) == [(4, 20)]
    assert touched("result", Touch.WRITTEN) == [(0, 16)]
    assert touched("result", Touch.READ_FIRST) == []


WAIT_FOR_HOST = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 flag)
{
    .reg .u32 %value, %block;
    .reg .u64 %rd_flag;
    .reg .pred %p;
    ld.param.u64 %rd_flag, [flag];
    mov.u32 %block, %ctaid.x;
    mad.wide.u32 %rd_flag, %block, 4, %rd_flag;
again:
    ld.volatile.global.u32 %value, [%rd_flag];
    setp.eq.u32 %p, %value, 0;
    @%p bra again;
    add.u32 %value, %value, 1;
    st.global.u32 [%rd_flag+4], %value;
}
"""


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_a_turn_says_whether_it_brought_anybody_on(lowering):
    flags = bare_launch.aligned(np.zeros(5, np.uint32))
    module = LOWERINGS[lowering](parse(WAIT_FOR_HOST))
    execution = bare_launch.start(module, "test", grid=(4,), block=(32,), args=[flags])
    outcome = execution.run()
    while outcome.has_moved:
        outcome = execution.run()
    assert outcome.kind is OutcomeKind.YIELDED
    assert not execution.run().has_moved
    flags[0] = 1
    while (outcome := execution.run()).kind is OutcomeKind.YIELDED:
        assert outcome.has_moved
    assert outcome.kind is OutcomeKind.DONE
    assert list(flags) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_a_wait_that_nobody_ends_is_ended_by_the_budget(lowering):
    flags = bare_launch.aligned(np.zeros(5, np.uint32))
    module = LOWERINGS[lowering](parse(WAIT_FOR_HOST))
    outcome = bare_launch.run(module, "test", grid=(4,), block=(32,), args=[flags], budget=2**16)
    assert outcome.kind is OutcomeKind.FAULT
    assert outcome.fault.kind is FaultKind.TIMEOUT
