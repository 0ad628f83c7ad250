"""Figures of the raw driver that decide how work is issued, one group a process.

    PYTHONPATH=. CUDASYNC_DEVICE=cuda python -m bench.hardware.figures GROUP [--small] [--json FILE]

`calls`: host time of a launch, an event record, a query, a wait, a write of a value. `graphs`: host
time of a graph's launch and instantiation, by the number of nodes. `updates`: host time of new
parameters, of an update of the whole, and of the launch that follows. `gaps`: idle time of the GPU
between two kernels. `overlap`: how much of several kernels' time is at the same time.

Each value is the median of many samples, with its middle half. Host times are of `cuda.bindings`,
so they include its Python. Kernels spin by the GPU's own clock, and note their begin and end by it.
A driver that refuses a call costs the figures of that call alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from cuda.bindings import driver

from bench.driver.baseline import checked
from bench.hardware.cases import Counted
from bench.hardware.device_figures import gaps, overlap
from bench.hardware.figure_rig import BURST, Found, Packed, Rig, per_call
from bench.hardware.graph_figures import graphs, updates
from bench.hardware.parts import GROUPS
from bench.harness import machine


def calls(rig: Rig, found: Found) -> None:
    """One call at a time. Results are not checked in the timing: a program's fastest call."""
    stream, event = rig.stream, rig.new_event()
    timed, other = rig.new_event(timed=True), rig.new_stream()
    packed = Packed(rig.touch_arguments(3))
    checked(driver.cuEventRecord(event, stream))
    word = rig.memory
    shape = (1, 1, 1, 1, 1, 1, 0)
    arguments = rig.touch_arguments(3)
    measured = {
        "launch, no parameters": lambda: driver.cuLaunchKernel(rig.empty, *shape, stream, 0, 0),
        "launch, three parameters": lambda: driver.cuLaunchKernel(
            rig.touch, *shape, stream, arguments, 0
        ),
        "launch, three parameters packed": lambda: driver.cuLaunchKernel(
            rig.touch, *shape, stream, packed.address, 0
        ),
        "event record": lambda: driver.cuEventRecord(event, stream),
        "event record, timed": lambda: driver.cuEventRecord(timed, stream),
        "event query, done": lambda: driver.cuEventQuery(event),
        "stream query, idle": lambda: driver.cuStreamQuery(stream),
        "stream wait event, done": lambda: driver.cuStreamWaitEvent(other, event, 0),
        "stream write value 32": lambda: driver.cuStreamWriteValue32(stream, word, 1, 0),
        "stream wait value 32, met": lambda: driver.cuStreamWaitValue32(stream, word, 0, 0),
        "stream synchronize, idle": lambda: driver.cuStreamSynchronize(stream),
    }
    for name, call in measured.items():

        def measure(name: str = name, call: Callable[[], tuple] = call) -> None:
            checked(call())
            rig.settle()
            found.add(f"calls: {name}", "us", per_call(rig, call))

        found.try_to(f"calls: {name}", measure)
    busy_queries(rig, found)


def busy_queries(rig: Rig, found: Found) -> None:
    """The same questions about a stream that has work: the answer needs a look at the device."""
    event, other = rig.new_event(), rig.new_stream()

    def after_spin(call: Callable[[], object]) -> Iterator[float]:
        for _ in range(rig.samples):
            rig.spin(0, 1000)
            checked(driver.cuEventRecord(event, rig.stream))
            begin = time.perf_counter_ns()
            for _ in range(BURST):
                call()
            yield (time.perf_counter_ns() - begin) / BURST / 1000
            rig.settle()

    for name, call in (
        ("stream query, busy", lambda: driver.cuStreamQuery(rig.stream)),
        ("event query, not done", lambda: driver.cuEventQuery(event)),
        ("stream wait event, not done", lambda: driver.cuStreamWaitEvent(other, event, 0)),
    ):
        found.add(f"calls: {name}", "us", after_spin(call))


MEASURES = dict(zip(GROUPS, (calls, graphs, updates, gaps, overlap), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one group; the exit status is 1 if the driver refused a call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--small", action="store_true", help="a few samples, which measure nothing")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE too")
    options = parser.parse_args(arguments)
    found = Found()
    with ExitStack() as closing:
        rig = Rig(closing, is_small=options.small)
        closing.callback(rig.settle)
        MEASURES[options.group](rig, found)
        device = f"{rig.device.name}, compute capability {rig.device.compute_capability}"
    for each in found.figures:
        print(f"{each['id']}: {each['median']:.4g} {each['unit']}")
    for name, why in found.failed.items():
        print(f"FAILED {name}: {why}", file=sys.stderr)
    if options.json:
        report = {
            "program": f"figures of the driver: {options.group}",
            **machine.facts(),
            "device": device,
            "small": options.small,
            "rounds": rig.samples,
            "cases": [],
            "figures": found.figures,
        }
        measured = [each["id"] for each in found.figures]
        Counted(measured, found.failed).write(options.json, report=report)
    return 1 if found.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
