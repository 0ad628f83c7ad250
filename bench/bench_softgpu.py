"""Fifteen kernels on the software GPU's compiler, beside numba on all processors, NumPy and PoCL.

All contenders use the same arrays. Ours run below the driver, with memcheck off and on. A goal is
the ratio to numba or PoCL with memcheck off, if these take part. The means at the end are over all
cases. First compiles go from CUDA C++ to machine code, each in a process of its own, with nothing
kept on disk.
"""

from __future__ import annotations

import checkout

from bench.harness import one_blas_thread  # noqa: F401

# isort: split
import importlib.util
import os
import statistics
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender, repeat
from bench.softgpu import kernels
from bench.softgpu.peers import NumPy, numba_functions
from bench.softgpu.pocl import PoCL
from bench.softgpu.work import all_work
from cudasync.ptx import parse
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.machine_code.codegen import host_level

sys.path.insert(1, str(checkout.ROOT / "tests"))

from helpers.lowering.jit_launch import pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.measurement import Session
    from bench.softgpu.work import Work
    from cudasync.softgpu.jit.module import JitModule

OFF, ON = "memcheck off", "memcheck on"
NUMBA, NUMPY = "numba, parallel", "NumPy"
POCL = "PoCL"

# The limits of the geometric means over numba, and of a first compile.
AT_MOST = {OFF: 0.8, ON: 1.0}
FIRST_COMPILE_MS = 100
COMPILES = 3

# Registers of 512 bits help kernels that only compute, so two goals are stricter there.
IS_WIDE = host_level() == "x86-64-v4"
# Goals over numba with memcheck off, by case. Scan has none, because numba's algorithm differs.
GOALS = {
    "saxpy": 1.0,
    "grid_stride": 1.5,
    "matmul16_512": 1.2,
    "matmul16_1024": 1.2,
    "matmul32_512": 0.9,
    "matmul32_1024": 0.9,
    "block_sum": 2.0,
    "transpose": 0.5,
    "histogram": 1.5,
    "nbody": 1.3 if IS_WIDE else 2.3,
}
# Substitutes for goals over PoCL, from the times of PoCL and numba then; used without PoCL.
INSTEAD_OF_POCL = {
    "matmul_naive_512": 0.1,
    "stencil": 0.2,
    "mandelbrot": 0.16,
    "black_scholes": 0.2,
}
# Goals over PoCL with memcheck off, if it takes part.
POCL_GOALS = {
    "saxpy": 0.7,
    "grid_stride": 0.1,
    "matmul_naive_512": 0.2,
    "block_sum": 0.15,
    "stencil": 0.85,
    "mandelbrot": 0.1 if IS_WIDE else 0.16,
    "black_scholes": 0.85,
    "scan": 0.2,
}


def build(session: Session) -> None:
    """Add the fifteen cases, the first compiles, and the means over all cases."""
    modules = {
        setting: compile_module(parse(kernels.TEXT.read_text()), memcheck=setting is ON)
        for setting in (OFF, ON)
    }
    rivals = {NUMPY: vars(NumPy), NUMBA: numba_there(session)}
    pocl = pocl_there(session)
    for work in all_work(session):
        name = f"bench_softgpu.{work.case}"
        if not session.wants(name):
            continue
        ours = [launcher(setting, module, work) for setting, module in modules.items()]
        theirs = [
            contender(peer, called(functions[named(work, peer)], work), work)
            for peer, functions in rivals.items()
            if named(work, peer) in functions
        ]
        if pocl is not None:
            theirs.append(contender(POCL, pocl.launcher(work), work))
        has_numba = work.rival in rivals[NUMBA]
        over_numba = GOALS if pocl is not None else GOALS | INSTEAD_OF_POCL
        goals = []
        if has_numba and work.case in over_numba:
            goals.append(Goal(OFF, NUMBA, over_numba[work.case], word="goal"))
        if pocl is not None and work.case in POCL_GOALS:
            goals.append(Goal(OFF, POCL, POCL_GOALS[work.case], word="goal"))
        session.add(
            Case(
                name=name,
                contenders=[*ours, *theirs],
                baseline=NUMBA if has_numba else OFF,
                unit="launch",
                most_loops=64,
                goals=goals,
            )
        )
    session.at_end.append(means)
    first_compiles(session)


