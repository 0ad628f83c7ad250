"""A launch that is held to what was said of it: byte by byte, overlaps included, in the core."""

from __future__ import annotations

import ctypes
from functools import partial

import pytest
from helpers.ptx_text import kernel

from cudasync.softgpu.abi.calls_check import cudasync_expect_accesses
from cudasync.softgpu.core.expectations import Expected
from cudasync.softgpu.core.launches import launch
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.results import ASSERT, NOT_SUPPORTED, DriverFailure
from cudasync.softgpu.oracle import compile_module

SIZE = 64


class Held:
    """A kernel `k(p0, p1)` with a body, and memory for it."""

    def __init__(self, body):
        text = kernel(
            f"ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];\n{body}\nret;",
            parameters=".param .u64 p0, .param .u64 p1",
        )
        self.first_line = text[: text.index(body)].count("\n") + 1
        self.machine = machine = Machine(
            total_bytes=1 << 20, record=True, compile_module=compile_module
        )
        machine.is_initialized = True
        machine.push(machine.retain_primary(machine.device(0)))
        self.function = machine.modules.find_function(machine.modules.load(text.encode()), "k")
        self.stream = machine.streams.create(1)
        self.memory = machine.memory.allocate_device(SIZE).start
        ctypes.memset(self.memory, 0, SIZE)

    def run(self, *rows, p0=0, p1=SIZE // 2):
        """Launch with pointers to these bytes of the memory; what is said if it fails, else ""."""
        expected = [
            Expected(parameter, self.memory + start, self.memory + end, *rest)
            for parameter, start, end, *rest in rows
        ]
        expectations = self.machine.expectations
        expectations.expect(self.function.handle, expected, "there.py:7")
        pointers = ((self.memory + p).to_bytes(8, "little") for p in (p0, p1))
        launch(
            self.machine, self.function, self.stream, (1, 1, 1), (1, 1, 1), 0, b"".join(pointers),
            expectations.take(self.function.handle),
        )  # fmt: skip
        try:
            self.machine.streams.synchronize(self.stream)
        except DriverFailure as failure:
            return failure.detail if failure.code == ASSERT else repr(failure)
        return ""


COPY = "ld.global.b32 %r1, [%d0];\nst.global.b32 [%d1+4], %r1;"
SWAP = "st.global.b64 [%d1], 0;\nld.global.b32 %r1, [%d1+4];\natom.global.add.u32 %r1, [%d1], 1;"
# Reads, writes, by hand.
IN, OUT, IN_OUT = (True, False, True), (False, True, True), (True, True, True)
READ, VALUE = (True, False, False), (False, False, False)


def test_what_was_declared_is_not_held_against_a_launch():
    assert not Held(COPY).run((0, 0, 32, *IN), (1, 32, 64, *OUT))
    assert not Held(COPY).run((0, 0, 32, *IN_OUT), (1, 32, 64, *IN_OUT))
    assert not Held(COPY).run((0, 0, 32, *READ))
    assert not Held(COPY).run()


def test_a_launch_may_read_again_what_it_has_written():
    assert not Held(SWAP).run((1, 32, 64, *OUT))


@pytest.mark.parametrize(
    ("row", "line", "words"),
    [
        ((1, 32, 64, *IN), 1, "argument 2 (p1) is declared to be read only (In), but its byte 4"
         " is written"),
        ((0, 0, 32, *OUT), 0, "argument 1 (p0) is declared to be overwritten without being read"
         " (Out), but its byte 0 is read before this launch has written it"),
        ((1, 36, 40, *READ), 1, "argument 2 (p1) was inferred to be read only, but its byte 0 is"
         " written"),
        ((0, 0, 8, *VALUE), 0, "argument 1 (p0) was inferred to be never used as an address, but"
         " its byte 0 is read"),
    ],
)  # fmt: skip
def test_a_violation_names_kernel_line_call_and_argument(row, line, words):
    held = Held(COPY)
    said = held.run(row)
    line += held.first_line
    assert f"kernel k, PTX line {line}, called at there.py:7: {words}" in said


def test_an_atomic_on_what_is_to_be_overwritten_reads_its_old_value():
    body = "red.global.add.u32 [%d1], 1;"
    assert "(p1)" in Held(body).run((1, 32, 64, *OUT))


def test_a_load_that_was_half_written_before_reads_the_other_half():
    body = "st.global.b32 [%d1], 0;\nld.global.b64 %d2, [%d1];"
    held = Held(body)
    said = held.run((1, 32, 64, *OUT))
    assert f"PTX line {held.first_line + 1}," in said


def test_where_arguments_overlap_a_byte_may_be_used_as_any_of_them_allows():
    both = partial(Held(COPY).run, p0=0, p1=0)
    assert not both((0, 0, 32, *IN), (1, 0, 32, *OUT))
    assert not both((0, 0, 8, *IN), (1, 4, 32, *OUT))
    # The written byte 4 is not in what may be written.
    said = both((0, 0, 8, *IN), (1, 8, 32, *OUT))
    assert "argument 1 (p0) is declared to be read only (In), but its byte 4 is written" in said


def test_who_was_narrowed_by_hand_is_named_before_who_was_inferred():
    said = Held(COPY).run((0, 0, 64, *READ), (1, 0, 64, *IN), p1=0)
    assert "argument 2 (p1) is declared" in said


def test_a_violation_ends_the_context_as_a_fault_does():
    held = Held(COPY)
    assert held.run((1, 32, 64, *IN))
    with pytest.raises(DriverFailure, match="not declared"):
        held.machine.context()
    held.machine.reset_primary(held.machine.device(0))
    held.machine.context()


def test_an_expectation_is_of_one_launch_of_one_function():
    expectations = Held(COPY).machine.expectations
    row = Expected(0, 0, 8, *IN)
    expectations.expect(5, [row], "")
    assert expectations.take(5) is not None
    assert expectations.take(5) is None
    expectations.expect(5, [row], "")
    assert expectations.take(6) is None
    assert expectations.take(5) is None
    expectations.expect(5, [row], "")
    expectations.expect(0, [], "")
    assert expectations.take(5) is None


def test_the_call_that_says_what_is_expected_takes_what_makes_sense():
    machine = (held := Held(COPY)).machine
    handle = held.function.handle

    def call(*row, handle=handle):
        words = (ctypes.c_uint64 * 4)(*row)
        cudasync_expect_accesses(machine, handle, ctypes.addressof(words), 1, 0)
        return machine.expectations.take(handle)

    assert call(1, 16, 32, 7).recording.ranges == [(16, 32)]
    for row in [(2, 16, 32, 0), (0, 32, 16, 0)]:
        with pytest.raises(DriverFailure, match="row 0"):
            call(*row)
    with pytest.raises(DriverFailure, match="null"):
        cudasync_expect_accesses(machine, handle, 0, 1, 0)
    with pytest.raises(DriverFailure):
        call(1, 16, 32, 7, handle=12345)


def test_a_machine_that_does_not_record_says_so():
    with pytest.raises(DriverFailure, match="CUDASYNC_CHECK") as caught:
        cudasync_expect_accesses(Machine(total_bytes=1 << 20), 0, 0, 0, 0)
    assert caught.value.code == NOT_SUPPORTED
