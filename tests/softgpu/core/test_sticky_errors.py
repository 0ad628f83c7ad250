"""A fault stays on its context until the reset, and affects no other context."""

from __future__ import annotations

import textwrap

from helpers.driver.driver_process import run_driver

FAULT = """
stream2 = ok(d.cuStreamCreate(0))
event, host = ok(d.cuEventCreate(0)), ok(d.cuMemHostAlloc(64, 0))
memory, pool = ok(d.cuMemAlloc(64)), ok(d.cuDeviceGetDefaultMemPool(0))
module = ok(d.cuModuleLoadData(PTX))
kernel = ok(d.cuModuleGetFunction(module, b"set"))
words = ((8, 1), (ctypes.c_void_p, ctypes.c_uint))
beside = create_context()
ok(d.cuCtxSetCurrent(contexts[0]))
ok(set_word(8, 1))
print(code(d.cuCtxSynchronize()))
"""


def test_every_call_on_a_failed_context_answers_its_fault():
    program = """
    back = ctypes.create_string_buffer(64)
    calls = {
        "launch": lambda: d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, words, 0),
        "allocate": lambda: d.cuMemAlloc(4),
        "free": lambda: d.cuMemFree(memory),
        "free host": lambda: d.cuMemFreeHost(host),
        "allocate async": lambda: d.cuMemAllocAsync(4, stream),
        "copy": lambda: d.cuMemcpyDtoH(ctypes.addressof(back), memory, 4),
        "fill": lambda: d.cuMemsetD8(memory, 0, 4),
        "stream": lambda: d.cuStreamCreate(0),
        "query": lambda: d.cuStreamQuery(stream),
        "synchronize": lambda: d.cuStreamSynchronize(stream2),
        "record": lambda: d.cuEventRecord(event, stream),
        "wait": lambda: d.cuStreamWaitEvent(stream, event, 0),
        "event": lambda: d.cuEventQuery(event),
        "load": lambda: d.cuModuleLoadData(PTX),
        "function": lambda: d.cuModuleGetFunction(module, b"set"),
        "context": lambda: d.cuCtxSynchronize(),
        "limit": lambda: d.cuCtxSetLimit(d.CUlimit.CU_LIMIT_STACK_SIZE, 1024),
    }
    for name, call in calls.items():
        if code(call()) != "ILLEGAL_ADDRESS":
            print(name, code(call()))
    print(said(R.CUDA_ERROR_ILLEGAL_ADDRESS).partition(", block")[0])
    """
    out = run_driver(FAULT + textwrap.dedent(program)).splitlines()
    assert out[0] == "ILLEGAL_ADDRESS"
    assert len(out) == 2, out
    assert out[1].startswith("an illegal memory access was encountered: kernel set, PTX line")


def test_others_go_on_and_a_reset_heals():
    program = """
    print(code(d.cuDeviceGetCount()), code(d.cuCtxGetCurrent()), code(d.cuDeviceGet(0)))
    ok(d.cuCtxSetCurrent(beside))  # Another context of the same device.
    other = ok(d.cuMemAlloc(4))
    ok(set_word(other, 3))
    print(read(other, 1)[0])
    ok(d.cuCtxSetCurrent(contexts[1]))  # Another device.
    there = ok(d.cuMemAlloc(4))
    ok(set_word(there, 4))
    print(read(there, 1)[0])
    ok(d.cuDevicePrimaryCtxReset(0))
    ok(d.cuCtxSetCurrent(contexts[0]))
    print(code(d.cuStreamQuery(stream)), code(d.cuEventQuery(event)), code(d.cuMemFree(memory)))
    here = ok(d.cuMemAlloc(4))
    ok(set_word(here, 5))
    print(read(here, 1)[0], read(there, 1)[0], read(other, 1)[0])
    """
    out = run_driver(FAULT + textwrap.dedent(program), devices=2).splitlines()
    assert out == [
        "ILLEGAL_ADDRESS",
        "CUDA_SUCCESS CUDA_SUCCESS CUDA_SUCCESS",
        "3",
        "4",
        "INVALID_HANDLE INVALID_HANDLE INVALID_VALUE",
        "5 4 3",
    ]


def test_the_first_fault_is_the_one_that_is_told():
    program = """
    ok(d.cuCtxSetCurrent(beside))
    ok(set_word(16, 1))
    first = code(d.cuCtxSynchronize())
    ok(d.cuCtxSetCurrent(contexts[0]))
    ok(d.cuDevicePrimaryCtxReset(0))
    memory = ok(d.cuMemAlloc(64))
    kernel = ok(d.cuModuleGetFunction(ok(d.cuModuleLoadData(PTX)), b"set"))

    def launch(address):
        return d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((address, 1), words[1]), 0)

    ok(launch(int(memory) + 1))  # Misaligned, and behind it an illegal address.
    launch(8)  # Refused if the first is known by now.
    print(first, code(d.cuCtxSynchronize()), code(d.cuCtxSynchronize()), code(d.cuMemAlloc(4)))
    """
    out = run_driver(FAULT + textwrap.dedent(program)).splitlines()
    assert out[1] == "ILLEGAL_ADDRESS" + " MISALIGNED_ADDRESS" * 3
