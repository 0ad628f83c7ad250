"""Arrays that compute: cost of an operator, speed of large arrays, time of a new kernel.

`dispatch.NAME`: a burst of `x + y` of small arrays, whose results are dropped, beside calls of a
kernel that does the same. The time is that of issuing, without the driver's enqueuing calls; the
driver's calls for memory are counted. `cpu.NAME`: additions of tiny arrays on the CPU, until the
last result exists. `large.NAME`: one operation on many elements, until its result exists, beside
NumPy on one thread. `device.NAME`: the same on the device, beside CuPy and PyTorch on it, which a
real GPU alone has. `compile`: from the first call of an elementwise function to its result, in a
process that has compiled another function before: new on the machine, or kept by another process.
"""

from __future__ import annotations

import checkout  # noqa: F401

from bench.harness import one_blas_thread  # noqa: F401

# isort: split
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.arrays import device_peers, peers
from bench.arrays.compilation import measure_compiling
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender, repeat
from bench.launches.counts import counted_calls
from bench.launches.rig import without_driver
from cudasync import xp

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.arrays.device_peers import OnDevice
    from bench.harness.measurement import Session

CALLED = "kernel[grid, block](...)"
OPERATOR = "x + y"
INTO = "xp.add(x, y, out=z)"
NUMPY = "numpy"
NUMPY_OUT = "numpy, out="
ARRAYS = "cudasync"

OPERATOR_MOST = 1.5
CPU_MUST, CPU_GOAL = 5.0, 2.5
ELEMENTWISE_MOST, REDUCTION_MOST = 1.3, 1.5
FUSED_MOST = 1 / 1.3

SMALL = 128
SOURCE = """
extern "C" __global__ void add(const float* x, const float* y, float* z)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    z[i] = x[i] + y[i];
}
"""


def build(session: Session) -> None:
    """Add the cases; compile times are measured in separate processes."""
    device = cs.Device(0)
    device.use()
    session.device = f"{device.name}, compute capability {device.compute_capability}"
    engine = cs.Engine(workers=2)
    session.closing.callback(engine.close)
    session.closing.enter_context(cs.use(engine))
    burst = session.parameter("burst", small=4, large=32)
    most = session.parameter("most_bursts", small=2, large=100)
    for name, width in (("chain", 1), ("independent", burst)):
        add_dispatch(session, f"bench_arrays.dispatch.{name}", burst, width, most)
    add_cpu(session)
    add_large(session)
    add_device(session, is_software=device.is_software)
    if session.wants("bench_arrays.compile"):
        measure_compiling(session)


def add_dispatch(session: Session, name: str, burst: int, width: int, most: int) -> None:
    """A burst of additions, in turn on `width` pairs of arrays."""
    if not session.wants(name):
        return
    kernel = cs.Module.from_cuda(SOURCE).kernel("add")
    ones = np.ones(SMALL, np.float32)
    triples = [(cs.array(ones), cs.array(ones), cs.zeros(SMALL, np.float32)) for _ in range(width)]
    turns = [triples[number % width] for number in range(burst)]

    def called() -> None:
        for x, y, z in turns:
            kernel[1, SMALL](x, y, z)

    def operator() -> None:
        for x, y, _ in turns:
            x + y

    def into() -> None:
        for x, y, z in turns:
            xp.add(x, y, out=z)

    def sum_of(number: int, result: Callable[[int], cs.Array]) -> Callable[[], int]:
        return lambda: int(sum(result(at).numpy().sum() for at in range(number)))

    def after(run: Callable[[], None]) -> Callable[[int], cs.Array]:
        def result(at: int) -> cs.Array:
            if not at:
                run()
            return triples[at][2]

        return result

    ways = {
        CALLED: (called, sum_of(width, after(called))),
        OPERATOR: (operator, sum_of(width, lambda at: triples[at][0] + triples[at][1])),
        INTO: (into, sum_of(width, after(into))),
    }
    session.add(
        Case(
            name=name,
            contenders=[
                Contender(way, issuing(run), checksum) for way, (run, checksum) in ways.items()
            ],
            baseline=CALLED,
            operations=burst,
            unit="call",
            most_loops=most,
            goals=[Goal(OPERATOR, CALLED, OPERATOR_MOST)],
        )
    )
    operator()
    cs.waitall()
    with counted_calls() as seen:
        operator()
    cs.waitall()
    of_memory = sum(count for called, count in seen.items() if "Mem" in called)
    session.measure(f"{name}: driver calls for memory", of_memory / burst, "per op", 0)


