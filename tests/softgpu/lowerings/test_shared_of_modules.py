"""Shared variables outside functions: a kernel has memory for those that its functions name."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.semantics.shared_variables import shared_of_module

LOWERINGS = {"jit": jit, "oracle": oracle}
KIB = 1 << 10
# Together more than the 48 KiB of a block. `reach` names `of_function`; nobody names `unused`.
MODULE = f"""
.version 8.0
.target sm_80
.address_size 64
.shared .align 4 .b8 unused[{40 * KIB}];
.shared .align 4 .b8 of_function[{16 * KIB}];
.shared .align 4 .b8 of_kernel[{24 * KIB}];
.extern .shared .align 16 .b8 added[];

.func reach(.reg .b32 value)
{{
    .reg .b32 %place;
    mov.u32 %place, of_function;
    add.u32 %place, %place, 16;
    st.shared.u32 [%place], value;
    ret;
}}

.visible .entry nothing()
{{
    ret;
}}

.visible .entry both(.param .u64 result)
{{
    .reg .b32 %r<3>;
    .reg .b64 %rd;
    ld.param.u64 %rd, [result];
    st.shared.u32 [of_kernel+{24 * KIB - 4}], 5;
    mov.u32 %r0, 7;
    call reach, (%r0);
    ld.shared.u32 %r1, [of_kernel+{24 * KIB - 4}];
    ld.shared.u32 %r2, [of_function+16];
    st.global.v2.u32 [%rd], {{%r1, %r2}};
    ret;
}}

.visible .entry vector(.param .u64 result)
{{
    .reg .b32 %r<2>;
    .reg .b64 %rd;
    ld.param.u64 %rd, [result];
    mov.u32 %r0, of_function;
    mov.u32 %r1, added;
    st.global.v2.u32 [%rd], {{%r0, %r1}};
    ret;
}}
"""
SIZES = {"nothing": 0, "both": 40 * KIB, "vector": 16 * KIB}


@pytest.fixture(params=LOWERINGS)
def compiled(request):
    module = LOWERINGS[request.param].compile_module(parse(MODULE))
    return {each.name: each for each in module.kernels.values()}, module


@pytest.mark.parametrize("name", SIZES)
def test_a_kernel_has_the_memory_that_it_reaches(compiled, name):
    assert compiled[0][name].static_shared_bytes == SIZES[name]


@pytest.mark.parametrize(("name", "wanted"), [("both", [5, 7]), ("vector", [0, 16 * KIB])])
def test_the_variables_lie_apart(compiled, name, wanted):
    result = bare_launch.aligned(np.zeros(2, np.uint32))
    outcome = bare_launch.run(
        compiled[1], name, grid=(1,), block=(1,), shared_bytes=64, args=[result]
    )
    assert outcome.kind is OutcomeKind.DONE, outcome.fault
    assert list(result) == wanted


def test_an_address_in_an_initial_value_counts():
    module = parse(MODULE + ".global .u32 place = of_function;\n")
    found = shared_of_module(module, [module.function("nothing")])
    assert [each.name for each in found] == ["of_function", "added"]


def test_a_module_with_more_than_a_block_has_is_loaded(context):
    module = ok(driver.cuModuleLoadData(MODULE.encode()))
    shared = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    architecture = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION
    for name, size in SIZES.items():
        function = ok(driver.cuModuleGetFunction(module, name.encode()))
        assert ok(driver.cuFuncGetAttribute(shared, function)) == size
        # The target's number, not the ISA's: CUB chooses its kernels by it.
        assert ok(driver.cuFuncGetAttribute(architecture, function)) == 80
    ok(driver.cuModuleUnload(module))
