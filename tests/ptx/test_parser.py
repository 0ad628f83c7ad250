"""The parser's results for well-formed PTX."""

from __future__ import annotations

import pytest
from helpers.ptx_generators.kernel_frame import HEAD, kernel

from cudasync.errors import PtxError
from cudasync.ptx import ir, parse
from cudasync.ptx.types import ScalarType, StateSpace


def body(text, **context):
    return parse(kernel(text, **context)).function("k").body


def only(text, **context):
    (instruction,) = body(text, **context)
    return instruction


def register(name, type_=ScalarType.B32):
    return ir.Register(name, type_)


def test_a_module_keeps_its_directives():
    module = parse(".version 8.7\n.target sm_90a, debug\n.address_size 64\n", "a.ptx")
    assert (module.file, module.version, module.target) == ("a.ptx", (8, 7), "sm_90a")
    assert module.address_size == 64


def test_bytes_with_a_zero_at_the_end_are_text():
    assert parse(HEAD.encode() + b"\0").version == (6, 4)


def test_an_instruction_keeps_modifiers_and_types_apart():
    instruction = only("@!%p1 ld.global.nc.v2.f32 {%f1, %f2}, [%d4+-8];")
    assert instruction.opcode == "ld"
    assert instruction.modifiers == ("global", "nc", "v2")
    assert instruction.types == (ScalarType.F32,)
    assert instruction.guard == ir.Guard(register("%p1", ScalarType.PRED), negated=True)
    assert instruction.operands == (
        ir.Vector((register("%f1", ScalarType.F32), register("%f2", ScalarType.F32))),
        ir.Address(register("%d4", ScalarType.B64), -8),
    )
    assert instruction.text == "@!%p1 ld.global.nc.v2.f32 {%f1, %f2}, [%d4+-8];"
    assert (instruction.space, instruction.vector_size) == (StateSpace.GLOBAL, 2)


def test_a_span_counts_from_one():
    instruction = only("  mov.u32\n %r1, 1;")
    line = instruction.span.line
    assert kernel("  mov.u32\n %r1, 1;").splitlines()[line - 1] == "  mov.u32"
    assert instruction.span.column == 3
    assert instruction.text == "mov.u32 %r1, 1;"


@pytest.mark.parametrize(
    ("written", "operand"),
    [
        ("0", ir.Integer(0)),
        ("-5", ir.Integer(-5)),
        ("0x1fU", ir.Integer(31)),
        ("017", ir.Integer(15)),
        ("0b101", ir.Integer(5)),
        ("4294967295U", ir.Integer(4294967295)),
        ("WARP_SZ", ir.Integer(32)),
        ("1+2*3", ir.Integer(7)),
        ("(1<<4)|5", ir.Integer(21)),
        ("-(7/2)-7 % 4", ir.Integer(-6)),
        ("~5", ir.Integer(-6)),
        ("!0", ir.Integer(1)),
        ("1==2 ? 3 : 4", ir.Integer(4)),
        ("(.s64) 5 << 63", ir.Integer(-1 << 63)),
        ("WARP_SZ*2", ir.Integer(64)),
        (".5", ir.Float(0x3FE0000000000000, ScalarType.F64)),
        ("table+4*2-4", ir.Symbol("table", 4)),
        ("0f3F800000", ir.Float(0x3F800000, ScalarType.F32)),
        ("0F3f800000", ir.Float(0x3F800000, ScalarType.F32)),
        ("-0f3F800000", ir.Float(0xBF800000, ScalarType.F32)),
        ("0d3FF0000000000000", ir.Float(0x3FF0000000000000, ScalarType.F64)),
        ("1.0", ir.Float(0x3FF0000000000000, ScalarType.F64)),
        ("1e0", ir.Float(0x3FF0000000000000, ScalarType.F64)),
        ("%tid.x", ir.Special("%tid.x", ScalarType.U32)),
        ("%clock64", ir.Special("%clock64", ScalarType.U64)),
        ("table", ir.Symbol("table")),
        ("table+4", ir.Symbol("table", 4)),
        ("!%p1", ir.Negated(register("%p1", ScalarType.PRED))),
    ],
)
def test_an_operand_is_read_as_what_it_is(written, operand):
    instruction = only(f"prmt.b32 %r1, {written}, 0, 0;", before=".global .b32 table[4];")
    assert instruction.operands[1] == operand


