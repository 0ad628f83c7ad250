"""Launches through the engine, beside the same launches on raw `cuda.bindings`.

Bursts of a few launches, in three shapes. The time is that of issuing a burst on this thread.
Enqueued work is done between bursts, untimed, and a sample is the median over its bursts. The cases
`.python` leave out the driver's enqueuing calls on both sides: they show the cost of the engine's
own Python, on any device. cuda.core and numba-cuda do not call the driver through Python, so they
take part only in the other cases. Driver calls and bytecodes are counted.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import statistics
import time
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING

from bench.harness import command, machine
from bench.harness.goals import MICROSECONDS, Goal
from bench.harness.measurement import Case, Contender
from bench.launches import bursts
from bench.launches.counts import count_bytecodes, count_driver_calls
from bench.launches.peers import PEERS, NumbaCuda
from bench.launches.rig import Rig, without_driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from bench.harness.measurement import Session
    from bench.launches.peers import Peer
    from bench.launches.rig import Calls

RAW = "raw launch"
RECORDED = "raw launch and event record"
DIRECT = "prepared launch, .on(stream)"
PUSHED = "engine.push(launch.on, device=)"
CALLED = "kernel[grid, block](...)"
KEPT = "kernel[grid, block] kept, (...)"
PREPARED = "prepared launch, .push()"
PACKED_ANEW = (PUSHED, CALLED, KEPT)

# The limit of a launch through the engine beyond the raw launch. It is a promise where both sides
# pack the arguments once, and a wish elsewhere.
MOST_US = 4.0
# The limit of a call relative to numba-cuda's, which finds no order and records no event.
OF_NUMBA = 1 / 3


def build(session: Session) -> None:
    """Add two cases for each shape, and count driver calls."""
    launches = session.parameter("launches", small=4, large=32)
    blocks = session.parameter("blocks", small=1, large=1)
    most_bursts = session.parameter("most_bursts", small=2, large=100)
    engine, kernel = bursts.prepared(session)
    for shape, make in bursts.SHAPES.items():
        rig = Rig(session.closing, engine, kernel, make(launches), blocks * bursts.BLOCK)
        name = f"bench_launch.{shape}"
        peers = peers_of(session, rig)
        # A software GPU's own time is no cost of the engine, and its event record takes longer than
        # all other parts. So the promise there is about Python alone.
        limits = [Goal(PREPARED, RAW, MOST_US, MICROSECONDS)]
        limits += [Goal(each, RAW, MOST_US, MICROSECONDS, "goal") for each in PACKED_ANEW]
        beside = [Goal(CALLED, NumbaCuda.name, OF_NUMBA)] if NumbaCuda.name in peers else []
        for case, around, others, goals in (
            (name, nullcontext, peers, beside + ([] if kernel.device.is_software else limits)),
            (f"{name}.python", without_driver, {}, limits),
        ):
            session.add(
                Case(
                    name=case,
                    contenders=contenders(rig, around, others),
                    baseline=RAW,
                    operations=launches,
                    unit="launch",
                    most_loops=most_bursts,
                    goals=goals,
                )
            )
        if session.wants(name):
            most = None if shape == "fan" else 2
            count_driver_calls(session, name, rig, rig.kernel_calls(), most_enqueuing=most)
            count_bytecodes(session, name, rig, has_limit=shape == "chain")


def peers_of(session: Session, rig: Rig) -> dict[str, Calls]:
    """The burst through each other library. The report names libraries that cannot run it."""
    found: dict[str, Calls] = {}
    for peer in PEERS:
        if peer.name in session.absent:
            continue
        try:
            found[peer.name] = calls_of(peer, rig)
        except Exception as error:
            # Any error of an unknown library must not stop the others.
            session.absent[peer.name] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            session.versions[peer.package] = machine.installed(peer.package) or "of unknown version"
    return found


def calls_of(peer: type[Peer], rig: Rig) -> Calls:
    """The launches of a peer, each called once, so that nothing is made at first use later."""
    with warnings.catch_warnings():
        # A library's advice on better use does not belong to the result.
        warnings.simplefilter("ignore")
        calls = peer.calls(rig)
        for call in calls:
            call()
    rig.drain()
    return calls


def contenders(
    rig: Rig, around: Callable[[], AbstractContextManager], peers: dict[str, Calls]
) -> list[Contender]:
    """Every way to issue the burst; `around` is entered for the timing."""
    raw, arrays = rig.raw_checksum, rig.arrays_checksum
    ways = {
        RAW: (rig.raw_launches(), raw),
        RECORDED: (rig.raw_launches_and_records(), raw),
        DIRECT: (rig.prepared_launches(), raw),
        PREPARED: (rig.prepared_pushes(), arrays),
        PUSHED: (rig.pushes(), arrays),
        CALLED: (rig.kernel_calls(), arrays),
        KEPT: (rig.kept_kernel_calls(), arrays),
        **{name: (calls, raw) for name, calls in peers.items()},
    }
    return [issuing(rig, name, calls, checksum, around) for name, (calls, checksum) in ways.items()]


def issuing(
    rig: Rig,
    name: str,
    calls: Calls,
    checksum: Callable[[], int],
    around: Callable[[], AbstractContextManager],
) -> Contender:
    """One way to issue the burst. A sample is the median over its bursts."""

    def bench(loops: int) -> float:
        taken = []
        with around():
            for _ in range(loops):
                start = time.perf_counter()
                for call in calls:
                    call()
                taken.append(time.perf_counter() - start)
                rig.drain()
        # The median ignores bursts in which the engine polls the device.
        return statistics.median(taken) * loops

    def check() -> int:
        rig.reset()
        for call in calls * 2:
            call()
        rig.drain()
        return checksum()

    return Contender(name, bench, check)


if __name__ == "__main__":
    raise SystemExit(command.main("bench_launch", __doc__, build))
