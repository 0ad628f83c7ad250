"""Memory, pools and events between processes of the software GPU, which are real processes."""

from __future__ import annotations

import sys
import textwrap

import pytest
from helpers.driver.driver_process import run_driver
from helpers.repository.subprocesses import start

COMMON = """
import ctypes, multiprocessing, os, signal, sys
from cuda.bindings import driver as d
def ok(result):
    assert result[0] == 0, (result, d.cuGetErrorString(result[0])[1])
    return result[1] if len(result) == 2 else result[1:]
def begin():
    ok(d.cuInit(0))
    ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(0))))
    return ok(d.cuStreamCreate(1))
def raw(handle):
    return ctypes.string_at(handle.getPtr(), 64)
def made(kind, data):
    handle = kind()
    ctypes.memmove(handle.getPtr(), data, 64)
    return handle
def read(address, size):
    back = bytearray(size)
    ok(d.cuMemcpyDtoH(back, int(address), size))
    return back.hex()
def pair(target, *arguments):
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()
    return process, mine
"""


def run_script(text, folder, *words):
    script = folder / "program.py"
    script.write_text(COMMON + textwrap.dedent(text))
    code, printed = start([sys.executable, "-m", "cudasync", "run", str(script), *words], 120)
    assert code == 0, printed
    return [line for line in printed.splitlines() if "cudasync software GPU" not in line]


MEMORY = """
def child(memory, event, pipe):
    stream = begin()
    address = ok(d.cuIpcOpenMemHandle(made(d.CUipcMemHandle, memory), 1))
    assert int(ok(d.cuIpcOpenMemHandle(made(d.CUipcMemHandle, memory), 1))) == int(address)
    event = ok(d.cuIpcOpenEventHandle(made(d.CUipcEventHandle, event)))
    ok(d.cuStreamWaitEvent(stream, event, 0))
    seen = bytearray(4)
    ok(d.cuMemcpyDtoHAsync(seen, address, 4, stream))
    ok(d.cuStreamSynchronize(stream))
    # What is next to it is not the child's.
    beyond = d.cuMemcpyDtoH(bytearray(1), int(address) + 5000, 1)[0].name
    ok(d.cuMemsetD8Async(address, 9, 5000, stream))
    ok(d.cuEventRecord(event, stream))
    pipe.send((seen.hex(), beyond, d.cuMemFree(address)[0].name))
    pipe.recv()
    for _ in range(2):
        ok(d.cuIpcCloseMemHandle(address))
    gone = d.cuMemcpyDtoH(bytearray(1), address, 1)[0].name
    pipe.send((gone, d.cuIpcCloseMemHandle(address)[0].name))
    pipe.recv()
    pipe.send(d.cuIpcOpenMemHandle(made(d.CUipcMemHandle, memory), 1)[0].name)

if __name__ == "__main__":
    stream = begin()
    beside, address = ok(d.cuMemAlloc(40)), ok(d.cuMemAlloc(5000))
    ok(d.cuMemsetD8(beside, 7, 40))
    event = ok(d.cuEventCreate(6))
    handle = raw(ok(d.cuIpcGetMemHandle(address)))
    print(handle == raw(ok(d.cuIpcGetMemHandle(address))))
    print(d.cuIpcOpenMemHandle(made(d.CUipcMemHandle, handle), 1)[0].name)
    print(d.cuIpcGetMemHandle(ok(d.cuMemAllocHost(8)))[0].name)
    ok(d.cuMemsetD8Async(address, 5, 5000, stream))
    ok(d.cuEventRecord(event, stream))
    process, pipe = pair(child, handle, raw(ok(d.cuIpcGetEventHandle(event))))
    print(*pipe.recv())
    ok(d.cuEventSynchronize(event))
    print(read(int(address) + 4996, 4), read(beside, 2), d.cuEventQuery(event)[0].name)
    pipe.send(0)
    print(*pipe.recv())
    ok(d.cuMemFree(address))
    again = ok(d.cuMemAlloc(5000))
    pipe.send(0)
    print(pipe.recv())
    process.join()
    print(process.exitcode)
"""


