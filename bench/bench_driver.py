"""Driver calls through cudasync, over the same calls on raw `cuda.bindings`.

Read the time above the baseline, not the ratio. A call of a software GPU takes longer than a call
of a real driver, so its ratio is closer to 1 than on a GPU. Work that a call enqueues is done
between samples, untimed.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.driver import baseline
from bench.driver.rig import TYPES, Rig
from bench.harness import command
from bench.harness.measurement import Case, Contender, repeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.measurement import Session

NAME = "cudasync.driver"

CHECKED_CALLS = 8

# Limits for raw calls on the software GPU, in microseconds. Below: the limit for a process that
# runs one kernel, from its start to its end.
CALL_LIMITS = {
    "stream_query": 1.5,
    "event_query": 1.5,
    "event_record": 1.5,
    "stream_wait_event": 1.5,
    "launch_3": 4.0,
}
FIRST_RESULT_MS = 400
FIRST_RESULTS = 5
FIRST_RESULT = """
from cudasync.softgpu import install
install()
import ctypes
from cuda.bindings import driver as d
d.cuInit(0)
d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
module = d.cuModuleLoadData(b'''.version 6.4
.target sm_75
.address_size 64
.visible .entry set(.param .u64 set_word, .param .u32 set_value)
{
    .reg .u32 %value;
    .reg .u64 %rd_word;
    ld.param.u64 %rd_word, [set_word];
    ld.param.u32 %value, [set_value];
    st.global.u32 [%rd_word], %value;
    ret;
}
''')[1]
kernel = d.cuModuleGetFunction(module, b"set")[1]
word = d.cuMemAlloc(4)[1]
arguments = ((int(word), 7), (ctypes.c_void_p, ctypes.c_uint))
d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0)
back = (ctypes.c_uint * 1)()
d.cuMemcpyDtoH(ctypes.addressof(back), word, 4)
raise SystemExit(back[0] != 7)
"""


def stream_query(rig: Rig) -> Callable[[], object]:
    return rig.stream.query


def event_query(rig: Rig) -> Callable[[], object]:
    return rig.event.query


def event_record(rig: Rig) -> Callable[[], object]:
    record, event = rig.stream.record, rig.event
    return lambda: record(event)


def stream_wait_event(rig: Rig) -> Callable[[], object]:
    wait, event = rig.stream.wait, rig.event
    return lambda: wait(event)


def memcpy_async(rig: Rig) -> Callable[[], object]:
    target, source, stream, copy = rig.target, rig.source, rig.stream, cs.memcpy_async
    return lambda: copy(target, source, stream=stream)


def launch_0(rig: Rig) -> Callable[[], object]:
    return launch(rig, "launch_0")


def launch_3(rig: Rig) -> Callable[[], object]:
    return launch(rig, "launch_3")


def launch_8(rig: Rig) -> Callable[[], object]:
    return launch(rig, "launch_8")


def launch(rig: Rig, name: str) -> Callable[[], object]:
    kernel, stream, start = rig.module.kernel(name), rig.stream, cs.launch
    args = rig.arguments(name)
    return lambda: start(kernel, grid=(1,), block=(1,), args=args, stream=stream)


def packed(rig: Rig, name: str) -> Callable[[], object]:
    """The same launch with arguments that `Kernel.pack` prepared once."""
    kernel, stream, start = rig.module.kernel(name), rig.stream, cs.launch
    args = kernel.pack(rig.arguments(name))
    return lambda: start(kernel, grid=(1,), block=(1,), args=args, stream=stream)


def prepared(rig: Rig, name: str) -> Callable[[], object]:
    """The same launch, checked and packed once by `Kernel.prepare`."""
    launch = rig.module.kernel(name).prepare(grid=(1,), block=(1,), args=rig.arguments(name))
    stream = rig.stream
    return lambda: launch.on(stream)


# Every case that has a function of the same name here and in baseline.py.
CALLS = (
    "stream_query",
    "event_query",
    "event_record",
    "stream_wait_event",
    "memcpy_async",
    "launch_0",
    "launch_3",
    "launch_8",
)


def build(session: Session) -> None:
    """Add a case per call."""
    queued = session.parameter("queued_calls", small=16, large=2_000)
    launches = session.parameter("queued_launches", small=4, large=500)
    rig = Rig(session.closing)
    session.device = f"{rig.device.name}, compute capability {rig.device.compute_capability}"
    if rig.device.is_software:
        session.at_end.append(limits)
        first_results(session)
    for name in CALLS:
        contenders = [
            contend(rig, name, baseline.NAME, getattr(baseline, name)(rig)),
            contend(rig, name, NAME, globals()[name](rig)),
        ]
        if name in TYPES:
            for side in (baseline, sys.modules[__name__]):
                once = side.packed(rig, name)
                contenders.append(contend(rig, name, f"{side.NAME}, packed once", once))
            contenders.append(contend(rig, name, f"{NAME}, prepared", prepared(rig, name)))
        session.add(
            Case(
                name=f"bench_driver.{name}",
                contenders=contenders,
                baseline=baseline.NAME,
                unit="call",
                most_loops=launches if name.startswith("launch") else queued,
            )
        )


def limits(session: Session) -> None:
    """Report the times of raw calls with their limits."""
    for case, most_us in CALL_LIMITS.items():
        samples = session.samples.get((f"bench_driver.{case}", baseline.NAME))
        if samples is not None:
            median = statistics.median(samples.nanoseconds.values()) / 1000
            session.measure(f"bench_driver.{case}: raw", median, "us", most_us)


def first_results(session: Session) -> None:
    """Report the time of a process that runs one kernel. Its code is kept after the first run."""
    name = "bench_driver: start of Python to the end of a first result"
    if not session.wants(name):
        return
    session.pause(name)
    taken = []
    with tempfile.TemporaryDirectory() as compiled:
        # As in an installation, Python's own bytecode is kept, too.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONPYCACHEPREFIX": compiled,
            "PYTHONDONTWRITEBYTECODE": "",
        }
        for _ in range(1 if session.small else 1 + FIRST_RESULTS):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", FIRST_RESULT], env=environment, check=True, timeout=60
            )
            taken.append((time.perf_counter() - start) * 1000)
    session.measure(name, statistics.median(taken[1:] or taken), "ms", FIRST_RESULT_MS)


def contend(rig: Rig, case: str, name: str, action: Callable[[], object]) -> Contender:
    """A call as a contender. Its checksum is the effect of eight calls."""

    def checksum() -> int:
        rig.wipe()
        before = own_count(rig) if case == "launch_0" else 0
        for _ in range(CHECKED_CALLS):
            answer = action()
        rig.drain()
        if case == "launch_0":
            return own_count(rig) - before
        if case in TYPES:
            return rig.count()
        if case == "memcpy_async":
            return rig.copied()
        # A raw query returns (CUDA_SUCCESS,), ours returns True. After a record or a wait the
        # stream is done, which is their only visible effect.
        done = answer is True or (isinstance(answer, tuple) and not any(answer))
        return int(done) if case.endswith("query") else int(rig.event.query())

    return Contender(name, repeat(action, after=rig.drain), checksum)


def own_count(rig: Rig) -> int:
    """The counter inside the module. Only the raw driver gives its address."""
    value = np.zeros(1, np.uint32)
    address = baseline.own_counter(rig)
    baseline.checked(baseline.driver.cuMemcpyDtoH(value.ctypes.data, address, value.nbytes))
    return int(value[0])


if __name__ == "__main__":
    raise SystemExit(command.main("bench_driver", __doc__, build))
