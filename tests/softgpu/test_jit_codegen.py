"""Machine code: what it needs is known before it is linked, and it is made once."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.jit import compiled, corpus, start

from cudasync.errors import CudasyncError
from cudasync.ptx import parse
from cudasync.softgpu.jit import codegen, compile_module
from cudasync.softgpu.launching import OutcomeKind

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


def test_a_kernel_compiled_twice_has_one_machine_code():
    one, two = compile_module(parse(EMPTY)), compile_module(parse(EMPTY))
    first, second = (start(module, "test", 1, 32) for module in (one, two))
    assert first._fit.owner is second._fit.owner
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
