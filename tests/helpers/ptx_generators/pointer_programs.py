"""Random PTX programs that move pointers in every possible way, as a Hypothesis strategy.

Four registers always hold pointers into the middle of some memory: of one of two parameters, of one
of two fields of a struct passed by value, or of a variable. All memory is also full of pointers, to
memory that the kernel was not given, so that every loaded value can be followed. Each statement
keeps this true on every path. So a program is any list of statements, run twice in a loop by two
threads that sometimes diverge.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.ptx_generators.kernel_frame import HEAD
from hypothesis import strategies as st

REGISTERS = 4
ROUNDS = 2
# Bytes of each memory. Pointers start in its middle.
ROOM = 4096
# The sources of pointers: a parameter, or a field of the struct.
PARAMETERS = ("p0", "p1", "s+8", "s+16")
STRUCT_BYTES = 32

_FUNCTIONS = """
.global .align 8 .b64 table[512];
.func (.param .b64 y) same(.param .b64 x)
{ .reg .b64 %d; ld.param.b64 %d, [x]; st.param.b64 [y], %d; ret; }
.func (.param .b64 y) pick(.param .b64 x, .param .b64 z, .param .b32 c)
{
    .reg .b64 %d<2>; .reg .b32 %r; .reg .pred %p;
    ld.param.b64 %d0, [x]; ld.param.b64 %d1, [z]; ld.param.b32 %r, [c];
    setp.ne.s32 %p, %r, 0; @%p mov.b64 %d0, %d1; st.param.b64 [y], %d0; ret;
}
.func poke(.param .b64 x, .param .b64 v)
{ .reg .b64 %d<2>; ld.param.b64 %d0, [x]; ld.param.b64 %d1, [v]; st.b64 [%d0], %d1; ret; }
.func (.param .b64 y) peek(.param .b64 x)
{ .reg .b64 %d; ld.param.b64 %d, [x]; ld.b64 %d, [%d]; st.param.b64 [y], %d; ret; }
.func (.reg .b64 y) moved(.reg .b64 x) { add.s64 y, x, 8; ret; }
"""

# {a} gets a new pointer from {b} and {c}; {n} is 0 to 7, {o} is {n} words; OUT is a pointer to the
# outside memory.
MOVES = {
    "parameter": "ld.param.u64 %d{a}, [{parameter}];",
    "parameter by address": "mov.b64 %t0, p{bit}; ld.param.b64 %d{a}, [%t0];",
    "generic parameter": "mov.b64 %t0, p{bit}; cvta.param.u64 %t0, %t0; ld.b64 %d{a}, [%t0];",
    "pair of fields": "ld.param.v2.u64 {{%d{a}, %t0}}, [s+16];",
    "field by address": "mov.b64 %t0, s; ld.param.b64 %d{a}, [%t0+{field}];",
    "field in halves": "ld.param.v2.u32 {{%r4, %r5}}, [s+{field}]; mov.b64 %d{a}, {{%r4, %r5}};",
    "field spilt": "ld.param.u64 %t0, [s+8]; ld.param.u32 %r4, [s]; st.local.b64 [box+8], %t0;"
    " and.b32 %r4, %r4, 8; cvt.u64.u32 %t1, %r4; mov.b64 %t0, box; add.s64 %t0, %t0, %t1;"
    " ld.local.b64 %d{a}, [%t0+8];",
    "variable": "mov.u64 %d{a}, table; add.s64 %d{a}, %d{a}, 2048;",
    "mov": "mov.b64 %d{a}, %d{b};",
    "guarded mov": "@%p{side} mov.b64 %d{a}, %d{b};",
    "add": "add.s64 %d{a}, %d{b}, {o};",
    "subtract": "sub.u64 %d{a}, %d{b}, {o};",
    "there and back": "sub.s64 %t0, %d{b}, %d{c}; add.s64 %d{a}, %t0, %d{c};",
    "halves": "mov.b64 {{%r4, %r5}}, %d{b}; mov.b64 %d{a}, {{%r4, %r5}};",
    "halves of halves": "mov.b64 {{%r4, %r5}}, %d{b}; and.b32 %r6, %r4, 65535;"
    " shr.u32 %r7, %r4, 16; shl.b32 %r7, %r7, 16; or.b32 %r4, %r6, %r7; and.b32 %r6, %r5, 255;"
    " shr.u32 %r7, %r5, 8; shl.b32 %r7, %r7, 8; or.b32 %r5, %r6, %r7; mov.b64 %d{a}, {{%r4, %r5}};",
    "cut and joined": "shl.b64 %t0, %d{b}, 32; shr.u64 %t0, %t0, 32; shr.u64 %t1, %d{b}, 32;"
    " shl.b64 %t1, %t1, 32; or.b64 %d{a}, %t0, %t1;",
    "masked and joined": "and.b64 %t0, %d{b}, 0xFFFFFFFF; and.b64 %t1, %d{b}, 0xFFFFFFFF00000000;"
    " add.s64 %d{a}, %t0, %t1;",
    "inserted": "cvt.u32.u64 %r4, %d{b}; shr.u64 %t0, %d{b}, 32; cvt.u32.u64 %r5, %t0;"
    " cvt.u64.u32 %t1, %r4; cvt.u64.u32 %t0, %r5; bfi.b64 %d{a}, %t0, %t1, 32, 32;",
    "shifted by a register": "mov.b64 {{%r4, %r5}}, %d{b}; mov.b32 %r6, 32; cvt.u64.u32 %t0, %r5;"
    " shl.b64 %t0, %t0, %r6; cvt.u64.u32 %t1, %r4; or.b64 %d{a}, %t0, %t1;",
    "stored in halves": "mov.b64 {{%r4, %r5}}, %d{b}; st.local.b32 [box], %r4;"
    " st.local.b32 [box+4], %r5; ld.local.b64 %d{a}, [box];",
    "stored in quarters": "mov.b64 {{%h0, %h1, %h2, %h3}}, %d{b};"
    " st.shared.v4.b16 [crate], {{%h0, %h1, %h2, %h3}}; ld.shared.b64 %d{a}, [crate];",
    "quarters": "mov.b64 {{%h0, %h1, %h2, %h3}}, %d{b}; mov.b64 %d{a}, {{%h0, %h1, %h2, %h3}};",
    "widened halves": "cvt.u32.u64 %r4, %d{b}; shr.u64 %t0, %d{b}, 32; cvt.u32.u64 %r5, %t0;"
    " cvt.u64.u32 %t1, %r5; shl.b64 %t1, %t1, 32; cvt.u64.u32 %t0, %r4; or.b64 %d{a}, %t0, %t1;",
    "added halves": "mov.b64 {{%r4, %r5}}, %d{b}; add.cc.u32 %r4, %r4, {o}; addc.u32 %r5, %r5, 0;"
    " mov.b64 %d{a}, {{%r4, %r5}};",
    "shift": "shl.b64 %t0, %d{b}, 16; shr.u64 %d{a}, %t0, 16;",
    "mask": "xor.b64 %t0, %d{b}, 0x5A5A5A5A5A5A; xor.b64 %d{a}, %t0, 0x5A5A5A5A5A5A;",
    "masked by a pointer": "xor.b64 %t0, %d{b}, %d{c}; xor.b64 %d{a}, %d{c}, %t0;",
    "twice not": "not.b64 %t0, %d{b}; not.b64 %d{a}, %t0;",
    "twice negative": "neg.s64 %t0, %d{b}; neg.s64 %d{a}, %t0;",
    "aligned": "add.s64 %t0, %d{b}, {n}; and.b64 %d{a}, %t0, -8;",
    "lop3": "mov.b64 {{%r4, %r5}}, %d{b}; lop3.b32 %r4, %r4, 0, -1, 0xF0; mov.b64 %d{a},"
    " {{%r4, %r5}};",
    "prmt": "mov.b64 {{%r4, %r5}}, %d{b}; prmt.b32 %r6, %r5, %r4, 0x7654; prmt.b32 %r7, %r5, %r4,"
    " 0x3210; mov.b64 %d{a}, {{%r6, %r7}};",
    "funnel": "mov.b64 {{%r4, %r5}}, %d{b}; shf.l.wrap.b32 %r6, %r4, %r5, 0; shf.r.wrap.b32 %r7,"
    " %r4, %r5, 0; mov.b64 %d{a}, {{%r7, %r6}};",
    "field": "bfe.u64 %t0, %d{b}, 0, 20; bfe.u64 %t1, %d{b}, 20, 44; bfi.b64 %t1, %t1, 0, 20, 44;"
    " bfi.b64 %d{a}, %t0, %t1, 0, 20;",
    "as a float": "mov.b64 %g0, %d{b}; selp.f64 %g1, %g0, %g0, %p{side}; mov.b64 %d{a}, %g1;",
    "select": "selp.b64 %d{a}, %d{b}, %d{c}, %p{side};",
    "select by sign": "slct.b64.s32 %d{a}, %d{b}, %d{c}, %sign;",
    "less": "min.u64 %d{a}, %d{b}, %d{c};",
    "more": "max.s64 %d{a}, %d{b}, %d{c};",
    "global and back": "cvta.to.global.u64 %t0, %d{b}; cvta.global.u64 %d{a}, %t0;",
    "multiply-add": "mov.b64 %t0, {n}; mad.lo.s64 %d{a}, %t0, 8, %d{b};",
    "wide multiply-add": "and.b32 %r4, %round, 1; mad.wide.u32 %d{a}, %r4, 8, %d{b};",
    "shuffle": "mov.b64 {{%r4, %r5}}, %d{b}; shfl.sync.idx.b32 %r4, %r4, %lane, 31, %own;"
    " shfl.sync.idx.b32 %r5|%p3, %r5, %lane, 31, %own; mov.b64 %d{a}, {{%r4, %r5}};",
    "reduction": "mov.b64 {{%r4, %r5}}, %d{b}; redux.sync.or.b32 %r4, %r4, %own;"
    " redux.sync.max.u32 %r5, %r5, %own; mov.b64 %d{a}, {{%r4, %r5}};",
    "local": "st.local.b64 [box+{slot}], %d{b}; ld.local.b64 %d{a}, [box+{other}];",
    "shared": "st.shared.b64 [crate+{slot}], %d{b}; ld.shared.b64 %d{a}, [crate+{other}];",
    "local by register": "mov.b64 %t0, box; @%p{side} st.local.b64 [%t0+{slot}], %d{b};"
    " ld.local.b64 %d{a}, [%t0+{other}];",
    "generic local": "mov.b64 %t0, box; cvta.local.u64 %t0, %t0; st.b64 [%t0+{slot}], %d{b};"
    " ld.b64 %d{a}, [%t0+{other}];",
    "generic shared": "mov.b64 %t0, crate; cvta.shared.u64 %t0, %t0; st.b64 [%t0+{slot}], %d{b};"
    " ld.b64 %d{a}, [%t0+{other}];",
    "spoiled local": "mov.b64 %t0, box; cvta.local.u64 %t0, %t0; shl.b64 %t0, %t0, 4;"
    " shr.u64 %t0, %t0, 4; st.b64 [%t0+{slot}], %d{b}; ld.b64 %d{a}, [%t0+{other}];",
    "pair in local": "st.local.v2.b64 [box], {{%d{b}, %d{c}}}; ld.local.v2.b64 {{%t0, %d{a}}},"
    " [box+16];",
    "exchange in shared": "atom.shared.exch.b64 %d{a}, [crate+{slot}], %d{b};",
    "pieces": "st.local.b64 [box], %d{b}; ld.local.v4.b16 {{%h0, %h1, %h2, %h3}}, [box];"
    " cvt.u64.u16 %t0, %h0; cvt.u64.u16 %t1, %h1; shl.b64 %t1, %t1, 16; or.b64 %t0, %t0, %t1;"
    " cvt.u64.u16 %t1, %h2; shl.b64 %t1, %t1, 32; or.b64 %d{a}, %t0, %t1;",
    "generic pieces": "st.shared.b64 [crate], %d{b}; mov.b64 %t2, crate; cvta.shared.u64 %t2, %t2;"
    " ld.u32 %r4, [%t2]; ld.u16 %h0, [%t2+4]; ld.u16 %h1, [%t2+6]; mov.b32 %r5, {{%h0, %h1}};"
    " mov.b64 %d{a}, {{%r4, %r5}};",
    "call": "{{ .param .b64 x; .param .b64 y; st.param.b64 [x], %d{b}; call (y), same, (x);"
    " ld.param.b64 %d{a}, [y]; }}",
    "call that picks": "{{ .param .b64 x; .param .b64 z; .param .b32 c; .param .b64 y;"
    " st.param.b64 [x], %d{b}; st.param.b64 [z], %d{c}; st.param.b32 [c], %sign;"
    " call (y), pick, (x, z, c); ld.param.b64 %d{a}, [y]; }}",
    "call in registers": "call (%d{a}), moved, (%d{b});",
}
READS = {
    "read": "ld.global.b32 %r4, [%d{b}+4];",
    "guarded read": "@%p{side} ld.global.nc.f64 %g0, [%d{b}];",
    "generic read": "ld.u8 %h0, [%d{b}+{n}];",
    "volatile read": "ld.volatile.global.v2.u32 {{%r4, %r5}}, [%d{b}];",
    "index": "ld.global.u32 %r4, [%d{b}]; and.b32 %r4, %r4, 56; cvt.u64.u32 %t0, %r4;"
    " add.s64 %d{a}, %d{c}, %t0;",
    "cut index": "ld.global.u64 %t0, [%d{b}]; shl.b64 %t0, %t0, 32; shr.s64 %t0, %t0, 30;"
    " and.b64 %t0, %t0, 56; add.s64 %d{a}, %d{c}, %t0;",
    "shifted index": "ld.global.u8 %r4, [%d{b}]; shl.b32 %r4, %r4, 24; shr.u32 %r4, %r4, 26;"
    " and.b32 %r4, %r4, 56; cvt.u64.u32 %t0, %r4; add.s64 %d{a}, %d{c}, %t0;",
    "converted index": "ld.global.u64 %t0, [%d{b}]; cvt.u32.u64 %r4, %t0; and.b32 %r4, %r4, 56;"
    " cvt.s64.s32 %t0, %r4; add.s64 %d{a}, %d{c}, %t0;",
    "scaled index": "ld.global.s16 %r4, [%d{b}]; and.b32 %r4, %r4, 7; mad.wide.s32 %d{a}, %r4, 8,"
    " %d{c};",
}
WRITES = {
    "write": "st.global.b64 [%d{b}], OUT;",
    "guarded write": "@!%p{side} st.global.b64 [%d{b}+{o}], OUT;",
    "generic write": "st.b64 [%d{b}], OUT;",
    "release": "st.release.gpu.global.b64 [%d{b}], OUT;",
    "pair": "mov.b64 %t0, OUT; and.b64 %t1, %d{b}, -16; st.global.v2.u64 [%t1], {{%t0, %t0}};",
    "call that writes": "{{ .param .b64 x; .param .b64 v; st.param.b64 [x], %d{b}; mov.b64 %t0,"
    " OUT; st.param.b64 [v], %t0; call poke, (x, v); }}",
}
ATOMICS = {
    "atomic": "atom.global.add.u64 %t0, [%d{b}], 0;",
    "reduction in memory": "red.global.or.b64 [%d{b}], 0;",
    "guarded atomic": "@%p{side} atom.max.u64 %t0, [%d{b}], 0;",
    "exchange": "mov.b64 %t0, OUT; atom.global.exch.b64 %d{a}, [%d{b}], %t0;",
    "compare and swap": "mov.b64 %t0, OUT; atom.cas.b64 %t1, [%d{b}], %t0, %t0;",
}
# These load or store a pointer. A program with many of them leaves the analysis no knowledge.
FOLLOWS = {
    "follow": "ld.global.b64 %d{a}, [%d{b}];",
    "follow generic": "ld.b64 %d{a}, [%d{b}+{o}];",
    "follow float": "ld.global.f64 %g0, [%d{b}]; mov.b64 %d{a}, %g0;",
    "follow halves": "ld.global.b32 %r4, [%d{b}]; ld.global.b32 %r5, [%d{b}+4]; mov.b64 %d{a},"
    " {{%r4, %r5}};",
    "follow quarters": "ld.global.v4.u16 {{%h0, %h1, %h2, %h3}}, [%d{b}]; cvt.u32.u16 %r4, %h0;"
    " cvt.u32.u16 %r5, %h1; shl.b32 %r5, %r5, 16; or.b32 %r4, %r4, %r5; cvt.u32.u16 %r6, %h2;"
    " cvt.u32.u16 %r7, %h3; shl.b32 %r7, %r7, 16; or.b32 %r6, %r6, %r7;"
    " mov.b64 %d{a}, {{%r4, %r6}};",
    "follow a copy in quarters": "ld.global.v4.u16 {{%h0, %h1, %h2, %h3}}, [%d{b}];"
    " st.local.v4.u16 [box], {{%h0, %h1, %h2, %h3}}; ld.local.u64 %d{a}, [box];",
    "follow pair": "and.b64 %t0, %d{b}, -16; ld.global.v2.b64 {{%t0, %d{a}}}, [%t0];",
    "call that follows": "{{ .param .b64 x; .param .b64 y; st.param.b64 [x], %d{b}; call (y), peek,"
    " (x); ld.param.b64 %d{a}, [y]; }}",
    "keep": "st.global.b64 [%d{b}], %d{c};",
    "keep half": "mov.b64 {{%r4, %r5}}, %d{c}; st.global.v2.b32 [%d{b}], {{%r4, %r5}};",
    "keep by exchange": "atom.global.exch.b64 %d{a}, [%d{b}], %d{c};",
    "copy": "ld.global.b64 %t0, [%d{b}]; st.global.b64 [%d{c}], %t0;",
}
STATEMENTS = {**MOVES, **READS, **WRITES, **ATOMICS, **FOLLOWS}


@dataclass(frozen=True)
class Statement:
    """One statement with its operands. "skip" jumps over the next few statements in some
    threads."""

    name: str
    a: int
    b: int
    c: int
    n: int

    def text(self) -> str:
        return STATEMENTS[self.name].format(
            a=self.a, b=self.b, c=self.c, n=self.n, o=8 * self.n, bit=self.n & 1,
            side=1 + (self.n & 1), slot=8 * (self.n & 3), other=8 * (self.n >> 1),
            parameter=PARAMETERS[self.n % 4], field=(8, 16)[self.n & 1],
        )  # fmt: skip


def _statement(names: object) -> st.SearchStrategy[Statement]:
    register = st.integers(0, REGISTERS - 1)
    return st.builds(
        Statement, st.sampled_from(names), register, register, register, st.integers(0, 7)
    )


def statements() -> st.SearchStrategy[list[Statement]]:
    """Programs: mostly moves, some accesses, and few statements that make everything unknown."""
    kinds = [MOVES, MOVES, MOVES, READS, WRITES, ATOMICS, FOLLOWS, ["skip"]]
    return st.lists(st.one_of([_statement(list(kind)) for kind in kinds]), max_size=14)


def text_of(program: list[Statement], outside: int) -> str:
    """The module with the kernel `k(p0, p1, s)`; `outside` is a pointer to the outside memory."""
    lines: list[str] = []
    landings: dict[int, list[str]] = {}
    for index, statement in enumerate(program):
        lines += landings.pop(index, [])
        if statement.name == "skip":
            label = f"behind{index}"
            lines.append(f"@%p{1 + (statement.n & 1)} bra {label};")
            landing = min(index + 2 + (statement.n >> 1), len(program))
            landings.setdefault(landing, []).append(f"{label}:")
        else:
            lines.append(statement.text())
    lines += [label for at in sorted(landings) for label in landings[at]]
    body = "\n".join(lines).replace("OUT", hex(outside))
    return f"""{HEAD.replace("6.4", "7.0").replace("sm_75", "sm_80")}{_FUNCTIONS}
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .align 16 .b8 s[{STRUCT_BYTES}])
{{
.reg .pred %p<5>; .reg .b16 %h<4>; .reg .b32 %r<8>, %lane, %own, %sign, %round;
.reg .f64 %g<2>; .reg .b64 %d<{REGISTERS}>, %t<3>;
.local .align 16 .b64 box[4]; .shared .align 16 .b64 crate[4];
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [s+8];
mov.u64 %d3, table; add.s64 %d3, %d3, {ROOM // 2};
st.local.v2.b64 [box], {{%d0, %d1}}; st.local.v2.b64 [box+16], {{%d2, %d3}};
st.shared.v2.b64 [crate], {{%d0, %d1}}; st.shared.v2.b64 [crate+16], {{%d2, %d3}};
mov.u32 %lane, %tid.x; setp.ne.s32 %p1, %lane, 0; mov.u32 %round, 0;
shl.b32 %own, 1, %lane; neg.s32 %sign, %lane;
top:
setp.eq.s32 %p2, %round, 0;
{body}
add.s32 %round, %round, 1;
setp.lt.s32 %p4, %round, {ROUNDS};
@%p4 bra top;
ret;
}}
"""
