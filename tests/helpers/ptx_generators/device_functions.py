"""Device functions of random PTX programs: nested, recursive, called by some lanes.

A function has the registers, the memory and the statements of a kernel, except barriers. Two
numbers are the initial values of its registers, and it returns one number. It may call the
functions before it, and itself as deep as its argument says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.ptx_generators.statement_writer import Writer

# Arguments: the kernel's memory, words in local memory of a caller, two numbers, and the remaining
# recursion depth.
_POINTERS = ("input", "scratch", "counters")
SIGNATURE = "(.param .b64 result) NAME(" + (
    ", ".join(f".param .b64 {name}" for name in _POINTERS)
    + ", .param .b64 given, .param .b32 word, .param .b64 long, .param .b32 depth)"
)
PROLOGUE = """\
    ld.param.u64 %rd_input, [input];
    ld.param.u64 %rd_scratch, [scratch];
    ld.param.u64 %rd_counters, [counters];
    ld.param.u64 %rd_given, [given];
    cvta.to.local.u64 %rd_given_local, %rd_given;
    ld.param.u32 %r0, [word];
    ld.param.u64 %l0, [long];
    ld.param.u32 %depth, [depth];
    cvt.u32.u64 %r1, %l0;
    xor.b32 %r2, %r0, %index;
    mad.lo.u32 %r3, %r1, 0x9E3779B1, %r2;
    mov.u32 %r4, %tid.x;
    mul.wide.s32 %l1, %r3, %r2;
    not.b64 %l2, %l0;
    cvt.u16.u32 %h0, %r0;
    cvt.u16.u32 %h1, %r3;
    mov.b16 %h2, 7;
    cvt.rn.f32.s32 %f0, %r0;
    cvt.rn.f32.u32 %f1, %r3;
    mov.f32 %f2, 0f3F000000;
    mov.f32 %f3, 0f80000000;
    cvt.f64.f32 %d0, %f0;
    cvt.rn.f64.s64 %d1, %l1;
    mov.f64 %d2, 0d4008000000000000;
    cvt.rn.f16.f32 %e0, %f0;
    cvt.rn.f16.u16 %e1, %h1;
    cvt.rn.f16.s8 %e2, %h0;
    mov.b32 %g0, {%e0, %e1};
    mov.b32 %g1, {%e2, %e1};
    setp.lt.s32 %p0, %r0, %r1;
    setp.lt.s32 %p1, %r1, %r2;
    setp.lt.s32 %p2, %r2, %r3;
"""


def call(w: Writer) -> None:
    """Call one of the functions written before, perhaps in some lanes only."""
    depth = w.pick(["0", "1", "2"])
    if w.number(0, 1):
        w.emit(f"and.b32 %t, {w.register('R')}, 1")
        depth = "%t"
    function = w.pick(w.functions)
    match w.number(0, 3):
        case 0:
            _call(w, function, depth, guard=f"@{w.register('p')} ", keeps=False)
        case 1:
            end = w.label()
            w.emit(f"@!{w.register('p')} bra {end}")
            _call(w, function, depth)
            w.mark(end)
        case _:
            _call(w, function, depth)


def call_itself(w: Writer) -> None:
    """Call the function itself with a smaller depth, in the threads with a depth above 0."""
    w.emit("setp.ne.u32 %deeper, %depth, 0")
    end = w.label()
    w.emit(f"@!%deeper bra {end}")
    w.emit("sub.u32 %depth, %depth, 1")
    _call(w, w.function, "%depth")
    w.mark(end)


def _call(w: Writer, function: str, depth: str, *, guard: str = "", keeps: bool = True) -> None:
    w.lines.append("    {")
    for name in _POINTERS:
        w.emit(f".param .b64 {name}_to; st.param.b64 [{name}_to], %rd_{name}")
    given = w.pick(["%rd_given", "%rd_generic_local"])
    w.emit(f".param .b64 given_to; st.param.b64 [given_to], {given}")
    w.emit(f".param .b32 word_to; st.param.b32 [word_to], {w.register('R')}")
    w.emit(f".param .b64 long_to; st.param.b64 [long_to], {w.register('L')}")
    w.emit(f".param .b32 depth_to; st.param.b32 [depth_to], {depth}")
    w.emit(".param .b64 result_from")
    names = (*_POINTERS, "given", "word", "long", "depth")
    arguments = ", ".join(f"{name}_to" for name in names)
    w.emit(f"{guard}call (result_from), {function}, ({arguments})")
    if keeps:
        w.emit(f"ld.param.b64 {w.register('L')}, [result_from]")
    w.lines.append("    }")


def give_back(w: Writer) -> None:
    """The last statements of a function: a number that depends on all of its integers."""
    w.emit("mul.wide.u32 %address, %r0, %r1")
    for register in ("%l0", "%l1", "%l2"):
        w.emit(f"xor.b64 %address, %address, {register}")
    for register in ("%r2", "%r3", "%r4"):
        w.emit(f"cvt.u64.u32 %l0, {register}")
        w.emit("mad.lo.u64 %address, %address, 5, %l0")
    w.emit("st.param.b64 [result], %address")
    w.emit("ret")
