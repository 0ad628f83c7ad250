"""The core checks an op's commands against its declared accesses, byte by byte, with overlaps."""

from __future__ import annotations

import ctypes
from functools import partial

import pytest
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.softgpu.abi.extensions.expected_accesses import (
    cudasync_begin_declared,
    cudasync_end_declared,
)
from cudasync.softgpu.core.driver_types.result_codes import (
    ASSERT,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.launch.kernel_launch import launch
from cudasync.softgpu.core.launch.op_declarations import Declaration
from cudasync.softgpu.core.launch.undeclared_access import Declared
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.oracle import compile_module

SIZE = 64


class Held:
    """A kernel `k(p0, p1)` with the given body, and its memory."""

    def __init__(self, body, before="", size=SIZE):
        self.size = size
        text = kernel(
            f"ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];\n{body}\nret;",
            parameters=".param .u64 p0, .param .u64 p1",
            before=before,
        )
        self.first_line = text[: text.index(body)].count("\n") + 1
        self.machine = machine = Machine(
            total_bytes=1 << 20, record=True, compile_module=compile_module
        )
        machine.is_initialized = True
        machine.push(machine.retain_primary(machine.device(0)))
        self.function = machine.modules.find_function(machine.modules.load(text.encode()), "k")
        self.stream = machine.streams.create(1)
        self.memory = machine.memory.allocate_device(size).start
        ctypes.memset(self.memory, 0, size)

    def run(self, *rows, p0=0, p1=SIZE // 2, before=()):
        """Launch with the declared accesses `rows`; return the failure's sentence, or "".

        `before` are the op's first actions; each is called with this object.
        """
        machine = self.machine
        declared = [Declared(self.memory + start, self.memory + end, *r) for start, end, *r in rows]
        machine.expectations.begin(Declaration(declared, "op 'o' pushed at there.py:7"))
        try:
            for each in before:
                each(self)
            self.launch(p0, p1)
            machine.streams.synchronize(self.stream)
        except DriverFailure as failure:
            allowed = failure.code in (ASSERT, NOT_PERMITTED)
            return failure.detail if allowed else repr(failure)
        finally:
            machine.expectations.end()
        return ""

    def launch(self, p0=0, p1=SIZE // 2):
        pointers = ((self.memory + p).to_bytes(8, "little") for p in (p0, p1))
        launch(
            self.machine, self.function, self.stream, (1, 1, 1), (1, 1, 1), 0, b"".join(pointers)
        )  # fmt: skip

    def fill(self, start, end):
        self.machine.transfers.fill(self.stream, self.memory + start, b"\0", end - start)

    def copy(self, target, source, size):
        """Copy between offsets of the memory, or addresses of other memory."""
        memory = self.machine.memory
        to, of = (each if each > self.size else self.memory + each for each in (target, source))
        places = memory.any_place(to, size), memory.any_place(of, size)
        self.machine.transfers.copy(self.stream, *places, size)


COPY = "ld.global.b32 %r1, [%d0];\nst.global.b32 [%d1+4], %r1;"
SWAP = "st.global.b64 [%d1], 0;\nld.global.b32 %r1, [%d1+4];\natom.global.add.u32 %r1, [%d1], 1;"
# (may read, may write)
IN, OUT, IN_OUT = (True, False), (False, True), (True, True)


def test_what_was_declared_is_not_held_against_a_launch():
    assert not Held(COPY).run((0, 32, *IN), (32, 64, *OUT))
    assert not Held(COPY).run((0, 32, *IN_OUT), (32, 64, *IN_OUT))
    assert not Held(COPY).run((0, 4, *IN), (36, 40, *OUT))


def test_a_launch_may_read_again_what_it_has_written():
    assert not Held(SWAP).run((32, 64, *OUT))


P0, P1 = "argument 1 (p0)", "argument 2 (p1)"


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ([(0, 32, *IN), (32, 64, *IN)], 1, f"byte 4 of {P1} is written, but declared of that"
         " memory are bytes -32 to 0 to be only read and bytes 0 to 32 to be only read. Name it in"
         " writes="),
        ([(0, 32, *OUT), (32, 64, *OUT)], 0, f"byte 0 of {P0} is read before this launch has"
         " written it, but declared of that memory are bytes 0 to 32 to be overwritten"),
        ([(0, 4, *IN), (32, 36, *IN_OUT)], 1, f"byte 4 of {P1} is written, but declared of that"
         " memory are bytes -32 to -28 to be only read and bytes 0 to 4 to be read and written."
         " Name the memory"),
        ([(32, 64, *OUT)], 0, f"byte 0 of {P0} is read, but"),
        ([(0, 2, *IN), (32, 64, *OUT)], 0, f"byte 2 of {P0} is read, but"),
        ([(32, 64, *OUT), (2, 4, *IN)], 0, f"byte 0 of {P0} is read, but"),
        ([], 0, f"byte 0 of {P0} is read, but nothing of that memory is declared. Name the memory"),
    ],
)  # fmt: skip
def test_a_violation_names_kernel_line_op_argument_extent_and_remedy(rows, line, words):
    held = Held(COPY)
    line += held.first_line
    expected = f"kernel k, PTX line {line}, op 'o' pushed at there.py:7: {words}"
    assert expected in held.run(*rows)


def test_an_atomic_on_what_is_to_be_overwritten_reads_its_old_value():
    body = "red.global.add.u32 [%d1], 1;"
    assert "(p1)" in Held(body).run((32, 64, *OUT))


def test_a_load_that_was_half_written_before_reads_the_other_half():
    body = "st.global.b32 [%d1], 0;\nld.global.b64 %d2, [%d1];"
    held = Held(body)
    said = held.run((32, 64, *OUT))
    assert f"PTX line {held.first_line + 1}," in said


def test_where_ranges_overlap_a_byte_may_be_used_as_any_of_them_allows():
    both = partial(Held(COPY).run, p0=0, p1=0)
    assert not both((0, 32, *IN), (0, 32, *OUT))
    assert not both((0, 8, *IN), (4, 32, *OUT))
    # Byte 4 is written, and lies outside of the bytes that may be written.
    assert "byte 4 of argument 1 (p0) is written" in both((0, 8, *IN), (8, 32, *OUT))


def test_memory_that_no_argument_points_to_is_named_by_where_it_was_made():
    held = Held("ld.global.b64 %d2, [%d0];\nst.global.b32 [%d2], 1;")
    other = held.machine.memory.allocate_device(16).start
    ctypes.c_uint64.from_address(held.memory).value = other + 8
    said = held.run((0, 64, *IN_OUT))
    assert f"byte 8 of device memory of 16 bytes at {other:#x}, allocated at {__file__}:" in said
    assert "nothing of that memory is declared" in said


def test_what_an_op_wrote_before_is_not_read_old():
    assert not Held(COPY).run((0, 64, *OUT), before=[lambda held: held.fill(0, 4)])
    assert "byte 0" in Held(COPY).run((0, 64, *OUT), before=[lambda held: held.fill(1, 4)])
    held = Held(COPY)
    assert not held.run((0, 64, *OUT), before=[lambda h: h.fill(0, 4), Held.launch], p0=36)
    copies = [lambda held: held.fill(8, 16), lambda held: held.copy(0, 8, 8)]
    assert not Held(COPY).run((0, 64, *OUT), before=copies)
    assert "a copy of 8 bytes" in Held(COPY).run((0, 64, *OUT), before=copies[1:])


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda held: held.fill(60, 68), "a memset of 8 bytes, op 'o'"),
        (lambda held: held.copy(60, 0, 8), "byte 64 of device memory of 128 bytes"),
        (lambda held: held.copy(0, 60, 8), "byte 64 of device memory of 128 bytes"),
    ],
)
def test_a_copy_or_fill_beyond_what_is_declared_is_refused_and_not_done(step, words):
    held = Held(COPY, size=128)
    ctypes.memset(held.memory, 7, 128)
    said = held.run((0, 64, *IN_OUT), before=[step])
    assert words in said
    assert (
        "declared of that memory are bytes 0 to 64 to be read and written. Name the memory" in said
    )
    assert ctypes.string_at(held.memory, 128) == bytes([7]) * 128
    # The copy did not run, so the context is still usable.
    held.machine.context()


