"""Driver calls through cudasync, over the same calls on raw `cuda.bindings`.

The number to read is what stands over the baseline, in time, not the ratio: a software GPU's
call costs more than a real driver's, so its ratio is closer to 1 than on a GPU. Work that a call
queues is done between samples, untimed.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import sys
from typing import TYPE_CHECKING

import baseline
import command
import numpy as np
from harness import Case, Contender, repeat
from rig import TYPES, Rig

import cudasync as cs

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Session

NAME = "cudasync.driver"

CHECKED_CALLS = 8


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


# Every case with a function of the same name here and in baseline.py, and what its checksum reads.
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


def contend(rig: Rig, case: str, name: str, action: Callable[[], object]) -> Contender:
    """A call as a contender; its checksum is what eight of them leave behind."""

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
        # A raw query answers (CUDA_SUCCESS,), ours True. After a record or a wait the stream has
        # come to its end, which is all there is to see of them.
        done = answer is True or (isinstance(answer, tuple) and not any(answer))
        return int(done) if case.endswith("query") else int(rig.event.query())

    return Contender(name, repeat(action, after=rig.drain), checksum)


def own_count(rig: Rig) -> int:
    """The counter inside the module, which only the raw driver gives the address of."""
    value = np.zeros(1, np.uint32)
    address = baseline.own_counter(rig)
    baseline.checked(baseline.driver.cuMemcpyDtoH(value.ctypes.data, address, value.nbytes))
    return int(value[0])


if __name__ == "__main__":
    raise SystemExit(command.main("bench_driver", __doc__, build))