def test_memory_and_events_are_seen_by_both(tmp_path):
    assert run_script(MEMORY, tmp_path) == [
        "True",
        "CUDA_ERROR_INVALID_CONTEXT",
        "CUDA_ERROR_INVALID_VALUE",
        "05050505 CUDA_ERROR_INVALID_VALUE CUDA_ERROR_INVALID_VALUE",
        "09090909 0707 CUDA_SUCCESS",
        "CUDA_ERROR_INVALID_VALUE CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_INVALID_HANDLE",
        "0",
    ]


POOL = """
from multiprocessing import reduction
FD = d.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
class Sent:
    def __init__(self, number):
        self.number = number
    def __reduce__(self):
        return received, (reduction.DupFd(self.number),)
def received(descriptor):
    return descriptor.detach()
def child(pointer, number, pipe):
    stream = begin()
    pool = ok(d.cuMemPoolImportFromShareableHandle(number, FD, 0))
    ok(d.cuCtxSetCurrent(d.CUcontext(0)))
    address = ok(d.cuMemPoolImportPointer(pool, made(d.CUmemPoolPtrExportData, pointer)))
    begin()
    assert raw(ok(d.cuMemPoolExportPointer(address))) == pointer
    seen = read(address, 2)
    ok(d.cuMemsetD8Async(address, 8, 300, stream))
    refused = d.cuMemAllocFromPoolAsync(8, pool, stream)[0].name
    ok(d.cuMemFreeAsync(address, stream))
    ok(d.cuStreamSynchronize(stream))
    pipe.send((seen, refused, d.cuMemcpyDtoH(bytearray(1), address, 1)[0].name))

if __name__ == "__main__":
    stream = begin()
    properties = d.CUmemPoolProps()
    properties.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    plain = ok(d.cuMemPoolCreate(properties))
    print(d.cuMemPoolExportToShareableHandle(plain, FD, 0)[0].name)
    properties.handleTypes = FD
    pool = ok(d.cuMemPoolCreate(properties))
    address = ok(d.cuMemAllocFromPoolAsync(300, pool, stream))
    ok(d.cuMemsetD8Async(address, 3, 300, stream))
    number = ok(d.cuMemPoolExportToShareableHandle(pool, FD, 0))
    pointer = raw(ok(d.cuMemPoolExportPointer(address)))
    ok(d.cuStreamSynchronize(stream))
    wrong = ok(d.cuMemPoolExportToShareableHandle(ok(d.cuMemPoolCreate(properties)), FD, 0))
    wrong = ok(d.cuMemPoolImportFromShareableHandle(wrong, FD, 0))
    print(d.cuMemPoolImportPointer(wrong, made(d.CUmemPoolPtrExportData, pointer))[0].name)
    process, pipe = pair(child, pointer, Sent(number))
    print(*pipe.recv())
    process.join()
    print(process.exitcode, read(address, 2))
    ok(d.cuMemFree(address))
    ok(d.cuMemPoolDestroy(pool))
"""


@pytest.mark.slow
def test_a_pool_is_handed_out_as_a_descriptor_and_its_memory_by_pointers(tmp_path):
    assert run_script(POOL, tmp_path) == [
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_INVALID_VALUE",
        "0303 CUDA_ERROR_INVALID_VALUE CUDA_ERROR_INVALID_VALUE",
        "0 0808",
    ]


