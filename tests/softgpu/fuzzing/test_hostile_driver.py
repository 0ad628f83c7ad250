"""Whatever a program does to the driver, it gets a documented error; nothing crashes or hangs.

Each program runs in its own process, with a deadline. It must end with status 0 and print nothing
unexpected.
"""

from __future__ import annotations

import pytest
from helpers.driver.driver_process import run_driver
from helpers.repository.subprocesses import run_module, run_text

pytestmark = pytest.mark.sampled(2)


def nonsense(first: int, step: int, rounds: int) -> list[str]:
    """Call functions with null and random arguments; return the lines that are not names."""
    code, printed = run_module("helpers.fuzzing.call_fuzzing", first, step, rounds, deadline_s=300)
    lines = printed.splitlines()
    assert code == 0, f"ended with {code}, after:\n{chr(10).join(lines[-45:])}"
    return [line for line in lines if not line.startswith("cu") and "is not supported" not in line]


@pytest.mark.parametrize("first", range(2))
def test_every_function_survives_null_and_random_arguments(first):
    said = nonsense(first, 2, 2)
    assert len(said) == 1
    assert int(said[0].split()[1]) > 450


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4))
def test_every_function_survives_many_random_arguments(first):
    said = nonsense(first, 4, 100)
    assert len(said) == 1


def test_a_function_that_ends_the_process_is_named():
    code, printed = run_text(_PLANTED, 60)
    assert code != 0
    assert "cuEventQuery 0" in printed


_PLANTED = """
import dataclasses, os
from cudasync.softgpu.abi.calls import event as calls_event
from cudasync.softgpu.abi.stub import registry
key = ("cuEventQuery", 0)
registry._entries[key] = dataclasses.replace(registry._entries[key], call=lambda *_: os.abort())
from helpers.fuzzing import call_fuzzing as hostile_calls_run
hostile_calls_run.main(0, 1, 1)
"""


def test_what_is_ended_twice_is_refused_the_second_time():
    program = """
    kinds = {
        "stream": (d.cuStreamCreate(0), d.cuStreamDestroy),
        "event": (d.cuEventCreate(0), d.cuEventDestroy),
        "module": (d.cuModuleLoadData(PTX), d.cuModuleUnload),
        "library": (d.cuLibraryLoadData(PTX, [], [], 0, [], [], 0), d.cuLibraryUnload),
        "memory": (d.cuMemAlloc(64), d.cuMemFree),
        "pinned": (d.cuMemHostAlloc(64, 0), d.cuMemFreeHost),
        "managed": (d.cuMemAllocManaged(64, 1), d.cuMemFree),
        "stream memory": (d.cuMemAllocAsync(64, stream), lambda a: d.cuMemFreeAsync(a, stream)),
        "link": (d.cuLinkCreate(0, [], []), d.cuLinkDestroy),
        "graph": (d.cuGraphCreate(0), d.cuGraphDestroy),
    }
    for name, (made, end) in kinds.items():
        thing = ok(made)
        ok(end(thing))
        print(name, code(end(thing)))
    context = create_context()
    ok(d.cuCtxDestroy(context))
    print("context", code(d.cuCtxDestroy(context)))
    """
    out = dict(line.rsplit(" ", 1) for line in run_driver(program).splitlines())
    values = {"memory", "pinned", "managed", "stream memory", "graph"}
    assert {name for name, code in out.items() if code == "INVALID_VALUE"} == values
    assert out.pop("context") == "INVALID_CONTEXT"
    assert {code for name, code in out.items() if name not in values} == {"INVALID_HANDLE"}


def test_a_handle_of_another_kind_is_refused_everywhere():
    program = """
    event, module = ok(d.cuEventCreate(0)), ok(d.cuModuleLoadData(PTX))
    pool, memory = ok(d.cuDeviceGetDefaultMemPool(0)), ok(d.cuMemAlloc(64))
    wrong = [int(event), int(module), int(pool), int(memory), int(contexts[0]), 0x1000]
    found = {code(call) for each in wrong for call in (
        d.cuStreamQuery(d.CUstream(each)),
        d.cuStreamDestroy(d.CUstream(each)),
        d.cuEventRecord(event, d.CUstream(each)),
        d.cuLaunchKernel(d.CUfunction(each), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0),
        d.cuModuleGetFunction(d.CUmodule(each), b"set") if each != int(module) else (R(400),),
        d.cuEventQuery(d.CUevent(each)) if each != int(event) else (R(400),),
        d.cuLibraryUnload(d.CUlibrary(each)),
    )}
    print(sorted(found))
    """
    assert run_driver(program) == "['INVALID_HANDLE']\n"