def issuing(run: Callable[[], None]) -> Callable[[int], float]:
    """Seconds to issue the bursts, while the driver enqueues nothing."""

    def bench(loops: int) -> float:
        taken = []
        with without_driver():
            for _ in range(loops):
                start = time.perf_counter()
                run()
                taken.append(time.perf_counter() - start)
                cs.waitall()
        return statistics.median(taken) * loops

    return bench


def add_cpu(session: Session) -> None:
    """Additions of tiny arrays on the CPU: a chain, and one by one."""
    ops = session.parameter("cpu_ops", small=8, large=200)
    left, right = np.ones(8, np.float32), np.full(8, 2, np.float32)
    libraries: list[peers.OnCpu] = [peers.NumPy(), peers.Cudasync()]
    libraries += peers.installed(session)
    torch = peers.Torch.name
    for shape, run_of in (("chain", peers.chain), ("one", peers.one_by_one)):
        contenders = []
        for library in libraries:
            x, y = library.array(left), library.array(right)
            run = run_of(library, x, y, ops)
            contenders.append(
                Contender(library.name, repeat(run), lambda run=run: int(np.asarray(run()).sum()))
            )
        goals = []
        if any(each.name == torch for each in contenders):
            mine = peers.Cudasync.name
            goals = [Goal(mine, torch, CPU_MUST), Goal(mine, torch, CPU_GOAL, word="goal")]
        session.add(
            Case(
                name=f"bench_arrays.cpu.{shape}",
                contenders=contenders,
                baseline=NUMPY,
                operations=ops,
                goals=goals,
            )
        )


def add_large(session: Session) -> None:
    """One operation on many elements of float32, and one of float64."""
    size = session.parameter("elements", small=1 << 10, large=1 << 22)
    values = np.random.default_rng(1).random((3, size), dtype=np.float32) + np.float32(0.5)
    a, b, c = values
    x, y, z = (cs.array(each) for each in values)
    fused = cs.elementwise(chain_of_five)
    for name, on_numpy, on_arrays, most in (
        ("add", lambda: a + b, lambda: x + y, ELEMENTWISE_MOST),
        ("multiply", lambda: a * b, lambda: x * y, ELEMENTWISE_MOST),
        ("divide", lambda: a / b, lambda: x / y, ELEMENTWISE_MOST),
        ("sqrt", lambda: np.sqrt(a), lambda: xp.sqrt(x), ELEMENTWISE_MOST),
        ("exp", lambda: np.exp(a), lambda: xp.exp(x), ELEMENTWISE_MOST),
        ("less", lambda: a < b, lambda: x < y, ELEMENTWISE_MOST),
        ("where", lambda: np.where(a < b, a, b), lambda: xp.where(x < y, x, y), ELEMENTWISE_MOST),
        ("five.fused", lambda: chain_of_five(a, b, c), lambda: fused(x, y, z), FUSED_MOST),
        ("sum", lambda: a.sum(), lambda: xp.sum(x), REDUCTION_MOST),
        ("max", lambda: a.max(), lambda: xp.max(x), REDUCTION_MOST),
        ("mean", lambda: a.mean(), lambda: xp.mean(x), REDUCTION_MOST),
        ("argmax", lambda: a.argmax(), lambda: xp.argmax(x), REDUCTION_MOST),
        (
            "sum.rows",
            lambda: a.reshape(-1, 64).sum(axis=1),
            lambda: xp.sum(xp.reshape(x, (-1, 64)), axis=1),
            REDUCTION_MOST,
        ),
        (
            "sum.columns",
            lambda: a.reshape(-1, 64).sum(axis=0),
            lambda: xp.sum(xp.reshape(x, (-1, 64)), axis=0),
            REDUCTION_MOST,
        ),
    ):
        ways = ((NUMPY, on_numpy, lambda: None), (ARRAYS, on_arrays, cs.waitall))
        session.add(
            Case(
                name=f"bench_arrays.large.{name}",
                contenders=[
                    Contender(way, finished(run, wait), rounded(run)) for way, run, wait in ways
                ],
                baseline=NUMPY,
                operations=1,
                unit="call",
                goals=[Goal(ARRAYS, NUMPY, most)],
            )
        )