KILLED = """
def exporter(pipe):
    stream = begin()
    word = ok(d.cuMemAllocHost(4))
    ctypes.memset(int(word), 0, 4)
    address = ok(d.cuMemAlloc(100))
    event = ok(d.cuEventCreate(6))
    pipe.send((raw(ok(d.cuIpcGetMemHandle(address))), raw(ok(d.cuIpcGetEventHandle(event)))))
    # Held for ever: nobody writes the word.
    ok(d.cuStreamWaitValue32(stream, word, 1, d.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    ok(d.cuEventRecord(event, stream))
    pipe.send("recorded")
    pipe.recv()

if __name__ == "__main__":
    stream = begin()
    process, pipe = pair(exporter)
    memory, event = pipe.recv()
    address = ok(d.cuIpcOpenMemHandle(made(d.CUipcMemHandle, memory), 1))
    opened = ok(d.cuIpcOpenEventHandle(made(d.CUipcEventHandle, event)))
    pipe.recv()
    print(d.cuEventQuery(opened)[0].name)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    print(d.cuEventQuery(opened)[0].name)
    ok(d.cuMemsetD8(address, 4, 100))
    print(read(address, 2), d.cuIpcOpenMemHandle(made(d.CUipcMemHandle, bytes(64)), 1)[0].name)
    ok(d.cuIpcCloseMemHandle(address))
    print(d.cuIpcOpenMemHandle(made(d.CUipcMemHandle, memory), 1)[0].name)
    print([name for name in os.listdir("/dev/shm") if "cudasync-ipc" in name])
"""


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_and_holds_nobody(tmp_path):
    assert run_script(KILLED, tmp_path) == [
        "CUDA_ERROR_NOT_READY",
        "CUDA_ERROR_LAUNCH_FAILED",
        "0404 CUDA_ERROR_INVALID_HANDLE",
        "CUDA_ERROR_INVALID_HANDLE",
        "[]",
    ]


PAGES = """
from cudasync import softgpu
machine = softgpu._tables[0].machine
def of_file(address, size):
    (pages,) = machine.interprocess._files.values()
    return os.pread(pages.descriptor, size, int(address) - machine.devices[0].memory.arena.base)
def fill(address, value, size):
    ok(d.cuMemsetD8(address, value, size))
# Neighbours on a page: each is seen by others as it is here, whichever was shared first.
near = [ok(d.cuMemAlloc(300)) for _ in range(6)]
for number, address in enumerate(near):
    fill(address, number, 300)
for address in near[1:5:3]:
    ok(d.cuIpcGetMemHandle(address))
for number, address in enumerate(near):
    fill(address, number + 10, 300)
ok(d.cuCtxSynchronize())
print([(of_file(near[n], 300) == bytes([n + 10]) * 300, read(near[n], 2)[0]) for n in (1, 4)])
# Pages of freed memory are this process's own again, also where larger memory comes to lie.
for address in near:
    ok(d.cuMemFree(address))
rng = random.Random(1)
alive = {}
for step in range(40):
    if alive and rng.random() < 0.4:
        address = rng.choice(list(alive))
        size, value, shared = alive.pop(address)
        assert read(address, size) == bytes([value]) * size
        if shared:
            assert of_file(address, size) == bytes([value]) * size
        ok(d.cuMemFree(address))
        continue
    size = rng.choice((1, 300, 4096, 20000, 70000))
    address = int(ok(d.cuMemAlloc(size)))
    assert read(address, min(size, 2)) == bytes.fromhex("fd7f")[:min(size, 2)], step
    shared = rng.random() < 0.5
    if shared:
        ok(d.cuIpcGetMemHandle(address))
    fill(address, step, size)
    alive[address] = size, step, shared
print("done")
"""


def test_pages_are_in_the_file_exactly_while_shared_memory_lies_there():
    printed = run_driver(PAGES, CUDASYNC_SOFTGPU_HELD="0").splitlines()
    assert printed == ["[(True, 11), (True, 14)]", "done"]


def test_an_event_between_processes_has_no_timing_and_is_not_captured():
    program = """
    print(code(d.cuEventCreate(4)), code(d.cuIpcGetEventHandle(ok(d.cuEventCreate(2)))))
    event = ok(d.cuEventCreate(6))
    ok(d.cuEventSynchronize(event))
    ok(d.cuEventRecord(event, stream))
    ok(d.cuEventSynchronize(event))
    print(code(d.cuEventQuery(event)))
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    print(code(d.cuEventRecord(event, stream)))
    d.cuStreamEndCapture(stream)
    handle = ok(d.cuIpcGetEventHandle(event))
    print(code(d.cuIpcOpenEventHandle(handle)))
    ok(d.cuEventDestroy(event))
    """
    assert run_driver(program).splitlines() == [
        "INVALID_VALUE INVALID_VALUE",
        "CUDA_SUCCESS",
        "NOT_SUPPORTED",
        "INVALID_CONTEXT",
    ]
