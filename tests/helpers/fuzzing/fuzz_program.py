"""A program: loads hostile PTX, launches what the driver accepts, and reports each case.

    python -m helpers.fuzzing.fuzz_program (text|typed|thought up|fat binary) FIRST COUNT

Before each case the program prints `case N`, so that a crash or a hang names the case. After a case
with a wrong end it prints `bad N: why`. No other code may print anything.
"""

from __future__ import annotations

import ctypes
import faulthandler
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
from helpers.driver import fat_binaries
from helpers.fuzzing.adversarial_texts import TEXTS
from helpers.fuzzing.mutation import damaged, exchanged
from helpers.lowering import bare_launch

from cudasync.errors import PtxError

if TYPE_CHECKING:
    from collections.abc import Callable

# The most time of one case, in a process that shares its processors.
PATIENCE_S = 60
BUDGET = 20_000
GRID, BLOCK = (2, 1, 1), (36, 1, 1)
BUFFER_BYTES = 512
TURNS = 100
NOT_READY = 600
# The permitted result codes. 999 is not among them, because it stands for the unforeseen.
LOADED = {0: "", 2: "", 200: "", 209: "", 218: "", 222: "", 801: ""}
LAUNCHED = (0, 1, 2, 700, 701, 702, 710, 715, 716, 719)
_PLACED = re.compile(r"line \d+|ptxas fatal", re.ASCII)


def text_case(number: int) -> str:
    """Load a damaged text through the driver and launch its kernels; return the problem or ""."""
    return loaded(damaged(number))


def fat_binary_case(number: int) -> str:
    """The same with a damaged fat binary."""
    return loaded(fat_binaries.damaged(number))


def loaded(image: bytes) -> str:
    """Load an image through the driver and launch its kernels; return the problem or ""."""
    from cuda.bindings import driver

    log = bytearray(4096)
    option = driver.CUjit_option
    result, module = driver.cuModuleLoadDataEx(
        image + b"\0",
        2,
        [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES],
        [log, len(log)],
    )
    code = int(result)
    if code not in LOADED:
        driver.cuDevicePrimaryCtxReset(0)
        return f"loading gave {result!r}: {_sentence(result)}"
    if code == 218 and not _PLACED.search(log.split(b"\0")[0].decode()):
        return f"the log names no line: {log[:200]!r}"
    if code:
        return ""
    _, count = driver.cuModuleGetFunctionCount(module)
    _, functions = driver.cuModuleEnumerateFunctions(count, module) if count else (0, [])
    for function in functions:
        wrong, is_lost = _launched(function)
        if wrong or is_lost:
            return wrong
    driver.cuModuleUnload(module)
    return ""


def thought_up_case(number: int) -> str:
    """A text of the list of adversarial texts."""
    return loaded(list(TEXTS.values())[number].encode())


def _sentence(result: object) -> str:
    from cuda.bindings import driver

    return driver.cuGetErrorString(result)[1].decode()


def _launched(function: object) -> tuple[str, bool]:
    """Launch a function; return the problem, and whether the context with its modules is lost."""
    from cuda.bindings import driver

    sizes = []
    while True:
        result, _, size = driver.cuFuncGetParamInfo(function, len(sizes))
        if int(result):
            break
        sizes.append(size)
    result, buffer = driver.cuMemAlloc(BUFFER_BYTES)
    if int(result):
        return f"no memory afterwards: {result!r}", False
    values = []
    for size in sizes:
        value = (ctypes.c_ubyte * max(size, 8))()
        if size == 8:
            ctypes.c_uint64.from_buffer(value).value = int(buffer)
        elif size == 4:
            ctypes.c_uint32.from_buffer(value).value = 7
        values.append(value)
    pointers = (ctypes.c_void_p * (len(values) + 1))(*map(ctypes.addressof, values))
    (result,) = driver.cuLaunchKernel(function, *GRID, *BLOCK, 64, 0, ctypes.addressof(pointers), 0)
    turns = TURNS
    while int(result) in (0, NOT_READY) and turns:
        # Each query gives one turn to a kernel that spins politely, perhaps for ever.
        (result,) = driver.cuStreamQuery(0)
        turns = turns - 1 if int(result) else 0
    code = int(result)
    if code == NOT_READY:
        driver.cuDevicePrimaryCtxReset(0)
        return "", True
    if code not in LAUNCHED:
        sentence = _sentence(result)
        driver.cuDevicePrimaryCtxReset(0)
        return f"launching gave {result!r}: {sentence}", True
    if code > 2:
        (again,) = driver.cuDevicePrimaryCtxReset(0)
        return (f"resetting after {result!r} gave {again!r}" if int(again) else ""), True
    driver.cuMemFree(buffer)
    return "", False


def typed_case(number: int) -> str:
    """Lower a module with exchanged instructions on both lowerings, and run its kernels."""
    from cudasync.softgpu import jit, oracle

    module = exchanged(number)
    for lower in (jit.compile_module, oracle.compile_module):
        try:
            compiled = lower(module)
        except PtxError:
            continue
        for name in compiled.kernels:
            _run(compiled, name)
    return ""


def _run(compiled, name: str) -> None:
    kernel = compiled.kernels[name]
    if kernel.static_shared_bytes > 48 << 10 or any(v.is_extern for v in compiled.variables):
        return
    buffer = bare_launch.aligned(np.zeros(BUFFER_BYTES, np.uint8))
    values = []
    for size in kernel.parameter_sizes:
        values.append(buffer.ctypes.data if size == 8 else (7).to_bytes(size, "little"))
    variables = [
        bare_launch.aligned(np.zeros(max(v.size, 1), np.uint8)) for v in compiled.variables
    ]
    block = BLOCK if kernel.max_threads >= BLOCK[0] else (1, 1, 1)
    bare_launch.run(
        compiled,
        name,
        grid=GRID,
        block=block,
        args=values,
        memory=[buffer],
        variables=variables,
        budget=BUDGET,
        turns=50,
        shared_bytes=64,
    )


def main(kind: str, first: int, count: int) -> None:
    # A crash shows where it was.
    faulthandler.enable()
    cases = {"text": text_case, "typed": typed_case, "thought up": thought_up_case}
    cases["fat binary"] = fat_binary_case
    case: Callable[[int], str] = cases[kind]
    if kind != "typed":
        from cuda.bindings import driver

        from cudasync import softgpu

        softgpu.install(force=True)
        driver.cuInit(0)
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    for number in range(first, first + count):
        sys.stdout.write(f"case {number}\n")
        sys.stdout.flush()
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        try:
            wrong = case(number)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        faulthandler.cancel_dump_traceback_later()
        if wrong:
            sys.stdout.write(f"bad {number}: {' '.join(wrong.split())}\n")
    sys.stdout.write("end\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