def add_device(session: Session, *, is_software: bool) -> None:
    """A chain of additions of small arrays, and one operation on many elements, on the device."""
    if not session.wants("bench_arrays.device"):
        return
    ops = session.parameter("device_ops", small=4, large=100)
    small = session.parameter("device_small", small=64, large=1 << 10)
    large = session.parameter("device_elements", small=1 << 10, large=1 << 24)
    libraries = device_peers.installed(session, is_software=is_software)
    values = np.random.default_rng(2).random((2, large), dtype=np.float32)

    def chain(library: OnDevice) -> Callable[[], object]:
        x, y = (library.made(each[:small]) for each in values)

        def run() -> object:
            z = x
            for _ in range(ops):
                z = z + y
            return z

        return run

    def one(call: Callable[[object, object, object], object]) -> Callable:
        def of(library: OnDevice) -> Callable[[], object]:
            x, y = (library.made(each) for each in values)
            return lambda: call(library.functions, x, y)

        return of

    for name, of, operations in (
        ("chain", chain, ops),
        ("add", one(lambda functions, x, y: x + y), 1),
        ("exp", one(lambda functions, x, y: functions.exp(x)), 1),
        ("sum", one(lambda functions, x, y: functions.sum(x)), 1),
    ):
        contenders = []
        for library in libraries:
            run = of(library)
            contenders += on_the_device(session, library, run)
        session.add(
            Case(
                name=f"bench_arrays.device.{name}",
                contenders=contenders,
                baseline=contenders[0].name,
                operations=operations,
                unit="call",
            )
        )


def on_the_device(
    session: Session, library: OnDevice, run: Callable[[], object]
) -> list[Contender]:
    """The work until it is done; with our arrays also on the serial engine, call by call."""

    def checksum() -> int:
        return rounded(lambda: library.values(run()))()

    found = [Contender(library.name, finished(run, library.wait), checksum)]
    if library.name == ARRAYS:
        engine = cs.Engine("serial")
        session.closing.callback(engine.close)

        def serially() -> object:
            with cs.use(engine):
                return run()

        name = f"{ARRAYS}, serial engine"
        found.append(Contender(name, finished(serially, library.wait), checksum))
    return found


def chain_of_five(x: object, y: object, z: object) -> object:
    """Five operations of arithmetic."""
    return (x * y + z) / (x + y) - z


def finished(run: Callable[[], object], wait: Callable[[], object]) -> Callable[[int], float]:
    """Seconds for the calls, each until its result is there; until then the result is alive."""

    def bench(loops: int) -> float:
        start = time.perf_counter()
        for _ in range(loops):
            made = run()
            wait()
        seconds = time.perf_counter() - start
        del made
        return seconds

    return bench


def rounded(run: Callable[[], object]) -> Callable[[], int]:
    """A checksum that does not depend on the order of sums."""

    def checksum() -> int:
        found = np.asarray(run(), np.float64)
        return int(f"{found.sum():.3e}".replace(".", "").partition("e")[0])

    return checksum


if __name__ == "__main__":
    raise SystemExit(command.main("bench_arrays", __doc__, build))
