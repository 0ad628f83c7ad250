"""A program for CUDASYNC_CHECK=1: it calls kernels as they were declared, and otherwise.

Prints one JSON object: for each case the type of what was raised and its text, if anything was,
and what is in an array afterwards, or whose failure poisons it.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

import cudasync as cs
from cudasync.driver.checking import Expected, can_record, expecting

KERNELS = Path(__file__).parent / "kernels.ptx"
N = 8

TWICE = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry twice(.param .u64 target, .param .u64 counter)
{
    .reg .b32 %r_value;
    .reg .b64 %rd_target, %rd_counter;
    ld.param.u64 %rd_target, [target];
    ld.param.u64 %rd_counter, [counter];
    st.global.u32 [%rd_target], 7;
    ld.global.u32 %r_value, [%rd_target];
    add.u32 %r_value, %r_value, %r_value;
    st.global.u32 [%rd_target], %r_value;
    red.global.add.u32 [%rd_counter], 1;
    ret;
}
.visible .entry wild(.param .u64 target)
{
    .reg .b64 %rd_target;
    ld.param.u64 %rd_target, [target];
    st.global.u32 [%rd_target+1048576], 1;
    ret;
}
"""


class Bench:
    """Kernels and arrays of one case."""

    def __init__(self) -> None:
        module, more = cs.Module.from_file(KERNELS), cs.Module.from_ptx(TWICE)
        self.mix, self.set = module.kernel("mix")[1, N], module.kernel("set")[1, N]
        self.twice, self.wild = more.kernel("twice")[1, 1], more.kernel("wild")[1, 1]
        self.x, self.y = (cs.array(np.arange(N, dtype=np.int32)) for _ in range(2))
        self.tail = (np.int32(1), np.uint32(N))


def _taken_back(bench: Bench) -> object:
    """An expectation whose launch is refused is not left behind for another."""
    kernel, (low, high) = bench.set.kernel, bench.x.region
    with suppress(ValueError), expecting(kernel, [Expected(0, low, high, False, False, True)], ""):
        cs.launch(kernel, grid=0, args=(bench.x, *bench.tail))
    return bench.set(bench.x, *bench.tail)


CASES: dict[str, Callable[[Bench], object]] = {
    "inferred": lambda b: b.mix(b.x, b.y, *b.tail),
    "right": lambda b: b.mix(cs.InOut(b.x), cs.In(b.y), *b.tail),
    "out": lambda b: b.set(cs.Out(b.x), *b.tail),
    "written, then read": lambda b: b.twice(cs.Out(b.x), b.y),
    "views": lambda b: b.mix(b.x[:4], cs.In(b.x[4:]), np.int32(1), np.uint32(4)),
    "the same array twice": lambda b: b.mix(b.x, cs.In(b.x), *b.tail),
    "nothing done": lambda b: b.mix(cs.In(b.x), b.y, np.int32(1), np.uint32(0)),
    "taken back": _taken_back,
    "in is written": lambda b: b.mix(cs.In(b.x), b.y, *b.tail),
    "out is read": lambda b: b.mix(cs.Out(b.x), b.y, *b.tail),
    "out is added to": lambda b: b.twice(b.x, cs.Out(b.y)),
    "beyond its view": lambda b: b.mix(b.x[:2], cs.In(b.x[2:]), np.int32(1), np.uint32(4)),
    "out is never written": lambda b: b.mix(b.x, cs.Out(b.y), *b.tail),
    "in is never read": lambda b: b.set(cs.In(b.x), *b.tail),
    "fault": lambda b: b.wild(cs.Out(b.x)),
}


def outcome(case: Callable[[Bench], object], *, serial: bool) -> dict[str, object]:
    """What came of one case; the device is as new afterwards."""
    found: dict[str, object] = {}
    engine = cs.Engine("serial") if serial else cs.Engine()
    with cs.use(engine):
        bench = Bench()
        engine.waitall()
        try:
            op = case(bench)
            assert isinstance(op, cs.Op)
            op.wait()
            found["x"] = bench.x.numpy().tolist()
        except Exception as error:
            found |= {"type": type(error).__name__, "text": str(error)}
            cause = getattr(error, "cause", None)
            found["cause"] = getattr(cause, "name", None)
            try:
                bench.x.numpy()
            except cs.OpError as poison:
                found["x"] = poison.op
    engine.clear_errors()
    if found.get("cause"):
        cs.Device(0).reset()
    engine.close()
    return found


def main() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found: dict[str, object] = {
            name: outcome(case, serial="serial" in sys.argv) for name, case in CASES.items()
        }
    found["can record"] = can_record()
    found["warned"] = [str(each.message) for each in warned]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
