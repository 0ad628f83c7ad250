"""The program of each rank of test_mpi_properties.py: the same random programs, against NumPy.

Hypothesis draws the same programs on all ranks, because the ranks agree on each verdict: a program
is right if it is right on all ranks.
"""

from __future__ import annotations

import sys

import numpy as np
from helpers.distributed.collective_programs import (
    expected,
    extremes,
    place,
    programs,
    raise_unless_extreme,
    raise_unless_same,
    results,
    run,
)
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.distributed import mpi, pairwise_exchange, ranks
from cudasync.distributed.parts import Rows

# The programs with longer arrays take five parts.
mpi.STAGED_BYTES = 16 << 10
# Their reductions are exchanges, with several chunks on the CPU.
ranks.LONG_BYTES = 12 << 10
pairwise_exchange._MOST_BYTES = 16 << 10


class WrongError(Exception):
    """A program that is wrong on some rank."""


def search(examples):
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
    )


def goes_right(program, comm, agreed, mode, *, recorded=False):
    """True if all ranks have NumPy's result."""
    is_right = np.ones(1, np.int32)
    with cs.Engine(mode):
        rows = place(program, comm)
        cs.waitall()
        if recorded:
            with cs.graph() as graph:
                run(program, comm, rows)
            graph.instantiate().launch().wait()
        else:
            run(program, comm, rows)
        try:
            raise_unless_same(results(rows), expected(program, comm.size), comm.ranks)
        except AssertionError:
            is_right[0] = 0
    return all_agree(is_right, agreed)


def all_agree(is_right, agreed):
    """Whether this is true on all ranks."""
    flag = cs.xp.asarray(is_right, device="cpu")
    agreed.all_reduce(flag, op="min")
    return bool(flag.numpy()[0])


def any_extreme_is_right(comm, agreed, examples):
    @search(examples)
    @given(extremes())
    def check(drawn):
        is_right = np.ones(1, np.int32)
        try:
            raise_unless_extreme(drawn, comm)
        except AssertionError:
            is_right[0] = 0
        if not all_agree(is_right, agreed):
            raise WrongError(f"{comm.devices}: {drawn}")

    check()


def any_program_is_right(comm, agreed, examples):
    @search(examples)
    @given(programs(), st.sampled_from(["async", "async", "serial"]), st.booleans())
    def check(program, mode, recorded):
        if not goes_right(program, comm, agreed, mode, recorded=recorded and mode == "async"):
            raise WrongError(f"{comm.devices}: {program}, {mode}, recorded: {recorded}")

    check()


def part_is_lost(comm):
    store = Rows.store
    Rows.store = lambda self, near, part, *rest: None if part[0] else store(self, near, part, *rest)


def a_read_is_not_declared(comm):
    """The planted bug: the slot's contents are read at the push, as by an op that does not wait."""
    push = comm._line.push

    def push_without(told, x, out, does, *rest, **more):
        if not isinstance(x, np.ndarray):
            push(told, x, out, does, *rest, **more)
            return
        was = x.copy()

        def does_with_it(sent, got, *far):
            if x is out:
                np.copyto(got, was)
            return does(got if x is out else was, got, *far)

        push(told, None, out, does_with_it, *rest, **more)

    comm._line.push = push_without


def chunk_is_not_combined(comm):
    """The planted bug: only the first chunk of another rank is combined."""
    combined = pairwise_exchange._Call._combined
    pairwise_exchange._Call._combined = lambda self, number: (
        self._chunk(self._own, number) if number else combined(self, number)
    )


def nan_is_a_number(comm):
    """The planted bug: min and max are MPI's, which may drop NaN."""
    ranks.ORDERED = frozenset()


# How each bug is planted, the device on which it shows, and the check that finds it.
PLANTED = {
    "lost": (part_is_lost, 0, any_program_is_right),
    "undeclared": (a_read_is_not_declared, 0, any_program_is_right),
    "uncombined": (chunk_is_not_combined, "cpu", any_program_is_right),
    "unordered": (nan_is_a_number, "cpu", any_extreme_is_right),
}


def main():
    agreed = cs.distributed.init("mpi", devices=["cpu"])
    kind, number = sys.argv[1:]
    if kind in PLANTED:
        plant, device, check = PLANTED[kind]
        comm = cs.distributed.init("mpi", devices=[device])
        plant(comm)
        try:
            check(comm, agreed, int(number))
        except WrongError:
            print("found", flush=True)
        return
    for device in ("cpu", 0):
        comm = cs.distributed.init("mpi", devices=[device])
        any_program_is_right(comm, agreed, int(number))
        any_extreme_is_right(comm, agreed, 3 * int(number))
    mixed = cs.distributed.init("mpi", devices=[0 if agreed.rank else "cpu"])
    any_program_is_right(mixed, agreed, int(number) // 3)
    print("right", flush=True)


main()
