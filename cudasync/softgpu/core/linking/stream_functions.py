"""Cellar. Streams, events, copies and queries in device code, in PTX.

The launches of a block run one after the other in the order of their calls, which is an order for
any streams and events. So streams and events only have handles here. A copy and a memset are
launches of two small kernels, so that checks see their accesses.
"""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.core.linking.launch_errors import Code
from cudasync.softgpu.core.linking.launch_functions import FAILS, REGISTERS, Part, knows_handle
from cudasync.softgpu.interface import pending_launches as pending

# Threads of the block that copies or fills.
_THREADS: Final = 256
_NON_BLOCKING: Final = 1
_DISABLE_TIMING: Final = 2
_DEVICE_TO_DEVICE: Final = 3

_SUCCEEDS: Final = f"""\
    mov.u32 %code, 0;
    st.param.b32 [status], %code;
    ret;
{FAILS}"""
_FAILS_IF_CODE: Final = """\
    setp.ne.u32 %is, %code, 0;
    @%is bra fails;"""
_CHECKS_STREAM: Final = f"""\
    ld.param.u64 %n, [stream];
    call (%code), cudasync_check_stream, (%n);
{_FAILS_IF_CODE}"""
_CHECKS_EVENT: Final = f"""\
    ld.param.u64 %n, [event];
    call (%code), cudasync_check_event, (%n);
{_FAILS_IF_CODE}"""


def _function(parameters: str, body: str, *needs: str) -> Part:
    text = f"""
.visible .func (.param .b32 status) NAME({parameters})
{{
{REGISTERS}
{body}
{_SUCCEEDS}
}}
"""
    return Part(text, ("cudasync_launch_fails", *needs))


def _makes(counter: int, flags: int, first: int) -> Part:
    """A function that makes a stream or an event, which must have exactly these flags."""
    return _function(
        ".param .b64 place, .param .b32 flags",
        f"""\
    ld.param.u32 %a, [flags];
    mov.u32 %code, {Code.INVALID_VALUE};
    setp.ne.u32 %is, %a, {flags};
    @%is bra fails;
    atom.global.add.u32 %a, [%pool+{counter}], 1;
    cvt.u64.u32 %n, %a; shl.b64 %n, %n, 4; add.u64 %n, %n, {first};
    ld.param.u64 %to, [place];
    st.u64 [%to], %n;""",
    )


def _launches(kernel: str, count: str, stores: str) -> str:
    """PTX that launches a block of `kernel` unless there is nothing to do."""
    return f"""\
    ld.param.u64 %n, [{count}];
    setp.eq.u64 %is, %n, 0;
    @%is bra done;
    mov.u64 %i, {kernel};
    {{
    .param .b64 function; .param .align 4 .b8 grid[12]; .param .align 4 .b8 block[12];
    .param .b32 shared; .param .b64 made;
    st.param.b64 [function], %i;
    st.param.b32 [grid], 1; st.param.b32 [grid+4], 1; st.param.b32 [grid+8], 1;
    st.param.b32 [block], {_THREADS}; st.param.b32 [block+4], 1; st.param.b32 [block+8], 1;
    st.param.b32 [shared], 0;
    call (made), cudasync_GetParameterBufferV2, (function, grid, block, shared);
    ld.param.b64 %at, [made];
    }}
    call (%code), cudasync_PeekAtLastError, ();
    setp.eq.u64 %is, %at, 0;
    @%is bra fails;
{stores}
    ld.param.u64 %m, [stream];
    call (%code), cudasync_LaunchDeviceV2, (%at, %m);
{_FAILS_IF_CODE}
done:"""


_LAUNCHING: Final = (
    "cudasync_GetParameterBufferV2",
    "cudasync_PeekAtLastError",
    "cudasync_LaunchDeviceV2",
)


def _bytes_kernel(parameters: str, begins: str, does: str) -> str:
    """A kernel of one block, whose threads take the bytes in turn."""
    return f"""
.visible .entry NAME({parameters})
{{
    .reg .pred %is;
    .reg .b32 %a, %x;
    .reg .b64 %from, %to, %n, %m, %i;
    ld.param.u64 %to, [to]; ld.param.u64 %n, [count];
    mov.u32 %x, %tid.x; cvt.u64.u32 %i, %x;
    mov.u32 %x, %ntid.x; cvt.u64.u32 %m, %x;
    add.u64 %to, %to, %i;
    {begins}
again:
    setp.ge.u64 %is, %i, %n;
    @%is ret;
    {does}
    st.global.u8 [%to], %a;
    add.u64 %i, %i, %m; add.u64 %to, %to, %m;
    bra again;
}}
"""


