"""Under `threaded` a process ends, forks and is interrupted as under the other schedulers."""

from __future__ import annotations

import pytest
from helpers.repository.subprocesses import assert_runs_clean

THREADED = {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_SCHEDULER": "threaded"}

SPIN = '''
spin = cs.Module.from_ptx("""
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 count)
{
    .reg .u64 %rd_count;
    .reg .pred %p_more;
    ld.param.u64 %rd_count, [count];
ROUND:
    sub.u64 %rd_count, %rd_count, 1;
    setp.ne.u64 %p_more, %rd_count, 0;
    @%p_more bra ROUND;
    ret;
}
""").kernel("spin")
'''
# Fifty blocks of a few milliseconds each, on every stream.
BUSY = (
    SPIN
    + """
streams = [cs.Stream() for _ in range(4)]
for stream in streams:
    cs.launch(spin, grid=(50,), block=(1,), args=(np.uint64(10_000_000),), stream=stream)
"""
)


def test_a_process_forks_and_ends_with_work_under_way():
    program = """
    child = os.fork()
    if not child:
        try:
            cs.Device(0).synchronize()
        except cs.CudasyncError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    buffer = cs.DeviceBuffer(64)
    cs.memset_async(buffer, 7, stream=(other := cs.Stream()))
    other.synchronize()
    """
    assert_runs_clean(BUSY + "\n".join(line[4:] for line in program.splitlines()), **THREADED)


def test_an_interrupt_ends_a_wait_and_the_next_one_works():
    """The process ends although a stream waits for ever."""
    program = """
    word = cs.pinned_empty((1,), np.uint32)
    word[0] = 0
    stream = cs.Stream()
    stream.wait_value(word.ctypes.data, 1)
    for _ in range(3):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            stream.synchronize()
        except KeyboardInterrupt:
            continue
        assert False, "nobody was interrupted"
    word[0] = 1
    stream.synchronize()
    word[0] = 0
    stream.wait_value(word.ctypes.data, 1)
    buffer = cs.DeviceBuffer(64)
    cs.memset_async(buffer, 1, stream=stream)
    assert not stream.query()
    """
    assert_runs_clean(program, **THREADED)


@pytest.mark.slow
def test_threads_end_when_there_is_nothing_to_do():
    program = """
    def ours():
        return [
            frame for frame in sys._current_frames().values()
            if frame.f_back is not None or "softgpu" in frame.f_code.co_filename
        ]
    buffer = cs.DeviceBuffer(64)
    stream = cs.Stream()
    cs.memset_async(buffer, 1, stream=stream)
    stream.synchronize()
    never = threading.Event()
    while any("threaded.py" in f.f_code.co_filename or "threaded.py" in f.f_back.f_code.co_filename
              for f in ours() if f.f_back is not None):
        never.wait(0.01)
    cs.memset_async(buffer, 2, stream=stream)
    stream.synchronize()
    """
    assert_runs_clean(program, **THREADED)


HAMMER = """
import random
kernel = cs.Module.from_file("ptx/kernels/saxpy.ptx").kernel("saxpy")
wrong = []

def work(number):
    choose = random.Random(number)
    streams = [cs.Stream() for _ in range(3)]
    x, y = cs.DeviceBuffer(1024), cs.DeviceBuffer(1024)
    host = cs.pinned_empty((256,), np.float32)
    host[:] = number
    last = streams[0]
    cs.memcpy_async(x, host, stream=last)
    cs.memcpy_async(y, host, stream=last)
    for _ in range(12):
        stream = choose.choice(streams)
        stream.wait(last)
        scratch = cs.DeviceBuffer(1024, stream=stream)
        cs.memset_async(scratch, 0, stream=stream)
        args = (np.float32(1), x, y, np.uint32(256))
        cs.launch(kernel, grid=(1,), block=(256,), args=args, stream=stream)
        scratch.close()
        last = stream
        if choose.random() < 0.2:
            last.query() or last.synchronize()
    cs.memcpy_async(host, y, stream=last)
    last.synchronize()
    if (host != 13 * number).any():
        wrong.append(number)

threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
"""


def test_many_threads_that_call_at_once_get_what_they_computed():
    assert_runs_clean(HAMMER, **THREADED)


@pytest.mark.slow
def test_a_process_ends_while_a_kernel_goes_on_for_long():
    """The kernel ends by its budget about ten seconds later, and the process does not wait for
    that."""
    program = (
        SPIN
        + """
for stream in [cs.Stream() for _ in range(3)]:
    cs.launch(spin, grid=(1,), block=(1,), args=(np.uint64(1 << 40),), stream=stream)
"""
    )
    assert_runs_clean(program, **THREADED)