def test_a_result_with_its_predicate_is_a_pair():
    first, *_ = only("shfl.sync.down.b32 %r1|%p1, %r2, 1, 31, -1;").operands
    assert first == ir.Pair(register("%r1"), register("%p1", ScalarType.PRED))
    first, *_ = only("shfl.sync.down.b32 _|%p1, %r2, 1, 31, -1;").operands
    assert first == ir.Pair(ir.Sink(), register("%p1", ScalarType.PRED))


def test_a_texture_address_is_a_vector_of_handle_and_coordinates():
    instruction = only("tex.2d.v4.f32.f32 {%f1, %f2, %f3, _}, [%d1, {%f4, %f5}];")
    handle, coordinates = instruction.operands[1].elements
    assert handle == ir.Address(register("%d1", ScalarType.B64))
    assert coordinates == ir.Vector(
        (register("%f4", ScalarType.F32), register("%f5", ScalarType.F32))
    )
    assert instruction.operands[0].elements[3] == ir.Sink()


def test_suffixes_may_stand_apart_from_their_opcode():
    instruction = only("add .s32 %r1, %r2, %r3;")
    assert (instruction.opcode, instruction.types) == ("add", (ScalarType.S32,))


def test_a_call_keeps_results_callee_and_arguments_as_written():
    text = """
    {
    .param .b32 param0;
    .param .b32 retval0;
    prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
    st.param.b32 [param0], %r1;
    call.uni (retval0), f, (param0);
    call (retval0), %d1, (param0), prototype_0;
    call g;
    }"""
    declared = ".func (.param .b32 r) f (.param .b32 a)\n;\n.func g;\n"
    _, direct, indirect, bare = body(text, before=declared)
    result, argument = ir.Vector((ir.Symbol("retval0"),)), ir.Vector((ir.Symbol("param0"),))
    assert direct.operands == (result, ir.Symbol("f"), argument)
    assert indirect.operands == (
        result, register("%d1", ScalarType.B64), argument, ir.Label("prototype_0"),
    )  # fmt: skip
    assert bare.operands == (ir.Vector(()), ir.Symbol("g"), ir.Vector(()))


def test_a_name_declared_again_in_an_inner_scope_gets_a_name_of_its_own():
    function = parse(
        kernel(
            """
            mov.b32 %r1, 1;
            { .reg .b64 %r1; .param .b32 p; mov.b64 %r1, 2; st.param.b32 [p], 0; }
            { .reg .b16 %r1; .param .b64 p; mov.b16 %r1, 3; st.param.b64 [p], 0; }
            mov.b32 %r1, 4;
            """
        )
    ).function("k")
    moved = [each.operands[0] for each in function.body if each.opcode == "mov"]
    assert moved == [
        register("%r1"),
        register("%r1.2", ScalarType.B64),
        register("%r1.3", ScalarType.B16),
        register("%r1"),
    ]
    assert all(function.registers[each.name] == each for each in moved)
    assert [(each.name, each.size) for each in function.variables] == [("p", 4), ("p.2", 8)]


def test_a_label_belongs_to_its_scope():
    function = parse(kernel("{ again: bra again; } { again: bra again; }")).function("k")
    assert function.labels == {"again": 0, "again.2": 1}
    assert [each.operands for each in function.body] == [
        (ir.Label("again"),),
        (ir.Label("again.2"),),
    ]


def test_a_label_may_stand_behind_its_use_and_at_the_end():
    function = parse(kernel("bra.uni done; ret; done:")).function("k")
    assert function.labels == {"done": 2}


def test_a_table_of_branch_targets_is_kept_by_its_label():
    function = parse(
        kernel("targets: .branchtargets a, b; brx.idx %r1, targets; a: ret; b: ret;")
    ).function("k")
    assert function.tables == {"targets": ("a", "b")}
    assert function.body[0].operands == (register("%r1"), ir.Label("targets"))


def test_a_vector_register_is_its_components():
    instruction = only(".reg .v2 .f32 %v; mov.b64 %d1, %v;")
    components = ir.Vector((register("%v.x", ScalarType.F32), register("%v.y", ScalarType.F32)))
    assert instruction.operands[1] == components
    assert only(".reg .v2 .f32 %v; mov.f32 %f1, %v.y;").operands[1] == components.elements[1]
    assert only(".reg .v2 .f32 %v; mov.f32 %f1, %v.g;").operands[1] == components.elements[1]
    assert only(".reg .v2 .f32 %v<3>; mov.f32 %f1, %v2.x;").operands[1].name == "%v2.x"


