"""A program for CUDASYNC_CHECK=1 that calls kernels within and beyond their declared accesses.

It prints one JSON object. Each case has the type and text of the raised error, if any. It also has
the array's content afterwards, or the name of the op that poisons the array.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import cudasync as cs
from cudasync.driver.extensions.declared_accesses import can_record

KERNELS = Path(__file__).parents[1] / "kernels.ptx"
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
.global .align 4 .u32 total;
.visible .entry count()
{
    red.global.add.u32 [total], 1;
    ret;
}
.visible .entry follow(.param .u64 table)
{
    .reg .b64 %rd_table;
    ld.param.u64 %rd_table, [table];
    ld.global.u64 %rd_table, [%rd_table];
    st.global.u32 [%rd_table], 1;
    ret;
}
"""


class Bench:
    """Kernels and arrays of one case."""

    def __init__(self) -> None:
        module, more = cs.Module.from_file(KERNELS), cs.Module.from_ptx(TWICE)
        self.mix, self.set = module.kernel("mix")[1, N], module.kernel("set")[1, N]
        self.more = more
        self.twice, self.wild = more.kernel("twice")[1, 1], more.kernel("wild")[1, 1]
        self.x, self.y = (cs.array(np.arange(N, dtype=np.int32)) for _ in range(2))
        self.tail = (np.int32(1), np.uint32(N))

    def op(
        self, fn: Callable[[cs.Stream], object], reads: object = (), writes: object = ()
    ) -> cs.Op:
        """A device op with our own function."""
        return cs.engine().push(fn, reads=reads, writes=writes, name="mine", device=cs.Device(0))

    def set_on(self, stream: cs.Stream, target: cs.Array) -> None:
        """Launch `set` without `push`."""
        cs.launch(self.set.kernel, grid=1, block=N, args=(target, *self.tail), stream=stream)


def _by_hand(bench: Bench) -> object:
    """A launch outside of any op: nothing is declared."""
    stream = cs.Stream()
    cs.hand_over(bench.x, to=stream)
    bench.set_on(stream, bench.x)
    cs.take_over(bench.x, after=stream)
    return bench.set(bench.x, *bench.tail)


def _with_scratch(bench: Bench) -> object:
    def through(stream: cs.Stream) -> None:
        scratch = cs.DeviceBuffer(bench.x.nbytes, stream=stream)
        cs.memcpy_async(scratch, bench.x, stream=stream)
        cs.memcpy_async(bench.x, scratch, stream=stream)
        scratch.close(stream)

    return bench.op(through, [bench.x], [bench.x])


def _pushed_inside(bench: Bench) -> object:
    """Ops that an op's function pushes are separate ops."""

    def outer(_stream: cs.Stream) -> None:
        bench.set(bench.x, *bench.tail)
        cs.copy(bench.y, bench.x)

    return bench.op(outer)


def _pointer_in_memory(bench: Bench, *said: cs.Array) -> object:
    """The launch may reach any memory through the pointer, unless `touching` names the memory."""
    table = cs.array(np.array([bench.x.ptr], np.int64))
    follow = bench.more.kernel("follow")[1, 1]
    return follow.touching(writes=said)(table) if said else follow(table)


def _prepared(bench: Bench) -> object:
    args = (bench.x[:2], *bench.tail)
    return bench.set.kernel.prepare(grid=1, block=N, args=args).push()


def _batch(bench: Bench, *, is_declared: bool) -> object:
    """Each step must keep to its own declaration; declarations of other steps do not help."""
    device, args = cs.Device(0), (bench.y, bench.x, *bench.tail)
    step = bench.mix.kernel.prepare(grid=1, block=N, args=args)
    own = bench.x if is_declared else bench.y
    fill = (lambda stream: bench.set_on(stream, bench.x), own, own, device)
    last = (lambda stream: cs.memset_async(bench.x, 0, stream=stream), (), [bench.x], device)
    return cs.engine().push_many([step, fill, last, step], name="batch")


