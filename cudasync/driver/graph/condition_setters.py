"""Floor 1, graphs. Kernels that set a condition: by a flag in memory, or by counting down.

`cudaGraphSetConditional` is declared and not defined: the driver resolves it when it loads the
module, so no device runtime is linked. Each kernel has one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cudasync.driver.device import driver_version
from cudasync.driver.kernels.module import Module

if TYPE_CHECKING:
    from cudasync.driver.device import Device
    from cudasync.driver.kernels.kernel import Kernel
    from cudasync.driver.kernels.launch import Launch
    from cudasync.driver.memory.buffer import DeviceBuffer

PTX = """
.version 6.4
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);

// The condition is whether any of the bytes at `flag` is not 0.
.visible .entry ask(.param .u64 condition, .param .u64 flag, .param .u32 size)
{
    .reg .pred %p_more, %p_holds;
    .reg .b32 %r_left, %r_byte, %r_any, %r_value;
    .reg .b64 %rd_condition, %rd_flag;
    ld.param.u64 %rd_condition, [condition];
    ld.param.u64 %rd_flag, [flag];
    ld.param.u32 %r_left, [size];
    cvta.to.global.u64 %rd_flag, %rd_flag;
    mov.u32 %r_any, 0;
NEXT:
    ld.global.u8 %r_byte, [%rd_flag];
    or.b32 %r_any, %r_any, %r_byte;
    add.u64 %rd_flag, %rd_flag, 1;
    sub.u32 %r_left, %r_left, 1;
    setp.ne.u32 %p_more, %r_left, 0;
    @%p_more bra NEXT;
    setp.ne.u32 %p_holds, %r_any, 0;
    selp.u32 %r_value, 1, 0, %p_holds;
    {
    .param .b64 first;
    st.param.b64 [first], %rd_condition;
    .param .b32 second;
    st.param.b32 [second], %r_value;
    call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}

// `times` rounds are left, which is at least one.
.visible .entry begin(.param .u64 condition, .param .u64 counter, .param .u32 times)
{
    .reg .b32 %r_times;
    .reg .b64 %rd_condition, %rd_counter;
    ld.param.u64 %rd_condition, [condition];
    ld.param.u64 %rd_counter, [counter];
    ld.param.u32 %r_times, [times];
    cvta.to.global.u64 %rd_counter, %rd_counter;
    st.global.u32 [%rd_counter], %r_times;
    {
    .param .b64 first;
    st.param.b64 [first], %rd_condition;
    .param .b32 second;
    st.param.b32 [second], 1;
    call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}

// One round less is left; the condition is whether there are any.
.visible .entry count_down(.param .u64 condition, .param .u64 counter)
{
    .reg .pred %p_more;
    .reg .b32 %r_left, %r_value;
    .reg .b64 %rd_condition, %rd_counter;
    ld.param.u64 %rd_condition, [condition];
    ld.param.u64 %rd_counter, [counter];
    cvta.to.global.u64 %rd_counter, %rd_counter;
    ld.global.u32 %r_left, [%rd_counter];
    sub.u32 %r_left, %r_left, 1;
    st.global.u32 [%rd_counter], %r_left;
    setp.ne.u32 %p_more, %r_left, 0;
    selp.u32 %r_value, 1, 0, %p_more;
    {
    .param .b64 first;
    st.param.b64 [first], %rd_condition;
    .param .b32 second;
    st.param.b32 [second], %r_value;
    call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}
"""
COUNTER_BYTES = 4
# The largest count of a counter.
MOST_ROUNDS = (1 << 32) - 1
# The driver versions that introduced conditional nodes, and a second body of "if".
_SINCE = {1: (12, 4), 2: (12, 8)}

# By ordinal, with the life of the context that the module is loaded in.
_modules: dict[int, tuple[object, Module]] = {}


def can_decide(bodies: int = 1) -> bool:
    """Whether the driver has conditional nodes with so many bodies."""
    return driver_version() >= _SINCE[bodies]


def ask(condition: Any, flag: int, size_bytes: int, device: Device) -> Launch:
    """A launch that sets `condition` to whether any of these bytes is not 0."""
    return _one_thread(_kernel("ask", device), int(condition), flag, size_bytes)


def begin(condition: Any, counter: DeviceBuffer, times: int) -> Launch:
    """A launch that sets `counter` to `times`, which is not 0, and `condition` to 1."""
    return _one_thread(_kernel("begin", counter.device), int(condition), counter, times)


def count_down(condition: Any, counter: DeviceBuffer) -> Launch:
    """A launch that subtracts 1 from `counter`, and sets `condition` to whether it is not 0."""
    return _one_thread(_kernel("count_down", counter.device), int(condition), counter)


def _one_thread(kernel: Kernel, *args: Any) -> Launch:
    return kernel.prepare(grid=1, block=1, args=args)


def _kernel(name: Literal["ask", "begin", "count_down"], device: Device) -> Kernel:
    # The context has a token once it is made.
    device.context.enter()
    token = device.context.token
    found = _modules.get(device.ordinal)
    if found is None or found[0] is not token:
        module = Module.from_ptx(PTX, device=device, file="<conditions>")
        # The earlier token: if a reset came in between, the module is not used again.
        found = _modules[device.ordinal] = (token, module)
    return found[1].kernel(name)