def test_line_information_is_kept():
    text = kernel(
        ".loc 1 7 3\nret; .loc 1 8 3, function_name $info+16, inlined_at 1 7 3\n"
        '.pragma "nounroll"; ret;',
        before='.file 1 "saxpy.cu", 1, 2',
    )
    assert parse(text).function("k").locations == (
        ir.SourceLocation(0, "saxpy.cu", 7),
        ir.SourceLocation(1, "saxpy.cu", 8),
    )


def test_the_files_of_lines_may_be_named_behind_them():
    """NVRTC does this."""
    text = kernel(".loc 1 7 3\nret; .loc 2 9 1\nret; .loc 3 1 1\nret;")
    files = '.file 1 "/a/saxpy.cu"\n.file 2 "other.cuh", 1, 2\n'
    assert parse(text + files).function("k").locations == (
        ir.SourceLocation(0, "/a/saxpy.cu", 7),
        ir.SourceLocation(1, "other.cuh", 9),
        ir.SourceLocation(2, "", 1),
    )


@pytest.mark.parametrize("files", [".file", ".file 1", f'.file {"9" * 5000} "a"', '.file x "a"'])
def test_a_file_that_is_not_named_right_is_an_error(files):
    with pytest.raises(PtxError):
        parse(f"{HEAD}{files}")


def test_directives_of_a_kernel_are_kept():
    text = f'{HEAD}.entry k() .maxntid 256, 1, 1 .minnctapersm 2 .noreturn .pragma "x"; {{ ret; }}'
    assert parse(text).function("k").directives == {
        "maxntid": (256, 1, 1),
        "minnctapersm": (2,),
        "noreturn": (),
    }


def test_debug_sections_are_stepped_over():
    parse(f"{HEAD}.section .debug_info\n{{\n.b8 1\n.b64 $L__func_begin0\n}}\n")


def test_a_definition_takes_the_place_of_its_declaration():
    text = f"{HEAD}.func f;\n.entry k() {{ call f; ret; }}\n.visible .func f {{ ret; }}"
    module = parse(text)
    assert [each.name for each in module.functions] == ["k", "f"]
    assert not module.function("f").is_declaration
    assert [each.name for each in module.kernels] == ["k"]


@pytest.mark.parametrize(
    "behind",
    [
        "",
        ".visible .func g",
        ".entry k() { ret; }",
        ".global .u32 x;",
        '.file 1 "a"',
        ".const .u8 y;",
    ],
)
@pytest.mark.parametrize(
    "head", [".func f", ".extern .func (.param .b32 r) f(.param .b32 a) .noreturn"]
)
def test_a_declaration_may_lack_its_semicolon(head, behind):
    """ptxas 13.5 accepts all of these. A kernel cannot be declared without a body."""
    module = parse(f"{HEAD}{head}\n{behind}")
    assert module.function("f").is_declaration
    assert parse(f"{HEAD}{head};\n{behind}").functions[1:] == module.functions[1:]
    with pytest.raises(PtxError, match=r"'\{' or ';' expected"):
        parse(f"{HEAD}.entry k()\n{behind}")


def test_an_alias_is_the_function_by_another_name():
    text = f"{HEAD}.func f {{ ret; }}\n.weak .func g;\n.alias g, f;"
    module = parse(text)
    assert module.function("g").body == module.function("f").body
    assert module.function("g").linkage is ir.Linkage.WEAK


def test_a_register_parameter_is_a_register_of_that_name():
    function = parse(f"{HEAD}.func (.reg .b32 r) f (.reg .b32 a) {{ mov.b32 r, a; ret; }}")
    f = function.function("f")
    assert f.body[0].operands == (register("r"), register("a"))
    assert [each.name for each in f.parameters] == ["a"]


def test_what_numba_writes_around_a_kernel_is_read():
    text = f"""{HEAD}
        .common .global .align 8 .u64 _ZN08NumbaEnv8__main__3axpyB2v1B94cw51cXTLSUwv1sCUt9Uw;
        .visible .func (.param .b32 func_retval0) inner(.param .b64 a, .param .b32 b)
        {{ st.param.b32 [func_retval0+0], 0; ret; }}
        .weak .entry _ZN6cudapy4axpyE(.param .f64 p0, .param .u64 p1) .maxntid 128, 1, 1 {{ ret; }}
        """
    module = parse(text)
    assert [each.linkage for each in module.functions] == [ir.Linkage.VISIBLE, ir.Linkage.WEAK]
    assert module.variables[0].size == 8
