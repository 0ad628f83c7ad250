"""When no stream can go on, the report names each blocked stream and what it waits for.

Each program runs in its own process, because other threads of the process could end a wait.
"""

from __future__ import annotations

import pytest
from helpers.repository.subprocesses import assert_runs_clean, run_program

SCHEDULERS = ["fifo", pytest.param("seed=1", marks=pytest.mark.slow), "threaded"]
PREPARE = """
import contextlib
from cuda.bindings import driver
a, b, c = cs.Stream(), cs.Stream(), cs.Stream()
words = cs.DeviceBuffer(256)
cs.memset_async(words, 0, stream=a)
a.synchronize()

def write(stream, address, value):
    assert not driver.cuStreamWriteValue32(stream.handle, address, value, 0)[0]

def name(stream):
    return f"stream {int(stream.handle):#x}"

def report(wait):
    try:
        wait()
    except cs.DeadlockError as error:
        return str(error)
    sys.exit("no deadlock was found")
"""
CROSSED = """
a.wait_value(words.ptr, 1)
write(a, words.ptr + 64, 1)
b.wait_value(words.ptr + 64, 7)
write(b, words.ptr, 1)
c.wait(b)
cs.memset_async(words, 3, stream=c)
for wait in (a.synchronize, c.synchronize, cs.Device(0).synchronize):
    text = report(wait)
    lines = text.partition("; ")[2].split("; ")
    of = {line.partition(":")[0]: line for line in text.replace("; it is", ", it is").split("; ")}
    assert f"{words.ptr:#x} to become at least 1, it is 0" in of[name(a)], text
    assert f"{words.ptr + 64:#x} to become at least 7, it is 0" in of[name(b)], text
    assert f"a write of a value at {words.ptr:#x} of {name(b)}" in of[name(c)], text
    assert "allocated at" in of[name(a)], text
write(cs.Stream(), words.ptr, 1)
# Before the 7 comes: in the other order a's write of 1 would undo it.
a.synchronize()
write(cs.Stream(), words.ptr + 64, 7)
cs.Device(0).synchronize()
cs.memset_async(words, 0, stream=a)
a.synchronize()
"""


OTHERS = """
word = cs.pinned_empty((1,), np.uint32)

# Host memory may be written by anybody.
word[0] = 0
a.wait_value(word.ctypes.data, 1)
signal.signal(signal.SIGALRM, lambda *_: word.__setitem__(0, 1))
signal.setitimer(signal.ITIMER_REAL, 0.05)
a.synchronize()

# A thread may still call the driver, as this one will.
a.wait_value(words.ptr, 1)
thread = threading.Timer(0.05, lambda: write(c, words.ptr, 1))
thread.start()
a.synchronize()
thread.join()

# A host function that is under way may end a wait for host memory, and so may what is behind it.
word[0] = 0
a.wait_value(words.ptr, 5)
b.wait_value(word.ctypes.data, 1)
write(b, words.ptr, 5)
signal.setitimer(signal.ITIMER_REAL, 0.05)
a.synchronize()

# Threads that wait for the same are no help.
def wait_too():
    with contextlib.suppress(cs.DeadlockError):
        a.synchronize()

a.wait_value(words.ptr, 9)
other = threading.Thread(target=wait_too)
other.start()
report(a.synchronize)
write(c, words.ptr, 9)
other.join()
cs.Device(0).synchronize()
"""


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_streams_are_named_that_nobody_can_free_and_only_those(scheduler):
    """Each waiting call raises. The report changes nothing, and the program can still end the
    waits."""
    assert_runs_clean(
        PREPARE + CROSSED + OTHERS, CUDASYNC_DEVICE="soft", CUDASYNC_SOFTGPU_SCHEDULER=scheduler
    )


def test_an_exploration_finds_the_order_in_which_streams_wait_for_ever():
    """The word is set and cleared, so a stream that begins to wait in between may be too late."""
    program = (
        PREPARE
        + """
    from cudasync.testing import explore

    def program():
        word = cs.DeviceBuffer(64)
        cs.memset_async(word, 0, stream=a)
        a.synchronize()
        b.wait_value(word.ptr, 1)
        write(a, word.ptr, 1)
        write(c, word.ptr, 0)
        cs.Device(0).synchronize()

    try:
        print(explore(program))
    except cs.DeadlockError as error:
        print(error, *error.__notes__)
    """.replace("\n    ", "\n")
    )
    # Where commands start at once, an exploration cannot choose their order.
    code, printed = run_program(program, CUDASYNC_DEVICE="soft", CUDASYNC_SOFTGPU_SCHEDULER="fifo")
    assert "a wait for a value at" in printed, printed
    assert "order=" in printed, printed
    assert code == 0, printed