def test_handles_of_another_device_are_refused_and_neither_device_is_harmed():
    program = """
    here, memory = ok(d.cuEventCreate(0)), ok(d.cuMemAlloc(64))
    module = ok(d.cuModuleLoadData(PTX))
    kernel = ok(d.cuModuleGetFunction(module, b"set"))
    ok(d.cuCtxSetCurrent(contexts[1]))
    there = ok(d.cuStreamCreate(1))
    print(code(d.cuEventRecord(here, there)))
    arguments = ((int(memory), 1), (ctypes.c_void_p, ctypes.c_uint))
    print(code(d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, there, arguments, 0)))
    ok(set_word(memory, 3))  # No access: a fault of device 1, and of nobody else.
    print(code(d.cuCtxSynchronize()), code(d.cuMemAlloc(4)), code(d.cuStreamQuery(there)))
    ok(d.cuCtxSetCurrent(contexts[0]))
    ok(set_word(memory, 4))
    print(read(memory, 1)[0])
    ok(d.cuDevicePrimaryCtxReset(1))
    ok(d.cuCtxSetCurrent(contexts[1]))
    ok(d.cuMemFree(ok(d.cuMemAlloc(4))))
    print(code(d.cuStreamQuery(there)))
    """
    fault = "ILLEGAL_ADDRESS"
    expected = ["INVALID_HANDLE", "INVALID_HANDLE", f"{fault} {fault} {fault}", "4"]
    assert run_driver(program, devices=2).splitlines() == [*expected, "INVALID_HANDLE"]


THREADS = """
go = threading.Barrier(64)
wrong = []
def work(number):
    draw = random.Random(number)
    ok(d.cuCtxSetCurrent(contexts[0]))
    mine = ok(d.cuStreamCreate(number & 1))
    event = ok(d.cuEventCreate(0))
    go.wait()
    try:
        for _ in range(12):
            memory = ok(d.cuMemAllocAsync(256, mine))
            ok(d.cuMemsetD8Async(memory, number, 256, mine))
            ok(d.cuEventRecord(event, mine))
            other = streams[draw.randrange(len(streams))]
            d.cuStreamWaitEvent(other, event, 0)
            d.cuStreamQuery(other)
            back = ctypes.create_string_buffer(256)
            ok(d.cuMemcpyDtoHAsync(ctypes.addressof(back), memory, 256, mine))
            if set(back.raw) != {number}:
                wrong.append(number)
            ok(d.cuMemFreeAsync(memory, mine))
            d.cuStreamDestroy(shared[0])
        ok(d.cuStreamDestroy(mine))
        ok(d.cuEventDestroy(event))
    except BaseException as problem:
        wrong.append(repr(problem))
streams = [ok(d.cuStreamCreate(0)) for _ in range(4)]
shared = [ok(d.cuStreamCreate(0))]
threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
for thread in threads:
    thread.start()
"""


def test_sixty_four_threads_call_at_once():
    program = """
for thread in threads:
    thread.join()
ok(d.cuCtxSynchronize())
free, total = ok(d.cuMemGetInfo())
print(wrong, total - free)
"""
    assert run_driver(THREADS + program) == "[] 0\n"


def test_a_child_forked_while_threads_call_answers_and_its_parent_goes_on():
    program = """
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        codes = {int(d.cuStreamQuery(stream)[0]), int(d.cuMemAlloc(4)[0]), int(d.cuInit(0)[0])}
        os.write(1, f"{sorted(codes)}\\n".encode())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
for thread in threads:
    thread.join()
print(wrong)
"""
    assert run_driver(THREADS + program) == "[0, 3]\n" * 3 + "[]\n"


