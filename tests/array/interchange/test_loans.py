"""Loans of DLPack structures: what another thread does at any instruction of a look at them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from helpers.arrays.dlpack_tensors import Consumer

import cudasync as cs
from cudasync.driver.interchange import capsules, dlpack_export


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


@contextmanager
def interrupted(at: Sequence[int], steps: Sequence[Callable[[], object]]) -> Iterator[list[int]]:
    """Run each of `steps` when this thread has run that many instructions of the lending module.

    It is what another thread may do there. The list that is given counts the instructions.
    """
    count = [0]

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != dlpack_export.__file__:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            for place, step in zip(at, steps, strict=True):
                if place == count[0]:
                    step()
            count[0] += 1
        return trace

    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(None)


def survives(reclaim: Callable[[], object]) -> bool:
    """Whether a tensor is still lent, wherever in `reclaim` its consumer takes it and drops the
    capsule."""
    x = cs.zeros(5)

    def outcome(at: tuple[int, ...]) -> tuple[bool, int]:
        held: list[Any] = [x.__dlpack__(stream=-1)]
        taken: list[Consumer] = []
        steps = (lambda: taken.append(Consumer(held[0])), held.clear)
        with interrupted(at, steps[: len(at)]) as count:
            reclaim()
        for step in steps[1 if taken else 0 :]:
            step()
        is_lent = ctypes.addressof(taken[0].managed) in dlpack_export._loans
        if is_lent:
            taken[0].give_back()
        dlpack_export.reclaim(1000)
        return is_lent, count[0]

    _, instructions = outcome(())
    assert instructions > 40
    return all(
        outcome((first, second))[0]
        for first in range(instructions)
        for second in range(first, min(first + 25, instructions))
    )


def test_a_tensor_that_is_taken_during_a_look_at_it_stays_lent(engine):
    assert survives(dlpack_export.reclaim)


def test_a_look_at_the_name_before_the_references_is_found(engine, monkeypatch):
    def is_over(loan: dlpack_export.Loan) -> bool:
        if all(loan._words[index] == word for index, word in dlpack_export._PATTERN):
            return True
        if capsules.name_of(loan.capsule) != loan.name:
            return False
        return loan.references() == dlpack_export._ALONE

    # Its instructions count as the module's.
    code = is_over.__code__.replace(co_filename=dlpack_export.__file__)
    planted = type(is_over)(code, globals())
    monkeypatch.setattr(dlpack_export.Loan, "is_over", property(planted))
    assert not survives(dlpack_export.reclaim)


class Heap:
    """malloc that gives the memory that was freed last, and refuses to free memory twice."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.free: list[int] = []

    def allocate(self, count: int, size: int) -> int:
        if self.free:
            address = self.free.pop()
        else:
            self.kept.append((ctypes.c_uint64 * 128)())
            address = ctypes.addressof(self.kept[-1])
        ctypes.memset(address, 0, 1024)
        return address

    def release(self, address: int) -> None:
        assert address not in self.free, "freed twice"
        ctypes.memset(address, 0xFF, 1024)
        self.free.append(address)


def test_memory_of_a_structure_that_came_back_belongs_to_the_next_loan(engine, monkeypatch):
    """One thread takes a loan back and lends again, while another is anywhere in its look."""
    heap = Heap()
    monkeypatch.setattr(dlpack_export, "_allocate", heap.allocate)
    monkeypatch.setattr(dlpack_export, "_free", heap.release)
    x, place, seen = cs.zeros(5), 0, 0
    while place <= seen:
        first = Consumer(x.__dlpack__(stream=-1))
        address = ctypes.addressof(first.managed)
        later: list[Consumer] = []

        def come_back(address: int = address, later: list[Consumer] = later) -> None:
            assert dlpack_export.take_back(address) is x
            later.extend(Consumer(x.__dlpack__(stream=-1)) for _ in range(2))

        with interrupted((place,), (come_back,)) as count:
            dlpack_export.reclaim()
        if not later:
            come_back()
        seen = count[0]
        dlpack_export.reclaim(1000)
        assert {ctypes.addressof(each.managed) for each in later} == set(dlpack_export._loans)
        assert len(dlpack_export.LENT) == 2
        for each in later:
            each.give_back()
        dlpack_export.reclaim(1000)
        assert not dlpack_export._loans
        assert not dlpack_export.LENT
        place += 1
    assert seen > 40
