"""Cellar. The errors that calls of device code return, and PTX for their names and descriptions."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final


@unique
class Code(IntEnum):
    """Values of cudaError_t."""

    SUCCESS = 0
    INVALID_VALUE = 1
    MEMORY_ALLOCATION = 2
    INVALID_CONFIGURATION = 9
    INVALID_MEMCPY_DIRECTION = 21
    LAUNCH_MAX_DEPTH_EXCEEDED = 65
    LAUNCH_PENDING_COUNT_EXCEEDED = 69
    INVALID_DEVICE_FUNCTION = 98
    INVALID_RESOURCE_HANDLE = 400


_WORDS: Final = {
    Code.SUCCESS: ("cudaSuccess", "no error"),
    Code.INVALID_VALUE: ("cudaErrorInvalidValue", "invalid argument"),
    Code.MEMORY_ALLOCATION: ("cudaErrorMemoryAllocation", "out of memory"),
    Code.INVALID_CONFIGURATION: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    Code.INVALID_MEMCPY_DIRECTION: (
        "cudaErrorInvalidMemcpyDirection",
        "invalid copy direction for memcpy",
    ),
    Code.LAUNCH_MAX_DEPTH_EXCEEDED: (
        "cudaErrorLaunchMaxDepthExceeded",
        "launch would exceed maximum depth of nested launches",
    ),
    Code.LAUNCH_PENDING_COUNT_EXCEEDED: (
        "cudaErrorLaunchPendingCountExceeded",
        "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount",
    ),
    Code.INVALID_DEVICE_FUNCTION: ("cudaErrorInvalidDeviceFunction", "invalid device function"),
    Code.INVALID_RESOURCE_HANDLE: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
}
_OTHER: Final = ("unrecognized error code",) * 2


def words_function(*, describes: bool) -> str:
    """PTX of NAME, which returns the name of an error, or its description."""
    kind = "description" if describes else "name"
    rows = {code: words[describes] for code, words in _WORDS.items()}
    texts = [_string(f"cudasync_{kind}", _OTHER[describes])]
    texts += [_string(f"cudasync_{kind}_{code}", text) for code, text in rows.items()]
    choices = "\n".join(
        f"    setp.eq.u32 %is, %code, {code};\n    @%is mov.u64 %text, cudasync_{kind}_{code};"
        for code in rows
    )
    return (
        "\n".join(texts)
        + f"""
.visible .func (.param .b64 text) NAME(.param .b32 code)
{{
    .reg .pred %is;
    .reg .b32 %code;
    .reg .b64 %text;
    ld.param.u32 %code, [code];
    mov.u64 %text, cudasync_{kind};
{choices}
    cvta.global.u64 %text, %text;
    st.param.b64 [text], %text;
    ret;
}}
"""
    )


def _string(name: str, text: str) -> str:
    data = ", ".join(str(each) for each in (*text.encode(), 0))
    return f".global .align 1 .b8 {name}[{len(text) + 1}] = {{{data}}};"
