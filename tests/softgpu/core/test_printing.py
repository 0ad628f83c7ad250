"""Output of kernels has C's format, is in order, and appears when the program synchronises."""

from __future__ import annotations

import math
import struct
import textwrap
from pathlib import Path

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.repository.subprocesses import run_text

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.core.launch.printf_format import formatted
from cudasync.softgpu.interface import printf_arguments
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.interface.printf_buffer import CAPACITY, HEADER_BYTES, VARIABLE

pytestmark = pytest.mark.sampled(2)

CORPUS = Path(__file__).parents[1] / "corpus"
TARGETS = (75, 120)
both = pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])


def text_of(target: int) -> str:
    return (CORPUS / f"printing_sm{target}.ptx").read_text()


@pytest.mark.parametrize(
    ("text", "layout", "values", "printed"),
    [
        ("%d|%5d|%-5d|%05d|%+d", "<5i", (-7, 42, 42, 42, 42), "-7|   42|42   |00042|+42"),
        ("%u %x %X %#x %o %#o", "<6i", (-1, 255, 255, 255, 8, 8), "4294967295 ff FF 0xff 10 010"),
        ("%hhd %hd %hu", "<3i", (300, 70000, -1), "44 4464 65535"),
        ("%lld %llu %zu", "<3q", (-1, -1, 5), "-1 18446744073709551615 5"),
        ("%d %f %d %lld", "<i4xdi4xq", (1, 0.5, 2, 3), "1 0.500000 2 3"),
        ("%.3f|%8.2f|%-8.1f|%g", "<4d", (math.pi,) * 4, "3.142|    3.14|3.1     |3.14159"),
        ("%e %.0f", "<2d", (math.pi, 2.5), "3.141593e+00 2"),
        ("%f %F %g", "<3d", (math.inf, -math.inf, math.nan), "inf -INF nan"),
        ("%a %A", "<2d", (0.5, 3.0), "0x1p-1 0X1.8P+1"),
        ("%c%c|%3c|%-3c|", "<4i", (104, 105, 33, 33), "hi|  !|!  |"),
        ("%s|%6s|%-6s|%.2s", "<4Q", (1, 1, 1, 1), "abc|   abc|abc   |ab"),
        ("%p %p", "<2Q", (0, 4096), "(nil) 0x1000"),
        ("%*d|%-*d|%.*f", "<5i4xd", (5, 1, 3, 2, 1, 0.25), "    1|2  |0.2"),
        ("100%% %", "", (), "100% %"),
        ("%d %d", "<i", (1,), "1 0"),
        ("no end %", "", (), "no end %"),
    ],
)  # fmt: skip
def test_a_format_is_printed_as_c_does(text, layout, values, printed):
    data = struct.pack(layout, *values)
    assert formatted(text.encode(), data, lambda _address: b"abc").decode() == printed


SCRIPT = """
import numpy as np
from cudasync.driver import Device, DeviceBuffer, Module, Stream, launch, memcpy_async
from cudasync.errors import CudaError
device = Device(0)
module = Module.from_ptx(open({file!r}).read(), device=device)
stream = Stream(device)
def run(name, *args, block=(4,)):
    launch(module.kernel(name), grid=(2,), block=block, args=args, stream=stream)
"""


def printed_by(target: int, lowering: str, program: str) -> list[str]:
    script = SCRIPT.format(file=str(CORPUS / f"printing_sm{target}.ptx")) + textwrap.dedent(program)
    code, printed = run_text(script, 60, CUDASYNC_SOFTGPU_LOWERING=lowering)
    assert code == 0, printed
    return printed.splitlines()


@pytest.mark.parametrize(("target", "lowering"), [(75, "jit"), (120, "oracle")])
def test_threads_print_in_order_when_the_stream_is_synchronised(target, lowering):
    program = """
        run("print_numbers", np.int32(3))
        print("launched")
        stream.synchronize()
        print("done", flush=True)
        run("choose_format", np.int32(1), block=(1,))
        run("choose_format", np.int32(0), block=(1,))
        stream.synchronize()
    """
    block = [
        "0 of block:  0.00|a   |10000000000 %",
        "1 of block:  0.50|b   |20000000000 %",
        "2 of block:  1.00|c   |40000000000 %",
    ]
    others = ["one 1", "one 1", "other 0", "other 0"]
    found = printed_by(target, lowering, program)
    assert found == ["launched", *block, *block, "done", *others]


@pytest.mark.parametrize(("target", "lowering"), [(120, "jit"), (75, "oracle")])
def test_a_failed_assertion_is_told_as_cuda_tells_it(target, lowering):
    program = """
        values = np.array([1, 200, 3, 4], np.int32)
        buffer = DeviceBuffer(values.nbytes, device)
        memcpy_async(buffer, values, stream=stream)
        run("check", buffer)
        try:
            stream.synchronize()
        except CudaError as error:
            print(error.code)
    """
    first, *rest = printed_by(target, lowering, program)
    assert first.startswith("printing.cu:")
    assert first.endswith(
        "block: [0,0,0], thread: [1,0,0] Assertion `values[threadIdx.x] < 100` failed."
    )
    assert rest[-1] == "710"


