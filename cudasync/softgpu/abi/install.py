"""Cellar. Loads the stub into the process, where cuda.bindings finds it as libcuda.so.1.

glibc resolves a later dlopen("libcuda.so.1") to any loaded library of that SONAME, wherever its
file came from. So our stub only has to be loaded before the first driver call. A process uses the
software GPU or a real one, never both, for its whole life.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudasync.errors import CudasyncError
from cudasync.softgpu.abi.calls import (
    context,
    device,
    errors_and_entry_points,
    event,
    memcpy,
    memory,
    memory_pool,
    stream,
)
from cudasync.softgpu.abi.cupy.import_hook import await_cupy
from cudasync.softgpu.abi.other_libraries import nvml_library
from cudasync.softgpu.abi.runtime.bindings import await_bindings
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.dispatch_table import (
    CONSTANTS,
    SLOT_COUNT,
    FunctionTable,
    catch_early_interrupts,
)
from cudasync.softgpu.abi.stub.elf import SONAME, build
from cudasync.softgpu.abi.stub.exported_symbols import exports
from cudasync.softgpu.abi.stub.loaded_libraries import native_library
from cudasync.softgpu.abi.stub.slots import base_of

if TYPE_CHECKING:
    from cudasync.softgpu.abi.cupy.runtime_module import Compile
    from cudasync.softgpu.core.machine import Machine

CALLS: Final = (
    context,
    device,
    errors_and_entry_points,
    event,
    memcpy,
    memory,
    memory_pool,
    stream,
)
"""The modules of which every program calls functions. `late_groups.py` has all others."""

BEHIND_NATIVE: Final = "libcudasync-driver.so"
"""The stub's name if a native library has the driver's name."""
_RTLD_NOLOAD: Final = 4


def load_stub(
    machine: Machine,
    *,
    force: bool,
    report: bool = False,
    compile_functions: Compile | None = None,
) -> FunctionTable:
    """Load the stub and fill it; CudasyncError if a real driver exists and `force` is false."""
    # A native program may be linked with our library of this name, which forwards to the stub.
    is_native = native_library(SONAME) is not None
    if is_loaded(SONAME) and not is_native:
        raise CudasyncError(
            f"a {SONAME} is loaded in this process already: install the software GPU before"
        )
    real = None if force else real_driver()
    if real is not None:
        raise CudasyncError(
            f"this machine has a CUDA driver ({real}): pass force=True to install anyway"
        )

    registry.enter_late()
    exported = exports()
    soname = BEHIND_NATIVE if is_native else SONAME
    stub = build(exported.slots, SLOT_COUNT, CONSTANTS, machine=platform.machine(), soname=soname)
    with tempfile.TemporaryDirectory(prefix="cudasync-") as folder:
        path = Path(folder) / soname
        path.write_bytes(stub.image)
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        nvml = None if is_loaded(nvml_library.SONAME) else nvml_library.Nvml(machine, Path(folder))
    table = FunctionTable(machine, stub, base_of(library, stub), exported, report=report)
    table.nvml = nvml
    errors_and_entry_points.serve(table)
    await_bindings(table)
    if compile_functions is not None:
        await_cupy(table, compile_functions)
    catch_early_interrupts()
    # Runs late: atexit calls callbacks in reverse order of registration.
    atexit.register(table.end)
    os.register_at_fork(after_in_child=lambda: _after_fork(table))
    return table


def _after_fork(table: FunctionTable) -> None:
    """In a child: objects initialised before the fork do not work, as with a real driver."""
    table.machine.after_fork()
    if table.machine.is_initialized:
        table.disown()


def is_loaded(name: str) -> bool:
    """Whether the process has loaded a library of this SONAME."""
    try:
        ctypes.CDLL(name, mode=_RTLD_NOLOAD)
    except OSError:
        return False
    return True


def real_driver() -> str | None:
    """Where the loader would find a real driver, without loading it; None if there is none."""
    places = [
        Path(folder) / SONAME
        for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":")
        if folder
    ]
    for place in places:
        if place.exists():
            return str(place)
    try:
        cache = Path("/etc/ld.so.cache").read_bytes()
    except OSError:
        return None
    return "in the loader's cache" if b"/" + SONAME.encode() + b"\0" in cache else None
