"""PTX of kernels that launch kernels, linked with the device's run-time library."""

from __future__ import annotations

from cudasync.softgpu.core.linking import link

HEADER = ".version 7.0\n.target sm_70\n.address_size 64\n"
_DECLARATIONS = """
.extern .func (.param .b64 buffer) cudaGetParameterBufferV2(
    .param .b64 function, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12],
    .param .b32 shared);
.extern .func (.param .b32 status) cudaLaunchDeviceV2(.param .b64 buffer, .param .b64 stream);
"""
# Launches one block of kernel %k, with the argument %a, in the stream %s, if there is room.
_LAUNCH = """
    {{
    .param .b64 function; .param .align 4 .b8 grid[12]; .param .align 4 .b8 block[12];
    .param .b32 shared; .param .b64 buffer;
    st.param.b64 [function], %k; st.param.b32 [shared], 0;
    st.param.b32 [grid], 1; st.param.b32 [grid+4], 1; st.param.b32 [grid+8], 1;
    st.param.b32 [block], {threads}; st.param.b32 [block+4], 1; st.param.b32 [block+8], 1;
    call (buffer), cudaGetParameterBufferV2, (function, grid, block, shared);
    ld.param.b64 %b, [buffer];
    }}
    setp.ne.u64 %p, %b, 0;
    @%p st.u64 [%b], %a;
    {{
    .param .b64 buffer; .param .b64 stream; .param .b32 status;
    st.param.b64 [buffer], %b; st.param.b64 [stream], %s;
    @%p call (status), cudaLaunchDeviceV2, (buffer, stream);
    @%p ld.param.b32 %r, [status];
    }}
"""
_KERNEL = """
.visible .entry {name}(.param .u64 words)
{{
    .reg .pred %p;
    .reg .b32 %r, %v, %w;
    .reg .b64 %a, %b, %k, %s;
    ld.param.u64 %a, [words];
{body}
    ret;
}}
"""


def launches(kernel: str, stream: int = 0, threads: int = 1) -> str:
    """PTX of a launch of a block of `kernel`, with the address in %a."""
    launch = _LAUNCH.format(threads=threads)
    return f"    mov.u64 %k, {kernel};\n    mov.u64 %s, {stream};{launch}"


def notes(word: int) -> str:
    """PTX that notes a number: word 0 counts, and the notes are from word 8 on."""
    return f"""
    atom.global.add.u32 %r, [%a], 1;
    mad.wide.u32 %b, %r, 4, %a;
    mov.u32 %v, {word};
    st.global.u32 [%b+32], %v;"""


def program(**bodies: str) -> bytes:
    """The linked text of kernels with one parameter, the address of some words in %a."""
    kernels = "".join(_KERNEL.format(name=name, body=body) for name, body in bodies.items())
    text = HEADER + _DECLARATIONS + kernels
    return link([("kernels", text.encode())], runtime=True)
