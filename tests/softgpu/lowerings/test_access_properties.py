"""The accesses that a kernel makes lie within the inferred accesses: random programs, executed.

Each parameter and a variable point to their own memory. The recording says which memory a launch
read and wrote. `tests/ptx/test_access_properties.py` compares with a model; here the real kernel
shows its accesses. A program that faults has made some accesses before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.lowering.recorded_launch import Happened, excesses, happened, watch
from helpers.ptx_generators.pointer_programs import (
    FOLLOWS,
    PARAMETERS,
    ROOM,
    STATEMENTS,
    STRUCT_BYTES,
    Statement,
    statements,
    text_of,
)
from hypothesis import Phase, note, settings
from hypothesis import given as given_by

from cudasync.ptx import ir, parse
from cudasync.ptx.access_analysis import (
    accesses,
    fixed_point,
    flow_graph,
    origins,
    pointer_arithmetic,
    transfer_functions,
)
from cudasync.ptx.types import Access
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import OutcomeKind

# A memory for each parameter, one for the variable, and one that the kernel is not given.
OUTSIDE = bare_launch.aligned(np.zeros(ROOM // 8, np.uint64))
MEMORY = [bare_launch.aligned(np.zeros(ROOM // 8, np.uint64)) for _ in range(len(PARAMETERS) + 1)]
OUT = OUTSIDE.ctypes.data + ROOM // 2


@dataclass(frozen=True)
class Ran:
    """A program, its accesses to each memory, and whether it ended."""

    text: str
    module: ir.Module
    real: list[Happened]
    is_done: bool

    def excesses(self) -> list[str]:
        """The accesses that the program made and the analysis did not infer."""
        inferred = accesses.analyse(self.module, "k")
        admitted = [*given(inferred), inferred.symbols.get("table", Access.VALUE)]
        *reals, outside = self.real
        found = [
            f"{what} is {line}"
            for what, each, real in zip((*PARAMETERS, "table"), admitted, reals, strict=True)
            for line in excesses(each, real)
        ]
        # Only pointers that were loaded from memory reach the outside memory.
        if outside.as_access is not Access.VALUE and not inferred.beyond:
            found.append("a pointer was followed that lay in memory, and nothing says so")
        return found


def given(inferred: accesses.KernelAccess) -> list[Access]:
    """The inferred access of each of `PARAMETERS`."""
    fields = {each.offset: each.access for each in inferred.fields[2]}
    return [*inferred.parameters[:2], *(fields.get(each, Access.VALUE) for each in (8, 16))]


def run(program: list[Statement], room=oracle) -> Ran:
    """Execute a program on memory full of pointers to the outside memory."""
    text = text_of(program, OUT)
    source = parse(text)
    for each in (*MEMORY, OUTSIDE):
        each[:] = OUT
    places = [each.ctypes.data + ROOM // 2 for each in MEMORY[: len(PARAMETERS)]]
    first, second, *in_struct = (place.to_bytes(8, "little") for place in places)
    struct = b"".join([bytes(8), *in_struct]).ljust(STRUCT_BYTES, b"\0")
    recording = watch([*MEMORY, OUTSIDE])
    outcome = bare_launch.run(
        room.compile_module(source, record=True),
        "k",
        args=[first, second, struct],
        grid=(1,),
        block=(2,),
        variables=[MEMORY[-1].view(np.uint8)],
        memory=[*MEMORY[:-1], OUTSIDE],
        recording=recording,
    )
    real = [happened(recording, each) for each in (*MEMORY, OUTSIDE)]
    return Ran(text, source, real, outcome.kind is OutcomeKind.DONE)


@given_by(statements())
def test_what_really_happens_was_inferred(program):
    ran = run(program)
    note(ran.text)
    assert not ran.excesses()


def pointed() -> list[list[Statement]]:
    """For each statement, a program that shows its effect alone.

    The statement's result is one arm of a select, so no other statement makes the access. The
    programs also combine every way to keep a pointer in memory with every way to load it again.
    """
    found = [
        [Statement(name, 3, 0, 1, n), Statement("select", 3, 3, 2, n), *ACCESS]
        for name in STATEMENTS
        for n in (0, 3)
    ]
    keeps = [name for name in FOLLOWS if name.startswith("keep")]
    return found + [
        [Statement(keep, 3, 0, 1, 0), Statement(follow, 3, 0, 0, 0), *ACCESS]
        for keep in keeps
        for follow in FOLLOWS
        if follow.startswith("follow")
    ]


# The access goes through register 3.
ACCESS = [Statement("write", 0, 3, 0, 0)]


@cache
def pointed_run(number: int) -> Ran:
    return run(pointed()[number])


def sample() -> Iterator[Ran]:
    """The same programs every time, executed once, when they are needed: one per statement, and
    random programs."""
    yield from map(pointed_run, range(len(pointed())))
    yield from random_runs()


@cache
def random_runs() -> list[Ran]:
    found = []

    @settings(
        max_examples=max(60, settings.default.max_examples),
        derandomize=True,
        database=None,
        phases=[Phase.generate],
    )
    @given_by(statements())
    def collect(program: list[Statement]) -> None:
        found.append(run(program))

    collect()
    return found


def test_a_sample_of_programs_is_worth_something():
    """The programs end, and the inferred accesses differ between memories."""
    ran = list(sample())
    assert not [line for each in ran for line in each.excesses()]
    assert sum(each.is_done for each in ran) > 0.9 * len(ran)
    inferred = Counter(a for each in ran for a in given(accesses.analyse(each.module, "k")))
    assert all(inferred[each] > 10 for each in Access)
    real = Counter(found.as_access for each in ran for found in each.real)
    assert all(real[each] > 10 for each in Access if each is not Access.UNKNOWN)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_runs(name):
    """A statement that always faulted would show nothing."""
    assert run([Statement(name, 3, 0, 1, 7), *ACCESS]).is_done


def test_the_fast_lowering_sees_the_same():
    programs = [
        [Statement("halves", 3, 0, 0, 1), Statement("skip", 0, 0, 0, 1), *rest]
        for rest in (
            [Statement("local", 1, 3, 0, 5), Statement("write", 0, 1, 0, 0)],
            [Statement("select", 1, 0, 2, 1), Statement("atomic", 0, 1, 0, 0)],
            [Statement("call that writes", 1, 0, 2, 1), Statement("follow", 2, 3, 0, 0)],
        )
    ]
    for program in programs:
        assert run(program, jit).real == run(program).real


# Planted bugs: the sample must show each of them.


def _ignore(opcode):
    """The analysis ignores instructions of this opcode."""

    def plant(patch):
        real = transfer_functions.StepWriter._instruction

        def instruction(self, each):
            if each.opcode != opcode:
                real(self, each)

        patch.setattr(transfer_functions.StepWriter, "_instruction", instruction)

    return plant


def _drop_an_arm(opcode, arm):
    """The analysis ignores one source operand of this opcode."""

    def plant(patch):
        real = transfer_functions.StepWriter._slots

        def slots(self, operands):
            operands = list(operands)
            here = self._function.body[self._index]
            if here.opcode == opcode and operands == list(here.operands[1:]):
                del operands[arm]
            return real(self, operands)

        patch.setattr(transfer_functions.StepWriter, "_slots", slots)

    return plant


def _accesses_as(change):
    """Every access has other flags."""

    def plant(patch):
        def make(address, reads, writes, *others, **named):
            return flow_graph.MemoryAccess(address, *change(reads, writes), *others, **named)

        patch.setattr(transfer_functions, "MemoryAccess", make)

    return plant


def _set(place, name, value):
    return lambda patch: patch.setattr(place, name, value)


def _as_it_was(self, values):
    return values


def _first_field(self, function, name, start, size):
    return None if name != "s" else self.origins.direct_bit(self._fields[name][1])


def _only_words(index, parameter):
    return [flow_graph.Origin(parameter.name, index, 0, is_pointer_like=parameter.size == 8)]


def _follow_nothing(self, address, line):
    pass


def _one_pass(flow):
    fixed_point._pass(flow)


def _lose_nothing(self, values, why):
    pass


JOINED = pointer_arithmetic.joined_elements
PLANTED = {
    "loads are ignored": _ignore("ld"),
    "stores are ignored": _ignore("st"),
    "atomics are ignored": _ignore("atom"),
    "reductions are ignored": _ignore("red"),
    "calls are ignored": _ignore("call"),
    "the first arm of selp is dropped": _drop_an_arm("selp", 0),
    "the second arm of selp is dropped": _drop_an_arm("selp", 1),
    "the base of a sum is dropped": _drop_an_arm("add", 0),
    "a store is seen as a load": _accesses_as(lambda reads, writes: (reads or writes, False)),
    "a load is seen as a store": _accesses_as(lambda reads, writes: (False, reads or writes)),
    "an atomic is seen as a store": _accesses_as(lambda r, w: (r and not w, w)),
    "an atomic is seen as a load": _accesses_as(lambda r, w: (r, w and not r)),
    "min spoils a pointer": _set(
        pointer_arithmetic, "SURVIVORS", {**pointer_arithmetic.SURVIVORS, "min": ()}
    ),
    "a reduction over lanes spoils a pointer": _set(
        pointer_arithmetic, "SURVIVORS", {**pointer_arithmetic.SURVIVORS, "redux": ()}
    ),
    "what a multiply-add adds is multiplied": _set(
        pointer_arithmetic, "SURVIVORS", {**pointer_arithmetic.SURVIVORS, "mad": ()}
    ),
    "a shift up is always an index": _set(pointer_arithmetic, "_LEAST_FAR_SHIFT", 65),
    "a float is never a pointer": _set(pointer_arithmetic, "_KEEPS_BITS", frozenset({"mov"})),
    "one pass is taken for all": _set(accesses, "settle", _one_pass),
    "what cannot be followed is forgotten": _set(accesses._Marks, "_lose", _lose_nothing),
    "pieces are never joined": _set(origins.Origins, "as_joined", _as_it_was),
    "a shift down leaves a piece": _set(
        transfer_functions, "leaves_a_piece", lambda each: each.opcode == "shr"
    ),
    "a mask leaves a piece": _set(
        transfer_functions, "leaves_a_piece", lambda each: each.opcode == "and"
    ),
    "one field is taken for another": _set(flow_graph.Flow, "part", _first_field),
    "pointers from memory are given ones": _set(accesses._Marks, "_follow", _follow_nothing),
    "what is inserted stays an index": _set(
        transfer_functions,
        "joined_elements",
        lambda each: ([], []) if each.opcode == "bfi" else JOINED(each),
    ),
    "a struct is no pointer": _set(flow_graph, "_origins_of", _only_words),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_shows(monkeypatch, bug):
    PLANTED[bug](monkeypatch)
    assert any(ran.excesses() for ran in sample())
