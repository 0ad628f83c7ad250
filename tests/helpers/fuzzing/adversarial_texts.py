"""PTX written to break a compiler: the target of each attack, and the text."""

from __future__ import annotations

from helpers.ptx_generators.sample_kernels import HEAD

_MANY = 300


def _kernel(body: str, parameters: str = ".param .u64 target") -> str:
    return f"{HEAD}.visible .entry test({parameters})\n{{\n{body}\n}}\n"


def _chain(count: int, call: str) -> str:
    """Functions in a chain of calls; the last one calls nothing."""
    functions = [f".func f{count} {{ ret; }}"]
    functions += [f".func f{n} {{ {call.format(n + 1)} ret; }}" for n in reversed(range(count))]
    return HEAD + "\n".join(functions) + "\n.entry test() { call f0; ret; }"


_R = ".reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p<4>; mov.u32 %r1, 1; mov.u32 %r2, %tid.x; "

TEXTS: dict[str, str] = {
    "nothing at all": "",
    "a zero byte": "\0",
    "shared memory beyond any device": _kernel(".shared .b8 x[1099511627776]; ret;"),
    "more shared memory than a block may have": _kernel(".shared .b8 x[49153]; ret;"),
    "shared memory by alignment": _kernel(
        ".shared .b8 a[1]; .shared .align 4611686018427387904 .b8 x[1]; ret;"
    ),
    "local memory beyond any device": _kernel(".local .b8 x[1099511627776]; ret;"),
    "more local memory than a thread may have": _kernel(
        ".local .b8 x[8388608]; st.local.u32 [x], 1; ret;"
    ),
    "local memory by alignment": _kernel(
        ".local .align 4611686018427387904 .b8 x[2]; .local .b8 y; ret;"
    ),
    "an array of 2^62 bytes": HEAD + ".global .b8 x[4611686018427387904];\n" + _kernel("ret;")[50:],
    "an array in many dimensions": HEAD + ".global .b8 x" + "[65536]" * 40 + ";",
    "global memory beyond the device": HEAD + ".global .b8 x[1099511627775];\n.entry k() { ret; }",
    "global memory as large as the device": HEAD + ".global .b8 x[4294967296]; .entry k() { ret; }",
    "much constant memory": HEAD + ".const .b8 x[1073741824];\n.entry k() { ret; }",
    "much memory with a value": HEAD + ".global .b8 x[8589934592] = {1}; .entry k() { ret; }",
    "a parameter of a terabyte": _kernel("ret;", ".param .b8 p[1099511627776]"),
    "a parameter aligned to 2^62": _kernel(
        "ret;", ".param .b8 a, .param .align 4611686018427387904 .b8 p[8]"
    ),
    "parameters beyond the limit": _kernel("ret;", ".param .b8 p[40000]"),
    "ten thousand parameters": _kernel(
        "ret;", ", ".join(f".param .b8 p{n}" for n in range(10_000))
    ),
    "a billion registers": _kernel(".reg .b32 %r<1000000000>; ret;"),
    "a million registers": _kernel(".reg .b32 %r<1000000>; mov.u32 %r999999, 1; ret;"),
    "wide registers without number": _kernel(".reg .v4 .b64 %r<100000>; ret;"),
    "an immediate of a thousand digits": _kernel(_R + f"mov.b64 %d1, {'9' * 1000}; ret;"),
    "one predicate for two comparisons": _kernel(_R + "setp.ge.bf16x2 %p1, %r1, 35; ret;"),
    "a shift by 2^63": _kernel(_R + "shl.b64 %d1, %d1, 9223372036854775808; ret;"),
    "an offset of 2^63": _kernel(_R + "ld.local.u32 %r1, [%d1+9223372036854775807]; ret;"),
    "an address of 2^64": _kernel(_R + "st.u32 [18446744073709551615], %r1; ret;"),
    "an expression of a thousand parentheses": _kernel(
        _R + f"mov.u32 %r1, {'(' * 1000}1{')' * 1000}; ret;"
    ),
    "an expression of a thousand signs": _kernel(_R + f"mov.u32 %r1, {'-' * 1000}1; ret;"),
    "a choice in a choice": _kernel(_R + f"mov.u32 %r1, {'1 ? 2 : ' * 1000}3; ret;"),
    "scopes in scopes": _kernel("{" * 5000 + "}" * 5000 + " ret;"),
    "vectors in vectors": _kernel(_R + f"mov.b64 %d1, {'{' * 500}%r1{'}' * 500}; ret;"),
    "braces without end": HEAD + ".global .b8 x[2] = " + "{" * 5000,
    "a name of a million letters": HEAD + f".entry {'k' * 1_000_000}() {{ ret; }}",
    "a word of a million letters": HEAD + "x" * 1_000_000,
    "a line of a million blanks": HEAD + " " * 1_000_000 + ".entry k() { ret; }",
    "functions that call in a long chain": _chain(60, "call f{};"),
    "functions that call twice": _chain(40, "call f{0}; call f{0};"),
    "a function that calls itself": HEAD
    + ".func f { .local .b64 x[4]; call f; ret; }\n.entry test() { call f; ret; }",
    "two functions that call each other": HEAD
    + ".func g; .func f { call g; ret; } .func g { call f; ret; }\n.entry test() { call f; ret; }",
    "a function that calls a kernel": HEAD
    + ".entry k() { ret; } .func f { call k; ret; }\n.entry test() { call f; ret; }",
    "a kernel that calls itself": HEAD + ".entry test() { call test; ret; }",
    "a function that calls what is not there": HEAD
    + ".extern .func f;\n.entry test() { call f; ret; }",
    "a table of many labels": _kernel(
        _R
        + "t: .branchtargets "
        + ", ".join(["a"] * _MANY)
        + "; brx.idx %r2, t; a: add.u32 %r1, %r1, 1; ret;"
    ),
    "an empty table": _kernel(_R + "t: .branchtargets ; brx.idx %r2, t; ret;"),
    "a loop around nothing": _kernel("a: bra a;"),
    "a loop that some leave": _kernel(_R + "a: setp.eq.u32 %p1, %r2, 0; @%p1 bra a; ret;"),
    "a loop that waits for ever": _kernel(_R + "a: nanosleep.u32 20; bra a;"),
    "a barrier that half of a warp comes to": _kernel(
        _R + "setp.lt.u32 %p1, %r2, 5; @%p1 bra a; bar.sync 1, 64; a: ret;"
    ),
    "a barrier with a number from a register": _kernel(_R + "bar.sync %r2; ret;"),
    "a barrier beyond the last": _kernel("bar.sync 16; ret;"),
    "a barrier for no thread": _kernel("bar.sync 1, 0; bar.sync 1, 7; ret;"),
    "a member mask without the lane": _kernel(_R + "vote.sync.any.pred %p1, %p2, 0; ret;"),
    "members that never come": _kernel(
        _R + "setp.lt.u32 %p1, %r2, 5; @%p1 bra a; shfl.sync.idx.b32 %r1, %r2, 3, 31, -1; a: ret;"
    ),
    "match and redux with no members": _kernel(
        _R + "match.any.sync.b32 %r1, %r2, 0; match.all.sync.b32 %r1|%p1, %r2, 0; ret;"
    ),
    "warp-wide instructions that do not say what they do": HEAD.replace("sm_75", "sm_80")
    + "".join(
        f".entry k{n}() {{ {_R} {each} ret; }}\n"
        for n, each in enumerate(
            (
                "redux.sync.u32 %r1, %r2, -1;",
                "vote.sync.pred %p1, %p2, -1;",
                "match.sync.b32 %r1, %r2, -1;",
                "shfl.sync.b32 %r1, %r2, 1, 31, -1;",
            )
        )
    ),
    "many branches": _kernel(
        _R
        + "\n".join(f"@%p1 bra l{n}; add.u32 %r1, %r1, %r2;\nl{n}:" for n in range(400))
        + " ret;"
    ),
    "many loops, one in the other": _kernel(
        _R
        + "\n".join(f"l{n}: add.u32 %r1, %r1, %r2;" for n in range(60))
        + "\n".join(f"setp.gt.u32 %p1, %r1, {n}; @%p1 bra l{n};" for n in reversed(range(60)))
        + " ret;"
    ),
    "branches to everywhere": _kernel(
        _R
        + "\n".join(
            f"l{n}: setp.gt.u32 %p1, %r2, {n}; @%p1 bra l{n * 37 % 60}; add.u32 %r1, %r1, 1;"
            for n in range(60)
        )
        + " ret;"
    ),
    "a body without end": _kernel("ret;")[:-4],
    "a kernel without a body": HEAD + ".entry test();",
    "two kernels of one name": HEAD + ".entry test() { ret; } .entry test() { ret; }",
    "a kernel of no threads": HEAD + ".entry test() .maxntid 0 { ret; }",
    "a kernel of too many threads": HEAD
    + ".entry test() .reqntid 4611686018427387904, 4611686018427387904 { ret; }",
    "a kernel called as LLVM calls its own": HEAD
    + ".entry llvm() { ret; } .entry kernel() { ret; }\n.entry warp() { ret; } .entry $() {}",
    "registers called as LLVM calls its own": _kernel(
        ".reg .b32 entry, end, fault, %job, %warp, %active, $0, %0; mov.u32 entry, 1; "
        "mov.u32 %active, entry; mov.u32 %job, %active; mov.u32 $0, %job; ret;"
    ),
    "labels called as LLVM calls its own": _kernel("entry: end: fault: bra check; check: ret;"),
    "functions called as C calls its own": HEAD
    + ".func malloc { ret; } .func exit1 { ret; } .func free { ret; }"
    + "\n.entry abort() { call malloc; call free; ret; }",
    "a variable that is a function": HEAD + ".global .b32 f; .func f { ret; }",
    "a version that is none": ".version 999999999999.1\n.target sm_75\n.entry k() { ret; }",
    "a target that is none": ".version 6.4\n.target sm_4294967296\n.entry k() { ret; }",
    "addresses of 32 bits": ".version 6.4\n.target sm_75\n.address_size 32\n.entry k() { ret; }",
    "a value that is the address of itself": HEAD
    + ".global .u64 x = x; .global .u64 y = y+9223372036854775807; .entry k() { ret; }",
    "a value for shared memory": _kernel(".shared .u32 x = 4; ret;"),
    "nan as an integer": _kernel(_R + "cvt.rzi.s64.f32 %d1, 0f7FC00000; ret;"),
    "the least integer by minus one": _kernel(
        _R + "div.s32 %r1, -2147483648, -1; rem.s64 %d1, -9223372036854775808, -1; ret;"
    ),
    "a guard that guards a ret in a loop": _kernel(
        _R + "a: @%p1 ret; @!%p2 exit; add.u32 %r1, %r1, 1; bra a;"
    ),
    "vprintf with wild pointers": HEAD
    + ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    + ".entry test(.param .u64 p) { .param .b32 r; .param .b64 f; .param .b64 a; st.param.b64 [f],"
    + " 5; st.param.b64 [a], 7; call (r), vprintf, (f, a); ret; }",
}
