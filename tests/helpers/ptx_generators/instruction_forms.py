"""Programs for instruction forms: `setp.lt.f32` becomes a kernel with that instruction in it.

The operands follow from the opcode by the PTX ISA's syntax, so that a form needs only its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parents[2] / "softgpu" / "corpus" / "forms.tsv"

_HEAD = """\
.version 8.7
.target {target}
.address_size 64

.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 32 .b8 global_memory[256];
.const .align 32 .b8 const_memory[256];
.shared .align 32 .b8 shared_memory[256];

.func (.param .b32 result) callee (.param .b32 argument)
{{
    .reg .b32 %r;
    ld.param.b32 %r, [argument];
    st.param.b32 [result], %r;
    ret;
}}

.visible .entry k(.param .align 16 .b8 parameter[64])
{{
    .local .align 32 .b8 local_memory[256];
    .reg .pred %p<9>;
    .reg .b16 %h<40>;
    .reg .b32 %r<40>;
    .reg .b64 %d<40>;
    .reg .b128 %q<9>;
    .reg .b64 %at, %shared, %local, %const;
    mov.u64 %at, global_memory;
    mov.u64 %shared, shared_memory;
    mov.u64 %local, local_memory;
    mov.u64 %const, const_memory;
    mov.u32 %r39, %tid.x;
    setp.eq.s32 %p1, %r39, 1000;
{body}
END:
    ret;
}}
"""

_SIZES = {"pred": 1, "f16x2": 32, "bf16x2": 32, "s16x2": 32, "u16x2": 32, "bf16": 16, "tf32": 32}
_SIZES |= {"e4m3x2": 16, "e5m2x2": 16, "e2m3x2": 16, "e3m2x2": 16, "e2m1x2": 8, "f32x2": 64}
_TWICE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_LETTERS = {1: "%p", 8: "%h", 16: "%h", 32: "%r", 64: "%d", 128: "%q"}
_BASES = {"shared": "%shared", "local": "%local", "const": "%const", "param": "parameter"}
# The number of sources behind the result, by opcode, if all sources have the instruction's type.
_SOURCES = {
    1: "abs brev cnot cos ex2 lg2 neg not rcp rsqrt sin sqrt tanh mov",
    2: "add addc and copysign div max min mul or rem sub subc xor mul24",
    3: "fma mad madc sad mad24",
}
_COUNT = {name: count for count, names in _SOURCES.items() for name in names.split()}


@dataclass(frozen=True)
class Form:
    """A dotted instruction form, and the number of corpus kernels that use it."""

    name: str
    kernels: int = 0

    @property
    def opcode(self) -> str:
        return self.name.split(".")[0]

    @property
    def parts(self) -> list[str]:
        return self.name.split(".")[1:]

    @property
    def types(self) -> list[str]:
        return [part for part in self.parts if _size(part)]


def program(wanted: list[Form], target: str = "sm_100") -> str:
    """A module. Its kernel `k` holds each form once, in order, and touches only its own memory."""
    return _HEAD.format(body="\n".join(statement(form) for form in wanted), target=target)


def _size(part: str) -> int:
    if part in _SIZES:
        return _SIZES[part]
    if part[:1] in "busf" and part[1:].isdigit():
        return int(part[1:])
    return 0


def forms() -> list[Form]:
    """Every form of the corpus."""
    lines = CORPUS.read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [Form(name, int(kernels)) for name, kernels in rows]


def _vector(parts: list[str]) -> int:
    return next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)


def _registers(type_: str, count: int, first: int = 0) -> list[str]:
    letter = _LETTERS[_size(type_)]
    # Predicates 0 and 1 are the ones that are written and read.
    most = 9 if letter in ("%p", "%q") else 39
    return [f"{letter}{(first + index) % most}" for index in range(count)]


def _value(type_: str, count: int, first: int = 0) -> str:
    names = _registers(type_, count, first)
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def _address(parts: list[str]) -> str:
    spaces = [part.split("::")[0] for part in parts]
    base = next((_BASES[each] for each in spaces if each in _BASES), "%at")
    if base == "%shared" and "global" in spaces:
        base = "%at"
    return f"[{base}]"


def statement(form: Form) -> str:
    """The instruction with operands, and the lines it needs around it."""
    opcode, parts, types = form.opcode, form.parts, form.types
    last = types[-1] if types else "b32"
    name, count = form.name, _vector(parts)
    if opcode in _COUNT:
        wide = _TWICE[last] if "wide" in parts else last
        sources = [_value(last, 1, index + 1) for index in range(_COUNT[opcode])]
        if opcode == "mad" and "wide" in parts:
            sources[2] = _value(wide, 1, 3)
        if opcode == "mov" and last == "pred":
            sources = ["%p1"]
        return f"    {name} {_value(wide, 1)}, {', '.join(sources)};"
    result = _value(last, count)
    address = _address(parts)
    match opcode:
        case "ret" | "exit" | "trap" | "membar" | "fence" | "griddepcontrol":
            return f"    @%p1 {name};" if opcode == "trap" else f"    {name};"
        case "bra":
            return f"    {name} END;"
        case "call":
            return _CALL
        case "bar" | "barrier":
            return f"    {name} {_barrier(parts)};"
        case "nanosleep":
            return f"    {name} 10;"
        case "activemask":
            return f"    {name} %r0;"
        case "st" if "param" in parts:
            return (
                "    {\n    .param .align 16 .b8 argument[16];\n"
                f"    {name} [argument], {result};\n    }}"
            )
        case "ld" | "ldu":
            if "param" in parts:
                address = "[parameter]"
            return f"    {name} {result}, {address};"
        case "st":
            return f"    {name} {address}, {_value(last, count, 1)};"
        case "prefetch" | "prefetchu" | "applypriority" | "discard":
            size = ", 128" if opcode in ("applypriority", "discard") else ""
            return f"    {name} {address}{size};"
        case "atom" | "red":
            values = f"{_value(last, count, 1)}"
            if "cas" in parts:
                values += f", {_value(last, 1, 2)}"
            if opcode == "red":
                return f"    {name} {address}, {values};"
            return f"    {name} {result}, {address}, {values};"
        case "cvta":
            return f"    {name} %d0, %d1;"
        case "isspacep":
            return f"    {name} %p0, %d1;"
        case "cvt":
            source = ", ".join(_registers(last, 2 if _is_pair(types) else 1, 1))
            return f"    {name} {_value(types[0], 1)}, {source};"
        case "setp":
            combined = ", %p1" if {"and", "or", "xor"} & set(parts) else ""
            target = "%p0|%p2" if last in ("f16x2", "bf16x2") else "%p0"
            first, second = _value(last, 1, 1), _value(last, 1, 2)
            return f"    {name} {target}, {first}, {second}{combined};"
        case "set":
            return f"    {name} {_value(types[0], 1)}, {_value(last, 1, 1)}, {_value(last, 1, 2)};"
        case "selp":
            return f"    {name} {result}, {_value(last, 1, 1)}, {_value(last, 1, 2)}, %p1;"
        case "slct":
            value = types[0]
            return (
                f"    {name} {_value(value, 1)}, {_value(value, 1, 1)}, {_value(value, 1, 2)},"
                f" {_value(last, 1, 3)};"
            )
        case "shl" | "shr":
            return f"    {name} {result}, {_value(last, 1, 1)}, %r9;"
        case "shf":
            return f"    {name} %r0, %r1, %r2, %r3;"
        case "popc" | "clz" | "bfind":
            return f"    {name} %r0, {_value(last, 1, 1)};"
        case "bfe":
            return f"    {name} {result}, {_value(last, 1, 1)}, %r2, %r3;"
        case "bfi":
            return f"    {name} {result}, {_value(last, 1, 1)}, {_value(last, 1, 2)}, %r3, %r4;"
        case "bmsk" | "szext":
            return f"    {name} %r0, %r1, %r2;"
        case "fns":
            return f"    {name} %r0, %r1, %r2, 1;"
        case "prmt" | "dp4a" | "dp2a":
            return f"    {name} %r0, %r1, %r2, %r3;"
        case "lop3":
            return f"    {name} %r0, %r1, %r2, %r3, 0x6A;"
        case "testp":
            return f"    {name} %p0, {_value(last, 1, 1)};"
        case "shfl":
            members = ", -1" if "sync" in parts else ""
            return f"    {name} %r0|%p0, %r1, 1, 31{members};"
        case "vote":
            return f"    {name} {_value(last, 1)}, %p1{', -1' if 'sync' in parts else ''};"
        case "match":
            return f"    {name} %r0, {_value(last, 1, 1)}, -1;"
        case "redux":
            return f"    {name} %r0, %r1, -1;"
        case _ if opcode.startswith("v") and opcode[1:4] in _VIDEO:
            return f"    {name} %r0, %r1, %r2, %r3;"
        case "tex" | "tld4" | "suld" | "sust" | "sured":
            return _texture(form)
        case "createpolicy":
            return f"    {name} %d0, 1.0;"
    raise ValueError(f"no operands for {form.name}")


_VIDEO = ("abs", "add", "sub", "avr", "min", "max", "set", "shl", "shr", "mad")
_CALL = """\
    {
    .param .b32 argument;
    .param .b32 result;
    st.param.b32 [argument], %r1;
    call (result), callee, (argument);
    ld.param.b32 %r0, [result];
    }"""


def _is_pair(types: list[str]) -> bool:
    return types[0].endswith("x2") and not types[-1].endswith("x2")


def _barrier(parts: list[str]) -> str:
    if "warp" in parts:
        return "-1"
    if "red" in parts:
        return "%r0, 0, %p1" if "popc" in parts else "%p0, 0, %p1"
    return "0, 32" if "arrive" in parts else "0"


# The number of coordinates of a geometry; three are written as four.
_COORDINATES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4, "2dms": 4}


def _texture(form: Form) -> str:
    """A texture or surface access; %d1 holds no object."""
    parts = form.name.split(".")
    geometry = next(each for each in parts if each in _COORDINATES)
    names = [f"%r{4 + index}" for index in range(_COORDINATES[geometry])]
    place = f"[%d1, {{{', '.join(names)}}}]"
    size = next((int(each[1]) for each in parts if each in ("v2", "v4")), 1)
    values = "{" + ", ".join(f"%{'h' if 'b8' in parts else 'r'}{n}" for n in range(size)) + "}"
    match form.opcode:
        case "sust":
            return f"    {form.name} {place}, {values};"
        case "sured":
            return f"    {form.name} {place}, %r0;"
    level = ", %r8" if "level" in parts else ""
    return f"    {form.name} {values}, {place}{level};"