def test_a_copy_to_host_memory_that_is_not_declared_is_refused():
    host = (ctypes.c_uint8 * 8)()
    place = ctypes.addressof(host)
    said = Held(COPY).run((0, 64, *IN_OUT), before=[lambda held: held.copy(place, 0, 8)])
    assert f"byte 0 of host memory at {place:#x} is written, but nothing" in said


def test_memory_that_the_op_allocates_is_its_own():
    made = []

    def scratch(held):
        made.append(held.machine.memory.allocate_device(8).start)
        held.copy(made[0], 0, 8)
        held.copy(8, made[0], 8)

    assert not Held(COPY).run((0, 64, *IN_OUT), before=[scratch])
    later = Held(COPY)
    later.machine.expectations.begin(Declaration([], "op"))
    made = later.machine.memory.allocate_device(8).start
    later.machine.expectations.end()
    assert later.run((0, 64, *IN_OUT), before=[lambda held: held.copy(made, 0, 8)])


def test_a_violation_ends_the_context_as_a_fault_does():
    held = Held(COPY)
    assert held.run((0, 64, *IN))
    with pytest.raises(DriverFailure, match="not declared"):
        held.machine.context()
    held.machine.reset_primary(held.machine.device(0))
    held.machine.context()


@pytest.mark.parametrize("is_held_up", [False, True])
def test_a_violation_shows_at_the_next_op_if_the_launch_can_run(is_held_up):
    held = Held(COPY)
    machine = held.machine
    flag = machine.memory.allocate_device(4).start
    ctypes.memset(flag, not is_held_up, 4)
    machine.streams.wait_value(held.stream, flag, 1, 0, 4)
    machine.expectations.begin(Declaration([], "op"))
    held.launch()
    machine.expectations.end()
    machine.context()
    machine.expectations.begin(None)
    machine.expectations.end()
    if is_held_up:
        machine.context()
        ctypes.memset(flag, 1, 4)
        with pytest.raises(DriverFailure, match="not declared"):
            machine.streams.synchronize(held.stream)
    with pytest.raises(DriverFailure, match="not declared"):
        machine.context()


