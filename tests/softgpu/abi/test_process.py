"""The software GPU and the life of a process: start, finalisers, Ctrl-C, fork, exit.

Each program runs in its own process. The process must end with status 0 and print nothing else.
"""

from __future__ import annotations

import pytest
from helpers.repository.fork_server import run_warm

pytestmark = pytest.mark.sampled(2)

START = """
import ctypes, gc, os, signal, sys, threading, time
from cudasync.softgpu import install
install(**{options})
from cuda.bindings import driver as d
def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]
ok(d.cuInit(0))
context = ok(d.cuDevicePrimaryCtxRetain(0))
ok(d.cuCtxSetCurrent(context))
stream = ok(d.cuStreamCreate(1))
"""
HELD = """
word = ok(d.cuMemHostAlloc(4, 0))
ctypes.c_uint32.from_address(int(word)).value = 0
ok(d.cuStreamWaitValue32(stream, int(word), 1, 0))
"""


def run(program, *, options="{}", errors="", **environment):
    """Run a program to its end, and return what it printed."""
    environment = {"CUDASYNC_SOFTGPU_DEVICES": "1", **environment}
    done = run_warm(program.replace("{options}", options), 50, **environment)
    assert done.code == 0, done.err
    assert done.err == errors
    return done.out


def test_what_is_not_supported_says_its_name_once():
    out = run(
        START + "for _ in range(3): print(int(d.cuMulticastCreate(None)[0]))",
        errors="cudasync software GPU: cuMulticastCreate is not supported: "
        "multicast objects are not modelled\n",
    )
    assert out == "801\n" * 3


def test_before_init_the_driver_says_so():
    program = """
from cudasync.softgpu import install
install()
install(devices=7)
from cuda.bindings import driver as d
print(int(d.cuDeviceGetCount()[0]), int(d.cuDriverGetVersion()[0]), int(d.cuInit(1)[0]))
d.cuInit(0)
print(d.cuDeviceGetCount()[1])
"""
    assert run(program) == "3 0 1\n1\n"


def test_the_environment_sets_devices_and_scheduler():
    program = START + "print(ok(d.cuDeviceGetCount()), ok(d.cuDeviceCanAccessPeer(0, 2)))"
    assert (
        run(program, CUDASYNC_SOFTGPU_DEVICES="3", CUDASYNC_SOFTGPU_SCHEDULER="seed=4") == "3 1\n"
    )


LOADED = """
text = b".version 6.4\\n.target sm_75\\n.address_size 64\\n.visible .entry k() { %s }\\n"
print(int(d.cuModuleLoadData(text)[0]))
"""
DP4A = ".reg .b32 %r<5>; mov.u32 %r1, 1; dp4a.u32.u32 %r2, %r1, %r1, %r1; ret;"
UNKNOWN_MODIFIER = ".reg .pred %p; .reg .b32 %r; mov.u32 %r, 1; setp.ge.now.u32 %p, %r, %r; ret;"


@pytest.mark.parametrize("lowering", ["auto", "oracle", "jit"])
def test_a_modifier_without_a_meaning_is_refused_by_every_lowering(lowering):
    program = START + LOADED % UNKNOWN_MODIFIER
    assert run(program, CUDASYNC_SOFTGPU_LOWERING=lowering) == "218\n"


def test_what_the_fast_lowering_does_not_know_the_plain_one_may_run():
    assert run(START + LOADED % DP4A) == "0\n"


@pytest.mark.parametrize("options", ["{'devices': 0}", "{'scheduler': 'best'}"])
def test_options_that_make_no_sense_are_refused(options):
    program = "from cudasync.softgpu import install\ntry:\n    install(**{options})\n"
    assert "softgpu" not in run(program + "except ValueError as e:\n    print(e)", options=options)


def test_kernels_reach_a_peer_only_with_access():
    program = (
        START
        + """
other = ok(d.cuDevicePrimaryCtxRetain(1))
ok(d.cuCtxPushCurrent(other))
there = ok(d.cuMemAlloc(64))
ok(d.cuMemsetD8(there, 7, 64))
ok(d.cuCtxSynchronize())
ok(d.cuCtxPopCurrent())
here = ok(d.cuMemAlloc(64))
ok(d.cuMemcpyPeerAsync(here, context, there, other, 64, stream))
back = (ctypes.c_ubyte * 64)()
ok(d.cuMemcpyDtoHAsync(ctypes.addressof(back), here, 64, stream))
codes = [int(d.cuCtxEnablePeerAccess(other, 0)[0]) for _ in range(2)]
print(set(back), codes)
"""
    )
    assert run(program, options="{'devices': 2}") == "{7} [0, 704]\n"


def test_the_process_ends_cleanly_with_work_pending_and_a_thread_that_waits():
    program = (
        START
        + HELD
        + """
def wait():
    d.cuCtxSetCurrent(context)
    started.set()
    d.cuStreamSynchronize(stream)
started = threading.Event()
threading.Thread(target=wait, daemon=True).start()
started.wait()
print("end")
"""
    )
    assert run(program) == "end\n"


def test_finalisers_at_the_end_of_the_process_meet_no_python():
    program = (
        START
        + """
class Last:
    def __init__(self):
        self.calls = d.cuMemFree, d.cuMemAlloc, print
    def __del__(self):
        free, allocate, show = self.calls
        show(int(free(5)[0]), int(allocate(5)[0]))
last = Last()
"""
    )
    assert run(program) == "0 4\n"


