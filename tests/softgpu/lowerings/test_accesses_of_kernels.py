"""Every shipped kernel makes only inferred accesses, and all of them when it has work to do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.lowering.recorded_launch import excesses, record
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.array.kernels.bundled_ptx import kernel_file
from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import Access
from cudasync.softgpu import jit, oracle

ROOM = Path(kernel_file("saxpy")).parent
WIDTH, HEIGHT = 37, 5
N = WIDTH * HEIGHT
# The argument for a parameter passed by value, by the parameter's name.
VALUES = {
    "n": np.uint32(N), "m": np.uint32(HEIGHT), "k": np.uint32(8), "a": None, "value": None,
    "width": np.uint32(WIDTH), "height": np.uint32(HEIGHT), "radius": np.uint32(2),
    "rows": np.uint32(HEIGHT), "columns": np.uint32(WIDTH),
    "gain": np.float32(2), "amount": np.float32(0.5),
}  # fmt: skip
# The same for numbers that are as wide as pointers.
WIDE_VALUES = {
    "n": np.uint64(N), "rows": np.uint64(HEIGHT), "columns": np.uint64(WIDTH),
    "plane_step": np.int64(0), "row_step": np.int64(8 * WIDTH), "column_step": np.int64(8),
}  # fmt: skip
# Grid and block by kernel; other kernels get one thread for each of N elements.
POINTWISE = (-(-N // 32),), (32,)
BY_ROWS = (HEIGHT, -(-WIDTH // 32)), (32,)
TILED = (-(-WIDTH // 16), 1), (16, 16)
SHAPES = {
    "gaussian_rows": BY_ROWS, "gaussian_columns": BY_ROWS, "sobel": BY_ROWS, "sgemm": TILED,
    "transpose_f32": ((2, 1), (32, 4)), "latch": ((1,), (1,)),
}  # fmt: skip


@cache
def source(path):
    return parse(path.read_bytes(), path.name)


KERNELS = [
    (path, each.name) for path in sorted(ROOM.glob("*.ptx")) for each in source(path).kernels
]
named = pytest.mark.parametrize(("path", "name"), KERNELS, ids=[name for _, name in KERNELS])


def arguments(path, name):
    """Memory for every pointer, and a number for every other parameter."""
    found = []
    for parameter in source(path).function(name).parameters:
        if parameter.size == 8 and parameter.name in WIDE_VALUES:
            found.append(WIDE_VALUES[parameter.name].tobytes())
        elif parameter.size == 8 and not parameter.type.is_float:
            # Ones open the latch, and are never a zero divisor.
            found.append(bare_launch.aligned(np.ones(8 * N, np.uint8)))
        else:
            value = VALUES[parameter.name]
            if name == "sgemm" and parameter.name == "n":
                value = np.uint32(WIDTH)
            found.append(bytes(parameter.size) if value is None else value.tobytes())
    return found


def launch(name):
    grid, block = SHAPES.get(name, POINTWISE)
    return {"grid": grid, "block": block}


@pytest.mark.sampled(3)
@named
def test_a_kernel_does_exactly_what_was_inferred(path, name):
    """The equality shows that the recording misses nothing either. Both lowerings must agree."""
    happened, fast = (
        record(room.compile_module(source(path), record=True), name, args, **launch(name))[0]
        for room in (oracle, jit)
        for args in [arguments(path, name)]
    )
    found = [Access.VALUE if each is None else each.as_access for each in happened]
    inferred = analyse(source(path), name)
    assert found == list(inferred.parameters)
    assert not inferred.beyond
    assert fast == happened


def test_more_than_was_inferred_is_told():
    text = kernel("ld.param.u64 %d0, [x]; ld.global.b32 %r1, [%d0];\nst.global.b32 [%d0], 1; ret;")
    module = oracle.compile_module(parse(text), record=True)
    (real,), _ = record(
        module, "k", [bare_launch.aligned(np.zeros(4, np.uint8))], grid=(1,), block=(1,)
    )
    line = text[: text.index("st.global")].count("\n") + 1
    read, written = f"but read in line {line - 1}", f"but written in line {line}"
    assert excesses(Access.VALUE, real) == [f"VALUE, {read}", f"VALUE, {written}"]
    assert excesses(Access.READ, real) == [f"READ, {written}"]
    assert excesses(Access.WRITE, real) == [f"WRITE, {read}"]
    assert excesses(Access.READ_WRITE, real) == excesses(Access.UNKNOWN, real) == []
