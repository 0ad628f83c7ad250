"""Threads unknown to Python: the driver keeps their state from call to call."""

from __future__ import annotations

import pytest
from helpers.repository.subprocesses import run_program

# Calls functions of one word, from a table of (function, word), and keeps their results.
PREPARE = """
import ctypes
import cudasync.softgpu
cudasync.softgpu.install()
from cuda.bindings import driver as d
from helpers.lowering.native_code import native
d.cuInit(0)
context = int(d.cuDevicePrimaryCtxRetain(0)[1])
process = ctypes.CDLL(None)
class Library:
    def __getattr__(self, name):
        return int(d.cuGetProcAddress(name.encode(), 12000, 0)[1])
library = Library()
run = native('''
define void @f(ptr %table) {
entry:
  br label %next
next:
  %at = phi ptr [%table, %entry], [%following, %call]
  %function = load ptr, ptr %at
  %is.end = icmp eq ptr %function, null
  br i1 %is.end, label %end, label %call
call:
  %word.at = getelementptr i64, ptr %at, i64 1
  %word = load i64, ptr %word.at
  %code = call i32 %function(i64 %word)
  %wide = sext i32 %code to i64
  store i64 %wide, ptr %word.at
  %following = getelementptr i64, ptr %at, i64 2
  br label %next
end:
  ret void
}
''', ctypes.c_void_p)
def in_native_thread(*calls):
    '''What each of (function, word) returns, on a thread of its own that ends then.'''
    words = [each for call in calls for each in call]
    table = (ctypes.c_uint64 * (len(words) + 1))(*words, 0)
    thread = ctypes.c_ulong()
    start = ctypes.cast(run, ctypes.c_void_p)
    assert not process.pthread_create(ctypes.byref(thread), None, start, table)
    assert not process.pthread_join(thread, None)
    return [ctypes.c_int64(word).value for word in table[1:-1:2]]
def word(value=0):
    kept = ctypes.c_uint64(value)
    words.append(kept)
    return kept, ctypes.addressof(kept)
words = []
"""
CURRENT = """
for _ in range(3):
    before, at_before = word(7)
    after, at_after = word()
    assert in_native_thread(
        (library.cuCtxGetCurrent, at_before),
        (library.cuCtxSetCurrent, context),
        (library.cuStreamSynchronize, 0),
        (library.cuCtxGetCurrent, at_after),
    ) == [0, 0, 0, 0]
    # Nothing of the thread before, whose number this one most likely has.
    assert (before.value, after.value) == (0, context), (before, after)
assert int(d.cuCtxGetCurrent()[1]) == 0
"""
STACK = """
popped, at = word()
code = in_native_thread(
    (library.cuCtxSetCurrent, context),
    (library.cuCtxPushCurrent, context),
    (library.cuCtxPopCurrent, at),
    (library.cuCtxPopCurrent, at),
    (library.cuCtxPopCurrent, at),
)
assert code == [0, 0, 0, 0, 201], code
"""
MODE = """
(relaxed, at), (again, at_again) = word(2), word(0)
assert in_native_thread(
    (library.cuThreadExchangeStreamCaptureMode, at),
    (library.cuThreadExchangeStreamCaptureMode, at_again),
) == [0, 0]
assert ctypes.c_uint32(relaxed.value).value == 0 and ctypes.c_uint32(again.value).value == 2
"""
PER_THREAD = """
from cudasync.softgpu.core.context import Context
from cudasync.softgpu.core.streams.streams import Stream
found = []
make = Stream.__init__
def noting(self, context, **more):
    make(self, context, **more)
    if "default stream of" in self.name:
        found.append(weakref.ref(context))
Stream.__init__ = noting
sync = library.cuStreamSynchronize
for _ in range(5):
    assert in_native_thread((library.cuCtxSetCurrent, context), (sync, 2), (sync, 2)) == [0, 0, 0]
# One for each thread; and those of threads that have ended are gone when the next has come.
assert len(found) == 5, found
left = [s for s in found[0]().streams if "default stream of" in s.name]
assert len(left) == 1, [(s.name, s.is_closed, list(s.pending)) for s in left]
"""


@pytest.mark.parametrize(
    "body",
    [CURRENT, STACK, MODE, PER_THREAD],
    ids=["current context", "stack of contexts", "capture mode", "default stream"],
)
def test_what_a_native_thread_has_lasts_as_long_as_it_does(body):
    assert run_program(PREPARE + body, CUDASYNC_DEVICE="soft") == (0, "")


def test_a_thread_that_ended_leaves_nothing_behind():
    """Marks and the state kept under them are freed: after ten thousand threads only a handful is
    left."""
    body = """
from cudasync.softgpu.core.driver_types import thread_state as native_threads
import cudasync.softgpu.core.machine as machines
for _ in range(200):
    assert in_native_thread((library.cuCtxSetCurrent, context)) == [0]
for _ in range(200):
    thread = threading.Thread(target=d.cuCtxSetCurrent, args=(context,))
    thread.start(); thread.join()
gc.collect()
tables = [each for each in gc.get_objects() if isinstance(each, native_threads.Mark)]
assert 0 < len(tables) < 10, len(tables)
"""
    assert run_program(PREPARE + body, CUDASYNC_DEVICE="soft") == (0, "")
