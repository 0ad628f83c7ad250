"""Machine code: its imports are known before it is linked, and it is compiled once."""

from __future__ import annotations

import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers.lowering.isa_cases import ISA
from helpers.lowering.jit_launch import compiled, corpus, start
from helpers.repository.subprocesses import run_text
from helpers.repository.subprocesses import start as start_process

from cudasync.errors import CudasyncError
from cudasync.ptx import parse
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.machine_code import codegen

EMPTY = ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry test()\n{\n    ret;\n}\n"
NEEDS = """
declare i32 @nobody.has.this(i32)
define i32 @kernel(ptr %job) {
  %found = call i32 @nobody.has.this(i32 1)
  ret i32 %found
}
"""


def test_a_symbol_that_nobody_has_is_an_error_and_not_the_end():
    with pytest.raises(CudasyncError, match=r"nobody\.has\.this"):
        codegen.compile_text(NEEDS, {}, "")


def test_llvm_knows_the_option_that_large_kernels_need():
    """LLVM ignores an unknown option silently."""
    library = Path(codegen._library_itself()._name).read_bytes()
    assert codegen.REGION_OPTION.encode() in library
    assert b"no-such-option-of-llvm" not in library


def test_a_kernel_compiled_twice_has_one_machine_code():
    one, two = compile_module(parse(EMPTY)), compile_module(parse(EMPTY))
    first, second = (start(module, "test", 1, 32) for module in (one, two))
    assert first.execution._fit.owner is second.execution._fit.owner
    assert first.run().kind is second.run().kind is OutcomeKind.DONE


def test_an_empty_kernel_runs_in_any_shape():
    for grid, block in [(1, 1), ((3, 2, 4), (5, 6, 7)), (70000, 32)]:
        assert start(compiled(EMPTY), "test", grid, block).run().kind is OutcomeKind.DONE


def test_many_threads_may_launch_one_kernel_at_once():
    module = corpus("kernels_sm75")
    arrays = [np.full(5000, index, np.float32) for index in range(6)]

    def launch(y):
        x = np.ones_like(y)
        for _ in range(5):
            start(module, "axpy", 40, 128, np.float32(1), x, y, y.size).run()

    threads = [threading.Thread(target=launch, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, array in enumerate(arrays):
        assert (array == index + 5).all()


def test_a_large_launch_reports_the_fault_of_its_earliest_block():
    module = corpus("kernels_sm75")
    x, y = np.ones(1 << 18, np.float32), np.ones(1 << 18, np.float32)
    for _ in range(3):
        launched = start(module, "axpy", 1024, 256, np.float32(1), x, y[: 256 * 100], x.size)
        assert launched.run().fault.block == (100, 0, 0)


def test_a_process_that_shows_no_mathematics_has_it_all_the_same():
    """Directed rounding needs fesetround, which the python program itself may not export."""
    file = ISA / "add_directed_f32.ptx"
    script = f"""
        from helpers.lowering.jit_launch import start
        from cudasync.ptx import parse
        from cudasync.softgpu.jit import compile_module
        text = open({str(file)!r}).read()
        module = compile_module(parse(text))
        names = len(module.kernels["test"].parameter_sizes)
        module.kernels["test"]._fit((1, 1, 1), 0)
        print(names)
    """
    code, printed = start_process([sys.executable, "-c", textwrap.dedent(script)], 60)
    assert (code, printed.strip().isdecimal()) == (0, True), printed


def at_level(level: str, numbers: range) -> str:
    """Run random programs in a process with the best level `level`; return the level it used,
    whether it compiled, and the disagreements."""
    script = f"""
        from cudasync.softgpu.jit.machine_code import codegen
        codegen.LEVELS = {{k: v for k, v in codegen.LEVELS.items() if k <= {level!r}}}
        from helpers.lowering.differential import disagreement
        found = [line for number in {numbers!r} for line in disagreement(number)]
        print(codegen.host_level(), codegen.counts["compiled"] > 0, found)
    """
    code, printed = run_text(script, 150, CUDASYNC_SOFTGPU_CACHE="0")
    assert code == 0, printed
    return printed.strip()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("level", sorted(codegen.LEVELS))
def test_code_for_a_lesser_machine_leaves_the_same_bits(level):
    best = codegen.host_level()
    assert at_level(level, range(2, 4)) == f"{min(level, best)} True []"


@pytest.mark.slow
@pytest.mark.parametrize("level", sorted(codegen.LEVELS)[:-1])
@pytest.mark.parametrize("first", range(4, 64, 12))
def test_code_for_a_lesser_machine_leaves_the_same_bits_of_many_programs(level, first):
    assert at_level(level, range(first, first + 12)).endswith("True []")
