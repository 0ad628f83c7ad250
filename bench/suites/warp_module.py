"""Runs a module of NVIDIA Warp's tests on the software GPU: `pip install warp-lang`.

    python bench/suites/warp_module.py test_math          a module of warp/tests, dots for folders
    python bench/suites/warp_module.py tile.test_tile -v -k sort  with options of unittest

Warp links the CUDA runtime itself, which the software GPU does not replace. But Warp compiles for
GPUs without having one, and runs kernels on the processor. This program turns each of these calls
into a launch, in the same memory, of the PTX that Warp's NVRTC makes. Warp's tests judge the
results.

The memory is the host's, so accesses are not checked by default. If CUDASYNC_CHECKS asks for
checks, arrays are page-locked memory, which the checks know. Processes that a test starts run on
the processor.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import ctypes
import importlib
import json
import os
import re
import resource
import tempfile
import unittest
from functools import cache
from importlib.util import find_spec
from typing import Any

import warp
import warp._src.build as build
import warp._src.codegen as codegen
import warp._src.context as context

ARCHITECTURE = 80
# The kinds of checks, as in `cudasync run --check`.
CHECKED = os.environ.get("CUDASYNC_CHECKS", "").split(",")
# Warp's default block size on a GPU.
BLOCK = 256
# Tests that run the processor's code behind Warp's back: recorded launches, and objects of files.
_RUNS_THERE = re.compile(r"apic|\baot|ScopedCapture|capture_begin|build_cpu|external")
_ENTRY = re.compile(r"WP_API void (\w+_cpu_(?:forward|backward))\(")
_build_cpu = build.build_cpu


def without_bodies(target: str, source: str, **options: Any) -> None:
    """Compile for the processor only the entry points of kernels, which nobody calls.

    Whole modules took minutes of Clang's time, more than all else.
    """
    names = _ENTRY.findall(Path(source).read_text(encoding="utf-8"))
    entries = "".join(f"void {name}() {{ __builtin_trap(); }}\n" for name in names)
    brief = Path(f"{source}.entries.cpp")
    brief.write_text(f'extern "C" {{\n{entries}}}\n', encoding="utf-8")
    _build_cpu(target, str(brief), **options | {"use_precompiled_headers": False})


class SoftwareGpu:
    """The software GPU with the modules that Warp has compiled for it."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str]) -> None:
        from cuda.bindings import driver

        import cudasync.softgpu

        if "mem" not in CHECKED:
            os.environ["CUDASYNC_MEMCHECK"] = "0"
        cudasync.softgpu.install(force=True)
        self._driver: Any = driver
        self._call("cuInit", 0)
        device = self._call("cuDeviceGet", 0)
        self._call("cuCtxSetCurrent", self._call("cuDevicePrimaryCtxRetain", device))
        self._folder = folder
        self._block = BLOCK
        self.load = cache(self._load)
        self.launched = 0

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *results = getattr(self._driver, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {status.name}")
        return results[0] if results else None

    def _load(self, module: Any, version: bytes, block: int) -> tuple[Any, dict[str, int]]:
        """The driver's module, and what Warp has written about its kernels."""
        folder = Path(self._folder.name) / version.hex()
        name = f"{module.get_module_identifier(block)}.ptx"
        processor_time = resource.getrlimit(resource.RLIMIT_CPU)
        module._compile(
            output_dir=folder,
            output_name=name,
            output_arch=ARCHITECTURE,
            use_ptx=True,
            options=module.resolved_options[block],
        )
        # NVRTC lifts the limit.
        resource.setrlimit(resource.RLIMIT_CPU, processor_time)
        meta = json.loads((folder / module._get_meta_name(block_dim=block)).read_text())
        image = (folder / name).read_bytes().rstrip(b"\0") + b"\0"
        return self._call("cuModuleLoadData", image), meta

    def take_over(self) -> None:
        """Launch on the software GPU what Warp would call on the processor."""
        resolve = context._resolve_launch_block_dim

        def noted(device: Any, block: int) -> int:
            self._block = resolve(device, block)
            return self._block

        def one_by_one(kernel: Any, _hooks: Any, params: list[Any], adjoint: bool) -> None:
            # Tiles are in shared memory. A kernel with tiles is compiled for blocks of one thread.
            block = 1 if self.needs(kernel, BLOCK, adjoint=adjoint)[2] else BLOCK
            self.launch(kernel, params, block, adjoint=adjoint)

        def in_blocks(kernel: Any, _hooks: Any, params: list[Any], adjoint: bool) -> None:
            self.launch(kernel, params, self._block, adjoint=adjoint)

        if any(CHECKED):
            context.CpuDefaultAllocator.allocate = lambda _, size: self.allocate(size)
            context.CpuDefaultAllocator.deallocate = lambda _, start, size: self.free(start)
        context._resolve_launch_block_dim = noted
        context.invoke, context.invoke_cpu_blocks = one_by_one, in_blocks

    def allocate(self, size_bytes: int) -> int:
        """Page-locked memory, whose accesses by kernels can be checked."""
        return int(self._call("cuMemHostAlloc", size_bytes, 0))

    def free(self, start: int) -> None:
        self._call("cuMemFreeHost", start)

    def needs(self, kernel: Any, block: int, *, adjoint: bool) -> tuple[Any, str, int]:
        """The module with a kernel for blocks of this size, its name, its shared memory."""
        module, meta = self.load(kernel.module, kernel.module.get_module_hash(block), block)
        named = codegen.cuda_kernel_backward_name if adjoint else codegen.cuda_kernel_forward_name
        name = named(kernel)
        return module, name, meta.get(f"{name}_smem_bytes", 0)

    def launch(self, kernel: Any, params: list[Any], block: int, *, adjoint: bool) -> None:
        """Launch with `params` in the form of a Warp kernel, and wait for the end."""
        module, name, shared = self.needs(kernel, block, adjoint=adjoint)
        function = self._call("cuModuleGetFunction", module, name.encode())
        if shared:
            most = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, most, shared)
        addresses = (ctypes.c_void_p * len(params))(*map(ctypes.addressof, params))
        blocks = -(-params[0].size // block)
        self._call(
            *("cuLaunchKernel", function, blocks, 1, 1, block, 1, 1, shared, 0),
            *(ctypes.addressof(addresses), 0),
        )
        self._call("cuCtxSynchronize")
        self.launched += 1


def begin(module: str) -> SoftwareGpu:
    """Initialise Warp, and launch the kernels of a module of tests on the software GPU."""
    spec = find_spec(module)
    text = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
    folder = tempfile.TemporaryDirectory()
    if not _RUNS_THERE.search(text):
        # Nobody else may find such objects in Warp's cache.
        os.environ["WARP_CACHE_PATH"] = folder.name
        build.build_cpu = without_bodies
    warp.config.enable_cpu_blocks = True
    # Before the software GPU is installed, which Warp would take for a GPU of its own.
    warp.init()
    device = SoftwareGpu(folder)
    device.take_over()
    return device


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    device = begin(f"warp.tests.{sys.argv[1]}")
    tests = importlib.import_module(f"warp.tests.{sys.argv[1]}")
    done = unittest.main(module=tests, exit=False, argv=["warp_module", *sys.argv[2:]])
    print(f"{device.launched} launches on the software GPU")
    return 0 if done.result.wasSuccessful() else 1


if __name__ == "__main__":
    raise SystemExit(main())