def test_a_process_ends_cleanly_with_work_of_every_kind_in_flight():
    program = """
    word = ok(d.cuMemHostAlloc(64, 0))
    memory = ok(d.cuMemAlloc(1 << 20))
    kernel = load_set_word()
    ctypes.memset(int(word), 0, 64)
    held = ok(d.cuStreamCreate(1))
    ok(d.cuStreamWaitValue32(held, int(word), 1, 0))
    ok(d.cuMemsetD8Async(memory, 1, 1 << 20, held))
    ok(set_word(memory, 5, held, kernel))
    ok(d.cuMemFreeAsync(ok(d.cuMemAllocAsync(64, held)), held))
    note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: print("never"))
    ok(d.cuLaunchHostFunc(held, ctypes.cast(note, ctypes.c_void_p).value, 0))
    def wait():
        d.cuCtxSetCurrent(contexts[0])
        started.set()
        d.cuStreamSynchronize(held)
    started = threading.Event()
    for _ in range(4):
        threading.Thread(target=wait, daemon=True).start()
    started.wait()
    print("end")
    """
    assert run_driver(program) == "end\n"


def test_memory_of_every_kind_runs_out_and_comes_back():
    program = """
    total = ok(d.cuMemGetInfo())[1]
    half = total // 2 // (2 << 20) * (2 << 20)
    what = d.CUmemAllocationProp()
    what.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    for name, take, end in (
        ("memory", lambda: d.cuMemAlloc(half), d.cuMemFree),
        ("pool", lambda: d.cuMemAllocAsync(half, stream), lambda a: d.cuMemFreeAsync(a, stream)),
        ("host", lambda: d.cuMemHostAlloc(half, 0), d.cuMemFreeHost),
        ("managed", lambda: d.cuMemAllocManaged(half, 1), d.cuMemFree),
        ("physical", lambda: d.cuMemCreate(half, what, 0), d.cuMemRelease),
    ):
        taken = []
        while True:
            found = take()
            if found[0] != R.CUDA_SUCCESS:
                break
            taken.append(found[1])
        print(name, code(found), 1 <= len(taken) <= 2)
        for each in taken:
            ok(end(each))
        ok(end(ok(take())))
        ok(d.cuStreamSynchronize(stream))
    """
    for line in run_driver(program).splitlines():
        assert line.endswith("OUT_OF_MEMORY True"), line


def test_pointers_to_nothing_are_refused_where_they_would_be_read_or_written():
    program = """
    nowhere = 0xDEAD0000
    call = ctypes.CDLL("libcuda.so.1")
    call.cuMemAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    before = ok(d.cuMemGetInfo())[0]
    print(call.cuMemAlloc(nowhere, 64), said(R.CUDA_ERROR_INVALID_VALUE))
    assert ok(d.cuMemGetInfo())[0] == before
    module = ok(d.cuModuleLoadData(PTX))
    kernel = ok(d.cuModuleGetFunction(module, b"set"))
    pointers = (ctypes.c_void_p * 2)(nowhere, nowhere)
    for place in (nowhere, ctypes.addressof(pointers)):
        print(code(d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, place, 0)))
    call.cuStreamAddCallback.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_uint]
    found = call.cuStreamAddCallback(int(stream), nowhere, 0, 0)
    print(found, said(R.CUDA_ERROR_INVALID_VALUE))
    """
    out = run_driver(program).splitlines()
    assert out[0] == "1 8 bytes at 0xdead0000 are not mapped memory of the process"
    assert out[1:3] == ["INVALID_VALUE"] * 2
    assert out[3] == "1 there is no function at 0xdead0000"


def test_a_launch_with_billions_of_attributes_is_refused_at_once():
    program = """
    module = ok(d.cuModuleLoadData(PTX))
    kernel = ok(d.cuModuleGetFunction(module, b"set"))
    config = (ctypes.c_uint32 * 16)(1, 1, 1, 1, 1, 1)
    room = (ctypes.c_uint64 * 512)()
    config[10:12] = [ctypes.addressof(room) & 0xFFFFFFFF, ctypes.addressof(room) >> 32]
    config[12] = 2**32 - 1
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    launch.argtypes = [ctypes.c_void_p] * 4
    print(launch(ctypes.addressof(config), int(kernel), 0, 0))
    print(said(R.CUDA_ERROR_INVALID_VALUE))
    """
    refusal = f"a launch has at most 1024 attributes, not {2**32 - 1}"
    assert run_driver(program) == f"1\n{refusal}\n"