@both
@pytest.mark.parametrize("target", TARGETS)
def test_printf_returns_the_number_of_its_arguments(target, room):
    module = room.compile_module(parse(text_of(target)))
    counts = bare_launch.aligned(np.full(2, -1, np.int32))
    outcome = bare_launch.run(module, "print_count", grid=(1,), block=(1,), args=[counts])
    assert outcome.kind is OutcomeKind.DONE
    assert counts.tolist() == [0, 3]


@both
def test_records_beyond_the_capacity_are_lost_and_nothing_else(room):
    module = room.compile_module(parse(text_of(75)))
    variables = bare_launch.make_variables(module)
    (index,) = (i for i, each in enumerate(module.variables) if each.name == VARIABLE)
    output = variables[index]
    almost = CAPACITY - 104
    output[:8] = list(almost.to_bytes(8, "little"))
    outcome = bare_launch.run(
        module, "print_numbers", grid=(1,), block=(32,), args=[np.int32(32).tobytes()],
        variables=variables,
    )  # fmt: skip
    assert outcome.kind is OutcomeKind.DONE
    written = np.flatnonzero(output[8:])
    assert written.min() + 8 == HEADER_BYTES + almost
    assert written.max() + 8 < HEADER_BYTES + CAPACITY


@both
@pytest.mark.parametrize("target", TARGETS)
def test_memory_from_malloc_outlives_the_launch_and_ends_in_null(target, room):
    module = room.compile_module(parse(text_of(target)))
    variables = bare_launch.make_variables(module)
    places, values = (bare_launch.aligned(np.zeros(8, np.uint64)) for _ in range(2))

    def run(name, *args):
        outcome = bare_launch.run(
            module, name, grid=(1,), block=(8,), args=list(args), variables=variables,
        )  # fmt: skip
        assert outcome.kind is OutcomeKind.DONE, outcome.fault

    run("allocate", places, (100).to_bytes(8, "little"))
    assert len(set(places.tolist())) == 8
    run("follow", places, values)
    assert values.view(np.int32)[:8].tolist() == list(range(8))
    run("allocate", places, (3 << 20).to_bytes(8, "little"))
    assert np.count_nonzero(places) == 2
    run("allocate", places, (2**64 - 1).to_bytes(8, "little"))
    assert not places.any()
    run("allocate", places, (8).to_bytes(8, "little"))
    assert places.all()


NEAR_STRINGS = r"""
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 format[] = {
    91, 37, 100, 32, 37, 115, 124, 37, 46, 50, 115, 124, 37, 115, 93, 10, 0
};
.global .align 1 .b8 far[] = {102, 97, 114, 0};
.visible .entry print(.param .u32 last)
{
    .local .align 8 .b8 frame[5032];
    .shared .align 8 .b8 near[8];
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .param .b64 first;
    .param .b64 second;
    .param .b32 result;

    mov.u32 %r0, %tid.x;
    add.u32 %r1, %r0, 97;
    mov.u32 %r2, 0x00636261;
    st.shared.b32 [near], %r2;
    mov.u64 %d0, frame;
    mov.u32 %r3, 0;
fill:
    cvt.u64.u32 %d1, %r3;
    add.u64 %d1, %d0, %d1;
    st.local.u8 [%d1+32], %r1;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p, %r3, 5000;
    @%p bra fill;
    ld.param.u32 %r4, [last];
    cvt.u64.u32 %d1, %r4;
    add.u64 %d1, %d0, %d1;
    mov.u32 %r5, 0;
    st.local.u8 [%d1+32], %r5;
    st.local.b32 [frame], %r0;
    cvta.local.u64 %d2, %d0;
    add.u64 %d3, %d2, 32;
    st.local.b64 [frame+8], %d3;
    mov.u64 %d4, near;
    cvta.shared.u64 %d4, %d4;
    st.local.b64 [frame+16], %d4;
    mov.u64 %d5, far;
    cvta.global.u64 %d5, %d5;
    st.local.b64 [frame+24], %d5;
    mov.u64 %d6, format;
    cvta.global.u64 %d6, %d6;
    st.param.b64 [first], %d6;
    st.param.b64 [second], %d2;
    call (result), vprintf, (first, second);
    ret;
}
"""


@pytest.mark.parametrize("lowering", ["jit", "oracle"])
def test_strings_in_local_and_shared_memory_are_printed(lowering, tmp_path):
    file = tmp_path / "strings.ptx"
    file.write_text(NEAR_STRINGS)
    script = SCRIPT.format(file=str(file)) + textwrap.dedent("""
        run("print", np.uint32(3), block=(2,))
        run("print", np.uint32(4999), block=(1,))
        stream.synchronize()
    """)
    code, printed = run_text(script, 60, CUDASYNC_SOFTGPU_LOWERING=lowering)
    assert code == 0, printed
    short = ["[0 aaa|ab|far]", "[1 bbb|ab|far]"]
    # A longer one is cut.
    assert printed.splitlines() == [*short, *short, *[f"[0 {'a' * 4095}|ab|far]"] * 2]


@pytest.mark.parametrize(
    ("text", "slots", "count"),
    [
        (b"%s", 0b1, 1),
        (b"%d%s %d %s", 0b1010, 4),
        (b"%*d%.*s%lld%s", 0b10100, 6),
        (b"100%% %c%hhd%s %f%p%n", 0b10, 6),
        (b"nothing %", 0, 0),
    ],
)
def test_the_places_of_strings_among_arguments(text, slots, count):
    assert printf_arguments.string_slots(text) == slots
    assert printf_arguments.count(text) == count
