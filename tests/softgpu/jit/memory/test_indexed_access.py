"""Accesses with an index per lane: any size, sign and mask; a fault names the wrong lane."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering.jit_launch import compiled, fault_of, start

from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.jit.kernel_abi.specialisation import Variant

USUAL = Variant(lanes=32, is_rowwise=True, is_whole=True)
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "v2.u32": 8, "v4.u32": 16, "v2.u64": 16}


def kernel(form, sign):
    """A kernel: target[indices[t]] = source[indices[t]], for the first `n` threads."""
    count = int(form[1]) if form[0] == "v" else 1
    scalar = form.rpartition(".")[2]
    register = {"u8": "u16"}.get(scalar, scalar)
    values = ", ".join(f"%v{k}" for k in range(count))
    operand = f"{{{values}}}" if count > 1 else "%v0"
    return f"""\
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(
    .param .u64 source, .param .u64 target, .param .u64 indices, .param .u32 n)
{{
    .reg .u32 %t, %n, %at;
    .reg .{register} %v<4>;
    .reg .u64 %source, %target, %indices, %offset, %place;
    .reg .pred %p;
    ld.param.u64 %source, [source];
    ld.param.u64 %target, [target];
    ld.param.u64 %indices, [indices];
    ld.param.u32 %n, [n];
    mov.u32 %t, %tid.x;
    setp.ge.u32 %p, %t, %n;
    @%p bra done;
    mul.wide.u32 %offset, %t, 4;
    add.u64 %indices, %indices, %offset;
    ld.global.u32 %at, [%indices];
    mul.wide.{sign}32 %offset, %at, {SIZES[form]};
    add.u64 %place, %source, %offset;
    ld.global.{form} {operand}, [%place];
    add.u64 %place, %target, %offset;
    st.global.{form} [%place], {operand};
done:
    ret;
}}
"""


def words(count, size):
    return np.random.default_rng(3).integers(0, 256, (count, size), np.uint8)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("memcheck", [True, False])
@pytest.mark.parametrize("sign", "us")
@pytest.mark.parametrize("form", SIZES)
def test_lanes_move_what_their_indices_say(form, sign, memcheck):
    count, module = 200, compiled(kernel(form, sign), memcheck=memcheck)
    text = module.kernels["test"].text(USUAL).text
    assert "@cudasync.load.each" in text
    assert "@cudasync.store.each" in text
    source = words(count, SIZES[form])
    for n in (1, 37, 64, 128):
        indices = np.random.default_rng(n).permutation(count).astype(np.int32)[:128]
        target = np.zeros_like(source)
        outcome = start(module, "test", 1, 128, source, target, indices, np.uint32(n)).run()
        assert outcome.kind is OutcomeKind.DONE
        expected = np.zeros_like(source)
        expected[indices[:n]] = source[indices[:n]]
        assert (target == expected).all()


@pytest.mark.parametrize("what", ["ld", "st"])
@pytest.mark.parametrize("form", ["u8", "u32", "v4.u32"])
def test_the_lanes_whose_indices_lead_outside_are_named_and_nothing_is_written(form, what):
    module, size = compiled(kernel(form, "s")), SIZES[form]
    indices = np.arange(64, dtype=np.int32)[::-1].copy()
    indices[[35, 40]] = [64, -1]
    # The array lies in the middle of a larger one, where the outermost indices are right.
    wide = {"ld": np.ones((66, size), np.uint8)[1:65], "st": np.zeros((66, size), np.uint8)[1:65]}
    own = {each: array if each == what else array.base for each, array in wide.items()}
    ranges = [own["ld"], own["st"], indices]
    arguments = [wide[each].ctypes.data for each in ("ld", "st")]
    fault = fault_of(
        module, "test", 1, 64, *arguments, indices.ctypes.data, np.uint32(64), memory=ranges
    )
    assert [x for x, _, _ in fault.threads] == [35, 40]
    assert fault.address == wide[what].ctypes.data + 64 * size
    # The first warp has written, the second warp has not.
    assert wide["st"][32:].all()
    assert not wide["st"][:32].any()