OWN_PARTS: Final = {
    "cudasync_check_event": Part(
        f"""
.func (.param .b32 status) cudasync_check_event(.param .b64 event)
{{
{REGISTERS}
    mov.u32 %code, {Code.INVALID_RESOURCE_HANDLE};
    ld.param.u64 %n, [event];
{knows_handle(8, pending.EVENTS)}
}}
""",
        (pending.VARIABLE,),
    ),
    "cudasync_copy_bytes": Part(
        _bytes_kernel(
            ".param .u64 to, .param .u64 from, .param .u64 count",
            "ld.param.u64 %from, [from]; add.u64 %from, %from, %i;",
            "ld.global.u8 %a, [%from]; add.u64 %from, %from, %m;",
        )
    ),
    "cudasync_fill_bytes": Part(
        _bytes_kernel(
            ".param .u64 to, .param .u64 count, .param .u32 value",
            "ld.param.u32 %a, [value];",
            "",
        )
    ),
}
FUNCTIONS: Final = {
    "StreamCreateWithFlags": _makes(pending.STREAMS, _NON_BLOCKING, pending.FIRST_HANDLE),
    "StreamDestroy": _function(".param .b64 stream", _CHECKS_STREAM, "cudasync_check_stream"),
    "StreamWaitEvent": _function(
        ".param .b64 stream, .param .b64 event, .param .b32 flags",
        f"{_CHECKS_STREAM}\n{_CHECKS_EVENT}",
        "cudasync_check_stream",
        "cudasync_check_event",
    ),
    "EventCreateWithFlags": _makes(pending.EVENTS, _DISABLE_TIMING, pending.FIRST_HANDLE + 8),
    "EventDestroy": _function(".param .b64 event", _CHECKS_EVENT, "cudasync_check_event"),
    "EventRecord": _function(
        ".param .b64 event, .param .b64 stream",
        f"{_CHECKS_STREAM}\n{_CHECKS_EVENT}",
        "cudasync_check_stream",
        "cudasync_check_event",
    ),
    "MemcpyAsync": _function(
        ".param .b64 to, .param .b64 from, .param .b64 count, .param .b32 kind, .param .b64 stream",
        f"""\
    ld.param.u32 %a, [kind];
    mov.u32 %code, {Code.INVALID_MEMCPY_DIRECTION};
    setp.lt.u32 %is, %a, {_DEVICE_TO_DEVICE};
    @%is bra fails;
    setp.gt.u32 %is, %a, {_DEVICE_TO_DEVICE + 1};
    @%is bra fails;
"""
        + _launches(
            "cudasync_copy_bytes",
            "count",
            """\
    ld.param.u64 %to, [to]; ld.param.u64 %from, [from];
    st.u64 [%at], %to; st.u64 [%at+8], %from; st.u64 [%at+16], %n;""",
        ),
        "cudasync_copy_bytes",
        *_LAUNCHING,
    ),
    "MemsetAsync": _function(
        ".param .b64 to, .param .b32 value, .param .b64 count, .param .b64 stream",
        _launches(
            "cudasync_fill_bytes",
            "count",
            """\
    ld.param.u64 %to, [to]; ld.param.u32 %a, [value];
    st.u64 [%at], %to; st.u64 [%at+8], %n; st.u32 [%at+16], %a;""",
        ),
        "cudasync_fill_bytes",
        *_LAUNCHING,
    ),
    "Malloc": Part(
        f"""
.extern .func (.param .b64 made) malloc(.param .b64 size);
.visible .func (.param .b32 status) NAME(.param .b64 place, .param .b64 size)
{{
{REGISTERS}
    ld.param.u64 %to, [place]; ld.param.u64 %n, [size];
    call (%at), malloc, (%n);
    mov.u32 %code, {Code.MEMORY_ALLOCATION};
    setp.eq.u64 %is, %at, 0;
    @%is bra fails;
    st.u64 [%to], %at;
{_SUCCEEDS}
}}
""",
        ("cudasync_launch_fails",),
    ),
    "Free": Part(
        f"""
.extern .func free(.param .b64 place);
.visible .func (.param .b32 status) NAME(.param .b64 place)
{{
{REGISTERS}
    ld.param.u64 %n, [place];
    call free, (%n);
    mov.u32 %code, 0;
    st.param.b32 [status], %code;
    ret;
}}
""",
        (pending.VARIABLE,),
    ),
    "GetDevice": _function(
        ".param .b64 place",
        f"""\
    ld.param.u64 %to, [place];
    ld.u32 %a, [%pool+{pending.ORDINAL}];
    st.u32 [%to], %a;""",
    ),
    "DeviceGetLimit": _function(
        ".param .b64 place, .param .b32 limit",
        f"""\
    ld.param.u32 %a, [limit];
    mov.u32 %code, {Code.INVALID_VALUE};
    setp.ge.u32 %is, %a, {pending.LIMIT_COUNT};
    @%is bra fails;
    mad.wide.u32 %at, %a, 8, %pool;
    ld.u64 %n, [%at+{pending.LIMITS}];
    ld.param.u64 %to, [place];
    st.u64 [%to], %n;""",
    ),
}