def test_a_finaliser_may_free_while_its_thread_executes():
    """The collector runs anywhere: here inside a host function, and under load."""
    program = (
        START
        + """
class Holder:
    def __init__(self):
        self.memory = ok(d.cuMemAlloc(64))
        self.me = self
    def __del__(self):
        ok(d.cuMemFree(self.memory))
gc.set_threshold(3, 1, 1)
for _ in range(300):
    Holder()
    event = ok(d.cuEventCreate(2))
    ok(d.cuEventRecord(event, stream))
    ok(d.cuStreamSynchronize(stream))
    ok(d.cuEventDestroy(event))
gc.set_threshold(700, 10, 10)
gc.collect()
ok(d.cuCtxSynchronize())
free, total = ok(d.cuMemGetInfo())
print(total - free)
"""
    )
    assert run(program) == "0\n"


def test_a_forked_child_has_no_device_and_does_not_hang():
    program = (
        START
        + HELD
        + """
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    codes = [int(d.cuStreamSynchronize(stream)[0]), int(d.cuMemAlloc(4)[0])]
    text = d.cuGetErrorName(d.CUresult(3))[1]
    os.write(1, f"{codes} {text}\\n".encode())
    os._exit(0)
os.waitpid(pid, 0)
ctypes.c_uint32.from_address(int(word)).value = 1
print(int(d.cuStreamSynchronize(stream)[0]))
"""
    )
    assert run(program) == "[3, 3] b'CUDA_ERROR_NOT_INITIALIZED'\n0\n"


def test_a_child_forked_before_init_has_a_device():
    program = """
import os
from cudasync.softgpu import install
install()
from cuda.bindings import driver as d
d.cuDriverGetVersion()
pid = os.fork()
if pid == 0:
    d.cuInit(0)
    os.write(1, f"{d.cuDeviceGetCount()[1]}\\n".encode())
    os._exit(0)
os.waitpid(pid, 0)
"""
    assert run(program) == "1\n"


def test_an_interrupt_ends_a_wait_that_would_not_end():
    program = (
        START
        + HELD
        + """
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def interrupt(_):
    os.kill(os.getpid(), signal.SIGINT)
other = ok(d.cuStreamCreate(1))
ok(d.cuLaunchHostFunc(other, ctypes.cast(interrupt, ctypes.c_void_p).value, 0))
try:
    while True:
        d.cuStreamSynchronize(stream)
except KeyboardInterrupt:
    print("interrupted")
ctypes.c_uint32.from_address(int(word)).value = 1
ok(d.cuStreamSynchronize(stream))
"""
    )
    assert run(program) == "interrupted\n"


def test_an_nvrtc_that_looks_for_a_driver_finds_no_trap():
    """NVRTC calls cuGetExportTable of any libcuda in the process, unasked."""
    program = (
        START
        + """
library = ctypes.CDLL("libcuda.so.1")
table = ctypes.c_void_p(1)
print(library.cuGetExportTable(ctypes.byref(table), bytes(16)), table.value)
"""
    )
    assert run(program) == "500 None\n"


@pytest.mark.parametrize("is_initialised", [False, True])
def test_no_function_falls_over_nonsense(is_initialised):
    """Each function gets null pointers, then meaningless handles and numbers with pointers to
    zeros."""
    program = (
        (
            START
            if is_initialised
            else START.partition("ok(d.cuInit")[0] + "d.cuDriverGetVersion()\n"
        )
        + """
from cudasync.softgpu import _tables
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.signatures import argument_types, c_signature
table = _tables[0]
zeros = ctypes.create_string_buffer(4096)
known = {int(code) for code in d.CUresult}
count = 0
for entry in registry.entries():
    signature = entry.signature or c_signature(entry.name)
    if signature is None:
        continue
    types = argument_types(signature)
    texts = signature.removeprefix("CUresult (").rstrip(")").split(",")
    call = ctypes.CFUNCTYPE(ctypes.c_int, *types)(table.address(entry.name, entry.version))
    pointer = ctypes.addressof(zeros)
    # Large numbers only with null pointers: with others they may promise what is not there.
    for number, place in [(0, 0), (3, 0), (-1, 0), (0x7FFFFFFF, 0), (0, pointer), (3, pointer)]:
        ctypes.memset(zeros, 0, 4096)
        if table.machine.is_initialized:
            d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
        values = [place if "*" in text else number for text in texts[: len(types)]]
        code = call(*[kind(value).value for kind, value in zip(types, values)])
        assert code in known, (entry.name, values, code)
        count += 1
print("calls", count > 500)
"""
    )
    assert run(program) == "calls True\n"


def test_no_interrupt_is_lost_wherever_in_a_call_it_comes():
    """Ctrl-C comes again and again in a loop of short calls, also at a callback's first
    instruction."""
    program = (
        START
        + """
caught = 0
for attempt in range(400):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0004 + attempt % 40 * 2e-6)
        while True:
            d.cuStreamQuery(stream)
    except KeyboardInterrupt:
        caught += 1
print(caught)
"""
    )
    program = program.replace(
        "ok(d.cuInit(0))",
        "ok(d.cuInit(0)); signal.signal(signal.SIGALRM, signal.default_int_handler)",
    )
    assert run(program) == "400\n"


def test_what_ends_an_object_succeeds_at_the_end_with_what_clients_wrap_it_in():
    program = (
        START
        + """
import atexit
memory = ok(d.cuMemAllocAsync(64, stream))
def last():
    codes = [d.cuCtxGetCurrent()[0], d.cuCtxSetCurrent(context)[0],
             d.cuMemFreeAsync(memory, stream)[0], d.cuStreamDestroy(stream)[0]]
    print([int(code) for code in codes], int(d.cuStreamQuery(stream)[0]))
from cudasync import softgpu
table, = softgpu._tables
atexit.unregister(table.end)
atexit.register(last)
atexit.register(table.end)
"""
    )
    assert run(program) == "[0, 0, 0, 0] 4\n"
