"""Cellar. The software GPU: a libcuda.so.1 written in Python, beneath cuda.bindings.

`install` puts it into the process; from then on `cuda.bindings.driver`, and everything that stands
on it, talks to it as to a driver. Nothing else of this package is meant to be called by a program.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudasync.errors import CudasyncError, PtxError
from cudasync.locks import Lock
from cudasync.softgpu.abi.install import load_stub, real_driver
from cudasync.softgpu.core.checks.at_exit import start_from_process
from cudasync.softgpu.core.driver_types.compute_capability import DEFAULT, named
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.machine import DEFAULT_TOTAL_BYTES, Machine, nothing_kept
from cudasync.softgpu.core.memory.peer_access import ALL
from cudasync.softgpu.core.memory.quarantine import DEFAULT_HELD_BYTES
from cudasync.softgpu.interface import DEFAULT_BUDGET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx import ir
    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable
    from cudasync.softgpu.interface.launch import Compile, CompiledModule, Find, Found

__all__ = [
    "install",
    "installed",
    "real_driver",
    "start_native_program",
    "write_native_libraries",
]

# By name, the first being the default: what the fast lowering does not know yet, the plain one
# may. Each alone checks the other.
_LOWERINGS = {"auto": ("jit", "oracle"), "jit": ("jit",), "oracle": ("oracle",)}
# The one that keeps on disk what it made.
_KEEPS = "jit"
# MiB of a device: 1 TiB, of which only touched pages count.
_MOST_MEMORY = 1 << 20

_lock = Lock()
_tables: list[FunctionTable] = []


def install(
    *,
    devices: int | None = None,
    scheduler: str | None = None,
    compute_capability: str | None = None,
    memcheck: bool | None = None,
    record: bool | None = None,
    report: bool | None = None,
    checks: str | None = None,
    force: bool = False,
) -> None:
    """Make this process's libcuda the software GPU, before its first CUDA call.

    For those who want it without the rest of cudasync: `cuda.bindings`, `cuda.core` and numba-cuda
    then run on it, in this process (`python -m cudasync run` does this for a program). NVRTC must
    not be loaded before, or its machine code is refused. A second call does nothing.

    What is left out is read from CUDASYNC_SOFTGPU_DEVICES (1), CUDASYNC_SOFTGPU_SCHEDULER
    ("fifo"), CUDASYNC_SOFTGPU_CC (the compute capability: "7.5", "8.0", "9.0", "10.0" or "12.0",
    with its limits, and PTX for later devices is refused as on a device; without it those of 8.x,
    and PTX for any device runs), CUDASYNC_MEMCHECK (on unless 0), CUDASYNC_CHECK (1: launches are
    recorded, and what an op enqueues is held to what it declares), CUDASYNC_SOFTGPU_REPORT (1:
    what is wrong with a kernel is told on stderr, too, for clients that show codes alone),
    CUDASYNC_SOFTGPU_BUDGET, CUDASYNC_SOFTGPU_MEMORY (the MiB of a device: 4096),
    CUDASYNC_SOFTGPU_HELD, CUDASYNC_SOFTGPU_LOWERING,
    CUDASYNC_SOFTGPU_PEERS ("all": which devices reach each other's memory; "none", or pairs such as
    "0-1,2-3").
    CUDASYNC_CHECKS ("mem,race,init,sync,leak" or some of them: what a program does wrong is told on
    stderr while it goes on, and counted when the process ends; CUDASYNC_CHECKS_MOST findings, less
    what the lines KIND:PATTERN of the file CUDASYNC_CHECKS_SUPPRESS match).
    CudasyncError if a real driver is loaded, or could be and `force` is not set, or if llvmlite is
    missing; ValueError for values that make no sense.
    """
    with _lock:
        if _tables:
            return
        environment = os.environ
        if find_spec("llvmlite") is None:
            raise CudasyncError('the software GPU needs llvmlite: pip install "cudasync[soft]"')
        if devices is None:
            devices = _number(environment.get("CUDASYNC_SOFTGPU_DEVICES"), 1)
        if devices < 1:
            raise ValueError(f"the software GPU needs at least 1 device, not {devices}")
        if memcheck is None:
            memcheck = environment.get("CUDASYNC_MEMCHECK") != "0"
        if record is None:
            record = environment.get("CUDASYNC_CHECK") == "1"
        if report is None:
            report = environment.get("CUDASYNC_SOFTGPU_REPORT") == "1"
        budget = _number(environment.get("CUDASYNC_SOFTGPU_BUDGET"), DEFAULT_BUDGET)
        if not 0 < budget < 2**62:
            raise ValueError(f"CUDASYNC_SOFTGPU_BUDGET is from 1 to 2**62 - 1, not {budget}")
        held = _number(environment.get("CUDASYNC_SOFTGPU_HELD"), DEFAULT_HELD_BYTES >> 20)
        if held < 0:
            raise ValueError(f"CUDASYNC_SOFTGPU_HELD is a number of MiB, not {held}")
        memory = _number(environment.get("CUDASYNC_SOFTGPU_MEMORY"), DEFAULT_TOTAL_BYTES >> 20)
        if not 0 < memory <= _MOST_MEMORY:
            raise ValueError(
                f"CUDASYNC_SOFTGPU_MEMORY is a number of MiB from 1 to {_MOST_MEMORY}, not {memory}"
            )
        lowering = environment.get("CUDASYNC_SOFTGPU_LOWERING") or next(iter(_LOWERINGS))
        chosen = compute_capability or environment.get("CUDASYNC_SOFTGPU_CC")
        machine = Machine(
            devices=devices,
            scheduler=scheduler or environment.get("CUDASYNC_SOFTGPU_SCHEDULER") or "fifo",
            total_bytes=memory << 20,
            budget=budget,
            held_bytes=held << 20,
            memcheck=memcheck,
            record=record,
            capability=named(chosen) if chosen else DEFAULT,
            peers=environment.get("CUDASYNC_SOFTGPU_PEERS") or ALL,
            compile_module=_compiler(lowering),
            find_module=_find if _LOWERINGS[lowering][0] == _KEEPS else nothing_kept,
        )
        table = load_stub(machine, force=force, report=report, compile_functions=_compile_functions)
        _tables.append(table)
        kinds = environment.get("CUDASYNC_CHECKS", "") if checks is None else checks
        if kinds:
            _check(machine, kinds, environment)


def _check(machine: Machine, kinds: str, environment: Mapping[str, str]) -> None:
    """Check the program from its beginning to its end; ValueError for what can not be checked."""
    file = environment.get("CUDASYNC_CHECKS_SUPPRESS")
    try:
        lines = Path(file).read_text(encoding="utf-8") if file else ""
        start_from_process(
            machine,
            kinds.split(","),
            most=_number(environment.get("CUDASYNC_CHECKS_MOST"), 0),
            suppressions=lines,
        )
    except DriverFailure as failure:
        raise ValueError(f"CUDASYNC_CHECKS: {failure.detail}") from None
    except OSError as problem:
        raise ValueError(f"CUDASYNC_CHECKS_SUPPRESS: {problem}") from None


def _compiler(name: str) -> Compile:
    """The lowerings that `name` stands for, each tried when those before it refuse.

    They are imported when first used, since LLVM takes a while to load.
    """
    if name not in _LOWERINGS:
        raise ValueError(f"no lowering called {name!r}: {', '.join(_LOWERINGS)}")

    def compile_module(
        module: ir.Module,
        *,
        memcheck: bool = True,
        record: bool = False,
        races: bool = False,
        convergence: bool = False,
        reads: bool = True,
        windows: bool = False,
        units: bool = False,
        image: bytes | None = None,
        only: str | None = None,
    ) -> CompiledModule:
        refusals: list[PtxError] = []
        for room in _LOWERINGS[name]:
            compile_in: Compile = import_module(f"cudasync.softgpu.{room}").compile_module
            try:
                return compile_in(
                    module,
                    memcheck=memcheck,
                    record=record,
                    races=races,
                    convergence=convergence,
                    reads=reads,
                    windows=windows,
                    units=units,
                    image=image,
                    only=only,
                )
            except PtxError as refusal:
                refusals.append(refusal)
        raise refusals[0]

    return compile_module


def _find(image: bytes, *, memcheck: bool = True) -> Found | None:
    """What the lowering that keeps its work has of this PTX."""
    find: Find = import_module(f"cudasync.softgpu.{_KEEPS}.module").find_module
    return find(image, memcheck=memcheck)


def _compile_functions(text: str, names: list[str]) -> tuple[dict[str, int], object]:
    """Addresses of C functions in LLVM's text, and their owner: LLVM is loaded when asked for."""
    codegen: Any = import_module(f"cudasync.softgpu.{_KEEPS}.machine_code.codegen")
    found: tuple[dict[str, int], object] = codegen.compile_functions(text, names)
    return found


def installed() -> bool:
    """True once `install` has succeeded in this process."""
    return bool(_tables)


def write_native_libraries(folder: Path) -> list[str]:
    """Write what native programs are linked with; the names of the files. CudasyncError."""
    from cudasync.softgpu.abi.native.build import write_libraries

    return write_libraries(folder)


def start_native_program() -> None:
    """Serve the native libraries of this process, which calls this at its first CUDA call."""
    from cudasync.softgpu.abi.native import process

    def put_in_place() -> FunctionTable:
        install(force=True)
        return _tables[0]

    process.start(put_in_place)


def _number(text: str | None, default: int) -> int:
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"not a number: {text!r}") from None
