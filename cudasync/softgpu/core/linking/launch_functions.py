"""Cellar. Launches from device code: functions of the device's run-time library, in PTX.

For `kernel<<<...>>>()` in device code, nvcc writes a call of cudaGetParameterBufferV2, stores of
the arguments, and a call of cudaLaunchDeviceV2. These functions leave the launch in the memory of
the grid (`interface/pending_launches.py`); the core runs it when the blocks of the grid are over.
An error is kept for its thread, and cudaGetLastError returns it.

A text names itself NAME, because a program may call one function by several names.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cudasync.softgpu.core.driver_types.device_limits import MAX_BLOCK, MAX_GRID
from cudasync.softgpu.core.linking.launch_errors import Code, words_function
from cudasync.softgpu.interface import function_addresses as addresses
from cudasync.softgpu.interface import pending_launches as pending


class Part(NamedTuple):
    """PTX, and the parts that it refers to."""

    text: str
    needs: tuple[str, ...] = ()


REGISTERS: Final = f"""\
    .reg .pred %is;
    .reg .b32 %code, %a, %b, %c, %x, %y, %z;
    .reg .b64 %pool, %at, %from, %to, %n, %m, %i;
    mov.u64 %pool, {pending.VARIABLE};"""
FAILS: Final = """\
fails:
    call cudasync_launch_fails, (%code);
    st.param.b32 [status], %code;
    ret;"""
# The index of the block in its grid, in %n; changes %a, %b and %c.
_BLOCK: Final = """\
    mov.u32 %a, %ctaid.z; mov.u32 %b, %nctaid.y; mov.u32 %c, %ctaid.y;
    mad.lo.u32 %a, %a, %b, %c;
    mov.u32 %b, %nctaid.x; mov.u32 %c, %ctaid.x; cvt.u64.u32 %n, %c;
    mad.wide.u32 %n, %a, %b, %n;"""


def _size(parameter: str, most: tuple[int, int, int]) -> str:
    """PTX that reads a dim3 into %x, %y and %z, and fails if a part of it is out of bounds."""
    lines = [f"    mov.u32 %code, {Code.INVALID_CONFIGURATION};"]
    for index, register in enumerate(("%x", "%y", "%z")):
        lines += [
            f"    ld.param.u32 {register}, [{parameter}+{4 * index}];",
            f"    sub.u32 %c, {register}, 1;",
            f"    setp.ge.u32 %is, %c, {most[index]};",
            "    @%is bra fails;",
        ]
    return "\n".join(lines)


def _kept(offset: int) -> str:
    """PTX that stores the dim3 in %x, %y and %z in a slot."""
    return f"    st.u32 [%at+{offset}], %x; st.u32 [%at+{offset + 4}], %y;" + (
        f" st.u32 [%at+{offset + 8}], %z;"
    )


def knows_handle(low: int, made: int) -> str:
    """The end of a check of the handle in %n, one of the grid's own: its code is 0 if the grid has
    made it. `low` is the handle's lower half byte, `made` the place of the number made."""
    return f"""\
    sub.u64 %n, %n, {pending.FIRST_HANDLE};
    and.b64 %m, %n, 15;
    setp.ne.u64 %is, %m, {low};
    @%is bra known;
    shr.u64 %n, %n, 4;
    ld.u32 %a, [%pool+{made}]; cvt.u64.u32 %m, %a;
    setp.lt.u64 %is, %n, %m;
    @%is mov.u32 %code, 0;
known:
    st.param.b32 [status], %code;
    ret;"""


