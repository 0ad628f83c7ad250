"""Kernels of any size, like those of programs that unroll, inline and generate code.

Each kernel takes `out` and `source`, arrays of 32-bit words, and is launched with one block of 64
threads. `large(family, size)` is a PTX text of about `size` instructions, the same each time.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THREADS = 64
# The words of each array: no kernel accesses more.
WORDS = 4096
# The registers that all code uses; few enough that most are live everywhere.
_FLOATS = 16
_WORDS = 8

_HEAD = """\
.version 8.0
.target sm_80
.address_size 64
"""
_BEGIN = """\
.visible .entry large(.param .u64 out, .param .u64 source)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<64>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<64>;
    .shared .align 16 .b8 tile[16384];
{variables}
    ld.param.u64 %rd0, [out];
    ld.param.u64 %rd1, [source];
    cvta.to.global.u64 %rd0, %rd0;
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r32, %tid.x;
    mul.wide.u32 %rd2, %r32, 4;
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd4, %rd1, %rd2;
    shl.b32 %r33, %r32, 2;
    mov.u32 %r34, tile;
    add.u32 %r33, %r33, %r34;
"""


def large(family: str, size: int, seed: int = 0) -> str:
    """The text of a kernel; `family` is one of `FAMILIES`."""
    make = FAMILIES[family]
    return "\n".join([_HEAD, *make(size, Random(f"{family} {size} {seed}")), ""])


def _kernel(lines: Iterator[str], variables: str = "") -> Iterator[str]:
    """A kernel around `lines`: loads before them, stores of all registers behind them."""
    yield _BEGIN.format(variables=variables)
    for number in range(_FLOATS):
        yield f"    ld.global.f32 %f{number}, [%rd4+{number * 4 * THREADS}];"
    for number in range(_WORDS):
        yield f"    ld.global.u32 %r{number}, [%rd4+{number * 4 * THREADS}];"
    yield from lines
    for number in range(_FLOATS):
        yield f"    st.global.f32 [%rd3+{number * 4 * THREADS}], %f{number};"
    for number in range(_WORDS):
        yield f"    st.global.u32 [%rd3+{(number + _FLOATS) * 4 * THREADS}], %r{number};"
    yield "    ret;"
    yield "}"


def _floating(random: Random) -> str:
    """One instruction on floats, which keeps the magnitude of the values."""
    target, *of = (f"%f{random.randrange(_FLOATS)}" for _ in range(4))
    operation = random.choice(("add", "mul", "fma", "fma", "max", "min"))
    if operation == "fma":
        return f"    fma.rn.f32 {target}, {of[0]}, 0f3E800000, {of[1]};"
    if operation == "mul":
        return f"    mul.f32 {target}, {of[0]}, 0f3F400000;"
    if operation == "add":
        return f"    add.f32 {target}, {of[0]}, {of[1]};"
    return f"    {operation}.f32 {target}, {of[0]}, {of[1]};"


def _integer(random: Random) -> str:
    target, first, second = (f"%r{random.randrange(_WORDS)}" for _ in range(3))
    operation = random.choice(("add.u32", "sub.u32", "xor.b32", "and.b32", "mul.lo.u32", "shl.b32"))
    if operation == "shl.b32":
        second = str(random.randrange(1, 9))
    return f"    {operation} {target}, {first}, {second};"


def _straight(size: int, random: Random) -> Iterator[str]:
    """Straight-line formulas."""
    return _kernel(_floating(random) for _ in range(size))


def _branches(size: int, random: Random) -> Iterator[str]:
    """Conditions on which lanes differ, every tenth instruction, some nested."""

    def lines() -> Iterator[str]:
        label, open_ones, written = 0, [], 0
        while written < size:
            yield f"    setp.lt.s32 %p0, %r{random.randrange(_WORDS)}, {random.randrange(-99, 99)};"
            yield f"    @%p0 bra L{label};"
            open_ones.append(label)
            label += 1
            for _ in range(8):
                yield random.choice((_floating, _integer))(random)
            written += 10
            while open_ones and (len(open_ones) > 3 or random.random() < 0.8):
                yield f"L{open_ones.pop()}:"
        for each in reversed(open_ones):
            yield f"L{each}:"

    return _kernel(lines())


def _barriers(size: int, random: Random) -> Iterator[str]:
    """Rounds of an unrolled scan or reduction: store, wait, load another's value, compute."""

    def lines() -> Iterator[str]:
        for number in range(size // 10):
            target = random.randrange(_FLOATS)
            yield f"    xor.b32 %r40, %r32, {1 << number % 6};"
            yield "    shl.b32 %r40, %r40, 2;"
            yield "    add.u32 %r40, %r40, %r34;"
            yield f"    st.shared.f32 [%r33], %f{target};"
            yield "    bar.sync 0;"
            yield "    ld.shared.f32 %f40, [%r40];"
            yield "    fma.rn.f32 %f41, %f40, 0f3E800000, %f0;"
            yield f"    max.f32 %f{target}, %f41, %f{random.randrange(_FLOATS)};"
            yield _floating(random)
            yield "    bar.sync 0;"

    return _kernel(lines())


def _matrices(size: int, random: Random) -> Iterator[str]:
    """Tiles of an unrolled matrix product: fragments are loaded, multiplied and added."""

    def fragment(first: int, count: int, kind: str) -> str:
        return "{" + ", ".join(f"%{kind}{first + each}" for each in range(count)) + "}"

    def lines() -> Iterator[str]:
        sums = fragment(16, 8, "f")
        for each in range(16, 24):
            yield f"    mov.f32 %f{each}, 0f00000000;"
        for number in range(size // 4):
            at = random.randrange(0, 64) * 32
            for first, name in ((8, "a.sync.aligned.row"), (16, "b.sync.aligned.col")):
                yield (
                    f"    wmma.load.{name}.m16n16k16.global.f16 "
                    f"{fragment(first, 8, 'r')}, [%rd1+{at}], 16;"
                )
            yield (
                f"    wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {sums}, "
                f"{fragment(8, 8, 'r')}, {fragment(16, 8, 'r')}, {sums};"
            )
            yield f"    add.f32 %f{number % _FLOATS}, %f{number % _FLOATS}, %f{16 + number % 8};"

    return _kernel(lines())


def _tables(size: int, random: Random) -> Iterator[str]:
    """A table in shared memory, filled word by word and indexed by computed values."""

    def lines() -> Iterator[str]:
        for number in range(size // 3):
            yield f"    mov.u32 %r40, {random.randrange(1 << 32)};"
            yield f"    st.shared.u32 [tile+{4 * (number % WORDS)}], %r40;"
        yield "    bar.sync 0;"
        for _ in range(size // 3 // 4):
            source, target = random.randrange(_WORDS), random.randrange(_WORDS)
            yield f"    and.b32 %r40, %r{source}, 16380;"
            yield "    add.u32 %r40, %r40, %r34;"
            yield "    ld.shared.u32 %r41, [%r40];"
            yield f"    xor.b32 %r{target}, %r{target}, %r41;"

    return _kernel(lines())


def _loops(size: int, random: Random) -> Iterator[str]:
    """An unrolled loop body: loads and stores at constant offsets."""

    def lines() -> Iterator[str]:
        yield "    mov.u32 %r40, 0;"
        yield "LOOP:"
        for _ in range(size // 4):
            target = random.randrange(_FLOATS)
            at, to = (4 * THREADS * random.randrange(WORDS // THREADS) for _ in range(2))
            yield f"    ld.global.f32 %f40, [%rd4+{at}];"
            yield f"    fma.rn.f32 %f{target}, %f{target}, 0f3E800000, %f40;"
            yield _floating(random)
            yield f"    st.global.f32 [%rd3+{to}], %f{target};"
        yield "    add.u32 %r40, %r40, 1;"
        yield "    setp.lt.u32 %p0, %r40, 3;"
        yield "    @%p0 bra LOOP;"

    return _kernel(lines())


def _calls(size: int, random: Random) -> Iterator[str]:
    """Functions with a barrier inside that call each other: each call must be inlined."""
    leaf, depth = 24, 3

    def function(number: int, below: str | None, length: int) -> Iterator[str]:
        yield f".func (.param .b32 result) step{number}(.param .b32 given, .param .b32 place)"
        yield "{"
        yield "    .reg .f32 %f<64>;"
        yield "    .reg .b32 %r<4>;"
        yield f"    .shared .align 4 .b8 own{number}[256];"
        for each in range(_FLOATS):
            yield f"    mov.f32 %f{each}, 0f3F{each:02x}0000;"
        yield "    ld.param.f32 %f0, [given];"
        yield "    ld.param.u32 %r0, [place];"
        for _ in range(length):
            yield _floating(random)
        if below is None:
            yield "    st.shared.f32 [%r0], %f0;"
            yield "    bar.sync 0;"
            yield "    ld.shared.f32 %f1, [%r0];"
        for call in range(2 if below else 0):
            yield from _call(below or "", f"%f{call}", "%r0", f"%f{call}")
        yield "    add.f32 %f0, %f0, %f1;"
        yield "    st.param.f32 [result], %f0;"
        yield "    ret;"
        yield "}"

    def lines() -> Iterator[str]:
        # The calls are three functions deep, with two calls in each: four leaves for each call.
        for _ in range(max(1, size // (7 * (leaf + _FLOATS + 12)))):
            target = f"%f{random.randrange(_FLOATS)}"
            yield from _call(f"step{depth - 1}", target, "%r33", target)

    for number in range(depth):
        yield from function(number, f"step{number - 1}" if number else None, leaf)
    yield from _kernel(lines())


def _call(name: str, given: str, place: str, result: str) -> Iterator[str]:
    yield "    {"
    yield "    .param .b32 first;"
    yield "    .param .b32 second;"
    yield "    .param .b32 back;"
    yield f"    st.param.f32 [first], {given};"
    yield f"    st.param.b32 [second], {place};"
    yield f"    call.uni (back), {name}, (first, second);"
    yield f"    ld.param.f32 {result}, [back];"
    yield "    }"


FAMILIES: dict[str, Callable[[int, Random], Iterator[str]]] = {
    "straight": _straight,
    "branches": _branches,
    "barriers": _barriers,
    "matrices": _matrices,
    "tables": _tables,
    "loops": _loops,
    "calls": _calls,
}
