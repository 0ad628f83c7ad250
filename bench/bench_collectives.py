"""Collectives: two processes beside bare mpi4py and gloo, two devices beside code by hand.

`mpi.SIZE`: an all-reduce of float32 on the CPU, in place, until it is done on both ranks; the
slower rank counts. `overlap`: an all-reduce beside other work that takes as long. That work is the
device's part of a step (a sleep, since it needs no processor of the host), or NumPy on the CPU,
where two ranks with two threads each share the processors. `local`: an all-reduce of arrays on two
devices, beside copies and additions written by hand, on streams with events.

Without MPI, the cases of two processes are left out, and the table says why.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import os
import statistics
from typing import TYPE_CHECKING

import cudasync as cs
from bench.distributed.collective_ranks import Ranks, lacking
from bench.distributed.collectives_by_hand import ByHand, Ours
from bench.harness import command
from bench.harness.goals import MICROSECONDS, Goal
from bench.harness.measurement import Case, Contender, repeat

if TYPE_CHECKING:
    from bench.harness.measurement import Session

# The software GPU has as many devices as this says.
os.environ.setdefault("CUDASYNC_SOFTGPU_DEVICES", "2")
BARE = "mpi4py"
OURS = "cudasync"
GLOO = "torch, gloo"
NAMES = {BARE: "bare", OURS: "ours", GLOO: "torch_gloo"}
KIB, MIB = 1 << 10, 1 << 20
SIZES = {
    "1KiB": KIB,
    "64KiB": 64 * KIB,
    "1MiB": MIB,
    "4MiB": 4 * MIB,
    "16MiB": 16 * MIB,
    "64MiB": 64 * MIB,
}
# From this size on the limit is a ratio; below, it is the cost of a hand-over between threads.
RATIO_FROM = 4 * MIB


def build(session: Session) -> None:
    """Add a case per size, those of overlap, and those of local devices."""
    local(session)
    if why := lacking():
        session.absent[BARE] = why
        return
    ranks = Ranks(session.closing)
    names = [BARE, OURS]
    try:
        session.versions["torch"] = ranks.ask("take_part", NAMES[GLOO])[0]
        names.append(GLOO)
    except ImportError as error:
        session.absent[GLOO] = str(error)
    most = session.parameter("most_bytes", small=64 * KIB, large=64 * MIB)
    for name, nbytes in SIZES.items():
        if nbytes <= most:
            session.add(of_size(ranks, name, nbytes, names))
    overlap(session, ranks, most)


def of_size(ranks: Ranks, name: str, nbytes: int, names: list[str]) -> Case:
    limit = Goal(OURS, BARE, 80, MICROSECONDS)
    goals = [Goal(OURS, BARE, 1.15)] if nbytes >= RATIO_FROM else [limit]
    if GLOO in names:
        goals.append(Goal(OURS, GLOO, 1.0, word="goal"))
    return Case(
        name=f"bench_collectives.mpi.{name}",
        contenders=[contend(ranks, each, NAMES[each], nbytes) for each in names],
        baseline=BARE,
        unit="all-reduce",
        most_loops=1 << 10,
        goals=goals,
    )


def contend(ranks: Ranks, name: str, method: str, nbytes: int, *, sums: bool = True) -> Contender:
    def bench(loops: int) -> float:
        return max(ranks.ask("run", method, nbytes, loops))

    def checksum() -> int:
        first, *others = ranks.ask("checksum", method, nbytes)
        assert others == [first], f"{name}: the ranks have other sums"
        return first

    return Contender(name, bench, checksum if sums else None)


def overlap(session: Session, ranks: Ranks, nbytes: int) -> None:
    """The share of a collective that equally long work hides. At most 15 % may stay visible."""
    kinds = {"device": ("sleep", "must"), "cpu": ("compute", "goal")}
    if not any(session.wants(f"bench_collectives.overlap.{kind}") for kind in kinds):
        return
    once = [max(ranks.ask("run", "transfer", nbytes, 1)) for _ in range(9)]
    ranks.ask("lasting", statistics.median(once))
    for kind, (alone, word) in kinds.items():
        case = Case(
            name=f"bench_collectives.overlap.{kind}",
            contenders=[
                contend(ranks, "transfer alone", "transfer", nbytes),
                contend(ranks, "the other alone", alone, nbytes, sums=False),
                contend(ranks, "both", f"{alone}_and_transfer", nbytes),
            ],
            baseline="transfer alone",
            unit="step",
            most_loops=8,
        )
        session.add(case)
        if case in session.cases:
            limit = 0.15 if word == "must" else None
            session.at_end.append(
                lambda ended, case=case, limit=limit: conclude(ended, case, limit)
            )


def conclude(session: Session, case: Case, at_most: float | None) -> None:
    """The visible share: the time of both beyond the other work alone, over the transfer's time."""
    transfer, other, both = (
        session.samples[case.name, each.name].nanoseconds for each in case.contenders
    )
    shares = [(both[at] - other[at]) / transfer[at] for at in both]
    name = f"{case.name}: share of the transfer that is not hidden"
    session.measure(name, max(0.0, statistics.median(shares)), "", at_most)


def local(session: Session) -> None:
    """An all-reduce of two devices' arrays, by the communicator and by hand."""
    if cs.device_count() < 2:
        session.absent["two devices"] = "there is one: CUDASYNC_SOFTGPU_DEVICES=2"
        return
    session.device = cs.Device(0).name
    length = session.parameter("local_length", small=1 << 10, large=1 << 22)
    made = [ByHand(session.closing, length), Ours(session.closing, length)]
    session.add(
        Case(
            name="bench_collectives.local",
            contenders=[Contender(each.name, repeat(each.run), each.checksum) for each in made],
            baseline=ByHand.name,
            unit="all-reduce",
            most_loops=64,
            goals=[Goal(Ours.name, ByHand.name, 1.3)],
        )
    )


if __name__ == "__main__":
    raise SystemExit(command.main("bench_collectives", __doc__ or "", build))