def named(work: Work, peer: str) -> str:
    """The name of the function for this work. NumPy has only one matrix product."""
    return work.rival.removesuffix("_naive") if peer is NUMPY else work.rival


def numba_there(session: Session) -> dict[str, Callable]:
    """numba's functions, or none with the reason in the report."""
    try:
        functions = numba_functions()
    except ImportError as error:
        session.absent[NUMBA] = str(error)
        return {}
    session.versions["numba"] = version("numba")
    return functions


def pocl_there(session: Session) -> PoCL | None:
    """PoCL, or None with the reason in the report."""
    try:
        found = PoCL()
    except ImportError as error:
        session.absent[POCL] = str(error)
        return None
    session.versions["PoCL"] = found.version
    return found


def launcher(setting: str, module: JitModule, work: Work) -> Contender:
    """The kernel, launched again in each loop. Packing and look-ups happen once."""
    kernel = module.kernels[work.kernel]
    arrays = {id(each): each for each in work.arguments if isinstance(each, np.ndarray)}
    launch = Launch(
        grid=work.grid,
        block=kernels.BLOCKS[work.kernel],
        dynamic_shared_bytes=0,
        parameters=pack(kernel, work.arguments),
        symbols=[],
        allocations=AllocationSnapshot(
            (each.ctypes.data, each.ctypes.data + each.nbytes) for each in arrays.values()
        ),
    )

    def action() -> None:
        work.clear()
        outcome = kernel.start(launch).run()
        assert outcome.kind is OutcomeKind.DONE, outcome

    return contender(setting, action, work)


def called(function: Callable, work: Work) -> Callable[[], None]:
    arguments = work.rival_arguments

    def action() -> None:
        function(*arguments)

    return action


def contender(name: str, action: Callable[[], None], work: Work) -> Contender:
    return Contender(name, repeat(action), work.checksum_of(action))


def means(session: Session) -> None:
    """The geometric means over the cases of the median ratios to numba and PoCL."""
    for rival, unit, limits in ((NUMBA, "x numba", AT_MOST), (POCL, "x PoCL", {OFF: 0.2})):
        for setting, at_most in limits.items():
            medians = []
            for case in session.cases:
                taken = {
                    each.name: session.samples[case.name, each.name] for each in case.contenders
                }
                if rival in taken:
                    mine, its = taken[setting].nanoseconds, taken[rival].nanoseconds
                    medians.append(statistics.median(mine[at] / its[at] for at in mine))
            if medians:
                session.measure(
                    f"bench_softgpu: geometric mean of {len(medians)} ratios, {setting}",
                    statistics.geometric_mean(medians),
                    unit,
                    at_most,
                )


def first_compiles(session: Session) -> None:
    """The wait for the first launch of each kernel: the median of a few new processes."""
    if importlib.util.find_spec("cuda.bindings") is None or not has_nvrtc():
        session.absent["first compiles"] = "NVRTC is not installed"
        return
    for kernel in list(kernels.BLOCKS)[: 1 if session.small else None]:
        name = f"bench_softgpu.{kernel}: first compile"
        if session.wants(name):
            session.pause(name)
            found = [first_compile(kernel) for _ in range(1 if session.small else COMPILES)]
            session.measure(name, statistics.median(found), "ms", FIRST_COMPILE_MS)


def has_nvrtc() -> bool:
    try:
        kernels.ptx_of("")
    except (ImportError, RuntimeError):
        return False
    return True


def first_compile(kernel: str) -> float:
    program = str(checkout.ROOT / "bench" / "softgpu" / "kernels.py")
    environment = os.environ | {"CUDASYNC_SOFTGPU_CACHE": "0"}
    command_line = [sys.executable, program, "--first", kernel]
    done = subprocess.run(command_line, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)


if __name__ == "__main__":
    raise SystemExit(command.main("bench_softgpu", __doc__, build, rounds=9))