def _total(bench: Bench, *, is_declared: bool) -> object:
    bench.more.kernel("count")[1, 1]()
    count = bench.more.kernel("count")
    writes = [bench.more.variable("total")] if is_declared else []
    return bench.op(
        lambda stream: cs.launch(count, grid=1, block=1, args=(), stream=stream), writes, writes
    )


CASES: dict[str, Callable[[Bench], object]] = {
    "inferred": lambda b: b.mix(b.x, b.y, *b.tail),
    "right": lambda b: b.mix(cs.InOut(b.x), cs.In(b.y), *b.tail),
    "out": lambda b: b.set(cs.Out(b.x), *b.tail),
    "written, then read": lambda b: b.twice(cs.Out(b.x), b.y),
    "views": lambda b: b.mix(b.x[:4], cs.In(b.x[4:]), np.int32(1), np.uint32(4)),
    "the same array twice": lambda b: b.mix(b.x, cs.In(b.x), *b.tail),
    "nothing done": lambda b: b.mix(cs.In(b.x), b.y, np.int32(1), np.uint32(0)),
    "by hand": _by_hand,
    "not C-contiguous": lambda b: b.set(cs.strided(b.x[::2]), np.int32(1), np.uint32(N - 1)),
    "a function": lambda b: b.op(lambda s: b.set_on(s, b.x), writes=[b.x]),
    "a function with scratch": _with_scratch,
    "a function that pushes": _pushed_inside,
    "a function and a variable": lambda b: _total(b, is_declared=True),
    "a batch": lambda b: _batch(b, is_declared=True),
    "a batch with a step beyond its own": lambda b: _batch(b, is_declared=False),
    "in is written": lambda b: b.mix(cs.In(b.x), b.y, *b.tail),
    "out is read": lambda b: b.mix(cs.Out(b.x), b.y, *b.tail),
    "out is added to": lambda b: b.twice(b.x, cs.Out(b.y)),
    "beyond its view": lambda b: b.mix(b.x[:2], cs.In(b.x[2:]), np.int32(1), np.uint32(4)),
    "beyond a view": lambda b: b.set(b.x[:2], *b.tail),
    "read beyond a view": lambda b: b.mix(b.y, b.x[2:4], np.int32(1), np.uint32(6)),
    "beyond not C-contiguous": lambda b: b.set(cs.strided(b.x[::2]), *b.tail),
    "beyond a view, prepared": _prepared,
    "an address as a number": lambda b: b.set(b.x.ptr, *b.tail),
    "a pointer in memory": _pointer_in_memory,
    "a pointer in memory, as said": lambda b: _pointer_in_memory(b, b.x),
    "a pointer in memory, and another said": lambda b: _pointer_in_memory(b, b.y),
    "a function writes what it reads": lambda b: b.op(lambda s: b.set_on(s, b.x), reads=[b.x]),
    "a function writes beyond": lambda b: b.op(lambda s: b.set_on(s, b.x), writes=[b.x[2:]]),
    "a function reads what it writes": lambda b: b.op(
        lambda s: cs.memcpy_async(b.y, b.x, stream=s), writes=[b.x, b.y]
    ),
    "a function fills": lambda b: b.op(lambda s: cs.memset_async(b.x, 0, stream=s), reads=[b.x]),
    "a function copies out": lambda b: b.op(
        lambda s: cs.memcpy_async(np.empty(N, np.int32), b.x, stream=s), reads=[b.x]
    ),
    "a function and no variable": lambda b: _total(b, is_declared=False),
    "out is never written": lambda b: b.mix(b.x, cs.Out(b.y), *b.tail),
    "in is never read": lambda b: b.set(cs.In(b.x), *b.tail),
    "fault": lambda b: b.wild(cs.Out(b.x)),
}


def outcome(case: Callable[[Bench], object], *, serial: bool) -> dict[str, object]:
    """Run one case and return its outcome. Afterwards the device is as good as new."""
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