def test_the_innermost_op_of_the_thread_holds_and_none_outside():
    held = Held(COPY)
    machine = held.machine

    def fails(step):
        with pytest.raises(DriverFailure, match="not declared"):
            step()

    fill = partial(held.fill, 0, 4)
    fill()
    cudasync_begin_declared(machine, 0, 0, ctypes.addressof(ctypes.create_string_buffer(b"op")))
    fails(fill)
    cudasync_begin_declared(machine, 0, 0, 0)
    fill()
    words = (ctypes.c_uint64 * 3)(held.memory, held.memory + 4, 2)
    name = ctypes.create_string_buffer(b"inner")
    cudasync_begin_declared(machine, ctypes.addressof(words), 1, ctypes.addressof(name))
    fill()
    fails(partial(held.fill, 4, 5))
    cudasync_end_declared(machine)
    fill()
    cudasync_end_declared(machine)
    fails(fill)
    cudasync_end_declared(machine)
    fill()
    machine.streams.synchronize(held.stream)


def test_the_call_that_says_what_is_declared_takes_what_makes_sense():
    machine = Held(COPY).machine
    words = (ctypes.c_uint64 * 3)(32, 16, 0)
    with pytest.raises(DriverFailure, match="row 0"):
        cudasync_begin_declared(machine, ctypes.addressof(words), 1, 0)
    with pytest.raises(DriverFailure, match="null"):
        cudasync_begin_declared(machine, 0, 1, 0)


def test_a_machine_that_does_not_record_says_so():
    with pytest.raises(DriverFailure, match="CUDASYNC_CHECK") as caught:
        cudasync_begin_declared(Machine(total_bytes=1 << 20), 0, 0, 0)
    assert caught.value.code == NOT_SUPPORTED


VARIABLES = """.global .b32 count; .global .b32 table[2] = {5, 6}; .const .b32 limit = 3;
.visible .entry other() { st.global.b32 [count], 1; ret; }"""


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("ld.global.b32 %r1, [table]; ld.const.b32 %r2, [limit];", ""),
        ("ld.global.b32 %r1, [count];", "count"),
        ("st.global.b32 [count], 1;", "count"),
        ("st.global.b32 [table], 1;", "table"),
    ],
)
def test_variables_of_the_module_are_held_to_unless_nobody_writes_them(body, name):
    said = Held(body, VARIABLES).run((0, 64, *IN_OUT))
    assert f"module variable {name!r} of" in said if name else not said
    held = Held(body, VARIABLES)
    places = [each for each in held.function.module.variables.values() if each.name == name]
    rows = [(each.start - held.memory, each.end - held.memory, *IN_OUT) for each in places]
    assert not held.run(*rows)