OWN_PARTS: Final = {
    pending.VARIABLE: Part(f".global .align 16 .b8 {pending.VARIABLE}[{pending.HEADER_BYTES}];\n"),
    "cudasync_error_place": Part(
        f"""
.func (.param .b64 place) cudasync_error_place()
{{
{REGISTERS}
    ld.u64 %at, [%pool+{pending.ERRORS_AT}];
{_BLOCK}
    mov.u32 %x, %ntid.x; mov.u32 %y, %ntid.y; mov.u32 %z, %ntid.z;
    mul.lo.u32 %a, %x, %y; mul.lo.u32 %a, %a, %z; cvt.u64.u32 %m, %a;
    mul.lo.u64 %n, %n, %m;
    mov.u32 %a, %tid.z; mov.u32 %b, %tid.y; mad.lo.u32 %b, %a, %y, %b;
    mov.u32 %a, %tid.x; mad.lo.u32 %a, %b, %x, %a; cvt.u64.u32 %m, %a;
    add.u64 %n, %n, %m; shl.b64 %n, %n, 2; add.u64 %at, %at, %n;
    st.param.b64 [place], %at;
    ret;
}}
""",
        (pending.VARIABLE,),
    ),
    "cudasync_launch_fails": Part(
        f"""
.func cudasync_launch_fails(.param .b32 code)
{{
{REGISTERS}
    ld.param.u32 %code, [code];
    call (%at), cudasync_error_place, ();
    st.u32 [%at], %code;
    mov.u32 %a, 1;
    st.u32 [%pool+{pending.FAILED}], %a;
    ret;
}}
""",
        ("cudasync_error_place",),
    ),
    # 0 for a stream that a grid may use, else an error.
    "cudasync_check_stream": Part(
        f"""
.func (.param .b32 status) cudasync_check_stream(.param .b64 stream)
{{
{REGISTERS}
    ld.param.u64 %n, [stream];
    mov.u32 %code, 0;
    setp.le.u64 %is, %n, {pending.FIRE_AND_FORGET};
    @%is bra known;
    mov.u32 %code, {Code.INVALID_RESOURCE_HANDLE};
{knows_handle(0, pending.STREAMS)}
}}
""",
        (pending.VARIABLE,),
    ),
}
FUNCTIONS: Final = {
    "GetParameterBufferV2": Part(
        f"""
.visible .func (.param .b64 buffer) NAME(
    .param .b64 function, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12],
    .param .b32 shared
)
{{
{REGISTERS}
    ld.u32 %a, [%pool+{pending.DEPTH}]; ld.u32 %b, [%pool+{pending.MOST_DEPTH}];
    mov.u32 %code, {Code.LAUNCH_MAX_DEPTH_EXCEEDED};
    setp.ge.u32 %is, %a, %b;
    @%is bra fails;
    ld.param.u64 %from, [function];
    mov.u32 %code, {Code.INVALID_DEVICE_FUNCTION};
    sub.u64 %n, %from, {addresses.FIRST};
    rem.u64 %m, %n, {addresses.DISTANCE};
    setp.ne.u64 %is, %m, 0;
    @%is bra fails;
    div.u64 %n, %n, {addresses.DISTANCE};
    ld.u32 %a, [%pool+{pending.FUNCTIONS}]; cvt.u64.u32 %m, %a;
    setp.ge.u64 %is, %n, %m;
    @%is bra fails;
    ld.u64 %to, [%pool+{pending.ROWS_AT}];
    mad.lo.u64 %to, %n, {pending.ROW_BYTES}, %to;
    ld.u32 %a, [%to];
    setp.eq.u32 %is, %a, 0;
    @%is bra fails;
{_size("grid", MAX_GRID)}
{_size("block", MAX_BLOCK)}
    mul.lo.u32 %b, %x, %y; mul.lo.u32 %b, %b, %z;
    setp.gt.u32 %is, %b, %a;
    @%is bra fails;
    ld.u32 %a, [%to+4];
    ld.param.u32 %b, [shared];
    setp.gt.u32 %is, %b, %a;
    @%is bra fails;
    atom.global.add.u32 %a, [%pool+{pending.TAKEN}], 1;
    ld.u32 %c, [%pool+{pending.MOST}];
    mov.u32 %code, {Code.LAUNCH_PENDING_COUNT_EXCEEDED};
    setp.ge.u32 %is, %a, %c;
    @%is bra fails;
    ld.u32 %c, [%pool+{pending.SLOT_SIZE}]; ld.u64 %at, [%pool+{pending.SLOTS_AT}];
    mad.wide.u32 %at, %a, %c, %at;
    st.u64 [%at], %from;
{_kept(20)}
    ld.param.u32 %x, [grid]; ld.param.u32 %y, [grid+4]; ld.param.u32 %z, [grid+8];
{_kept(8)}
    st.u32 [%at+32], %b;
{_BLOCK}
    st.u64 [%at+{pending.BLOCK_AT}], %n;
    mov.u32 %a, {pending.HANDED_OUT};
    st.u32 [%at+{pending.STATE_AT}], %a;
    add.u64 %at, %at, {pending.SLOT_BYTES};
    st.param.b64 [buffer], %at;
    ret;
fails:
    call cudasync_launch_fails, (%code);
    mov.u64 %at, 0;
    st.param.b64 [buffer], %at;
    ret;
}}
""",
        ("cudasync_launch_fails",),
    ),
    "LaunchDeviceV2": Part(
        f"""
.visible .func (.param .b32 status) NAME(.param .b64 buffer, .param .b64 stream)
{{
{REGISTERS}
    ld.param.u64 %at, [buffer];
    ld.u64 %from, [%pool+{pending.SLOTS_AT}];
    sub.u64 %at, %at, {pending.SLOT_BYTES};
    sub.u64 %n, %at, %from;
    ld.u32 %a, [%pool+{pending.SLOT_SIZE}]; cvt.u64.u32 %m, %a;
    ld.u32 %b, [%pool+{pending.TAKEN}]; ld.u32 %c, [%pool+{pending.MOST}];
    min.u32 %b, %b, %c; cvt.u64.u32 %i, %b;
    mov.u32 %code, {Code.INVALID_VALUE};
    div.u64 %to, %n, %m;
    setp.ge.u64 %is, %to, %i;
    @%is bra fails;
    rem.u64 %to, %n, %m;
    setp.ne.u64 %is, %to, 0;
    @%is bra fails;
    ld.u32 %a, [%at+{pending.STATE_AT}];
    setp.ne.u32 %is, %a, {pending.HANDED_OUT};
    @%is bra fails;
    ld.param.u64 %n, [stream];
    call (%code), cudasync_check_stream, (%n);
    setp.ne.u32 %is, %code, 0;
    @%is bra fails;
    st.u64 [%at+{pending.STREAM_AT}], %n;
    atom.global.add.u32 %a, [%pool+{pending.LAUNCHED}], 1;
    cvt.u64.u32 %n, %a;
    st.u64 [%at+{pending.ORDER_AT}], %n;
    mov.u32 %a, {pending.IS_LAUNCHED};
    st.u32 [%at+{pending.STATE_AT}], %a;
    mov.u32 %code, 0;
    st.param.b32 [status], %code;
    ret;
{FAILS}
}}
""",
        ("cudasync_launch_fails", "cudasync_check_stream"),
    ),
    **{
        name: Part(
            f"""
.visible .func (.param .b32 status) NAME()
{{
{REGISTERS}
    mov.u32 %code, 0;
    ld.u32 %a, [%pool+{pending.FAILED}];
    setp.eq.u32 %is, %a, 0;
    @%is bra known;
    call (%at), cudasync_error_place, ();
    ld.u32 %code, [%at];
{clears}known:
    st.param.b32 [status], %code;
    ret;
}}
""",
            ("cudasync_error_place",),
        )
        for name, clears in (
            ("GetLastError", "    mov.u32 %a, 0;\n    st.u32 [%at], %a;\n"),
            ("PeekAtLastError", ""),
        )
    },
    "GetErrorName": Part(words_function(describes=False)),
    "GetErrorString": Part(words_function(describes=True)),
}
