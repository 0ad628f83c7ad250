"""The fuzzer finds miscompiles: with a bug planted in the vector lowering, programs disagree.

The search for a bug takes the programs that contain the broken construct, by number. The bugs are
in code written for each kernel, because functions that kernels share are cached.
"""

from __future__ import annotations

import re
from itertools import islice

import pytest
from helpers.lowering.differential import differences, results
from helpers.ptx_generators.programs import program_of

from cudasync.softgpu import jit, oracle
from cudasync.softgpu.jit.analysis import divergence
from cudasync.softgpu.jit.arithmetic import bitwise, carry_flag, conversion, floating_point
from cudasync.softgpu.jit.arithmetic import comparison as comparing
from cudasync.softgpu.jit.control_flow import branch_lowering
from cudasync.softgpu.jit.synchronisation import shuffle, votes_and_reductions
from cudasync.softgpu.jit.vector_ir import lane_masks, values

# The most agreeing programs before a bug must show.
MOST = 12


def _set(place, name, value):
    return lambda patch: patch.setattr(place, name, value)


def _wrap(place, name, change):
    """Change the result of a function."""

    def plant(patch):
        real = getattr(place, name)
        patch.setattr(place, name, lambda *a, **k: change(real(*a, **k), *a))

    return plant


def _last_come(self, _node, target, mask):
    """Lanes that arrive where others wait forget the others."""
    if target != self._flow.exit:
        lane_masks.store_mask(self._builder, mask, f"%wait.{target}")


def _any_lane(mode, lane, offset, control):
    offset &= 31
    found = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset}.get(mode, offset)
    return found & 31, True


def _unsigned(patch):
    real = comparing._comparison

    def comparison(lowering, instruction, type_):
        if type_.is_signed:
            type_ = comparing.ScalarType(f"u{type_.bits}")
        return real(lowering, instruction, type_)

    patch.setattr(comparing, "_comparison", comparison)


def _unclamped(builder, operation, value, count):
    low = values.integer(count.type, values.bits_of(value.type) - 1)
    masked = builder.binary("and", builder.flat(count), low)
    width = values.bits_of(value.type)
    if width > 32:
        masked = builder.extend(masked, value.type, is_signed=False)
    return builder.binary(operation, value, builder.truncate(masked, value.type))


def _without_carry(_flag, lowering, type_):
    return values.integer(type_, 0)


def _everyone(lowering, operand):
    return values.uniform("i32", votes_and_reductions.mask_word(lowering.builder, lowering.mask))


def _ungated(self, instruction):
    return self._lowering.load_register(instruction.guard.register)


# The bug, and a pattern that a program needs to show it.
PLANTED = {
    "lanes that meet forget each other": (
        _set(branch_lowering.Ways, "_wait_at", _last_come),
        r"bra L|brx",
    ),
    "a definition overwrites waiting lanes": (
        _set(divergence.Divergence, "blends", lambda *_: False),
        r"bra L",
    ),
    "the carry is dropped": (_wrap(carry_flag, "_flag", _without_carry), r"(addc|subc|madc)"),
    "signed is compared as unsigned": (_unsigned, r"setp\.(lt|le|gt|ge)\.s"),
    "shfl takes lanes beyond its bound": (
        _set(shuffle, "_source", _any_lane),
        r"shfl\.sync\.(up|down|idx)\.b32 [^,]*, %r\d, \d+, \d+",
    ),
    "a vote counts lanes outside of its members": (
        _set(votes_and_reductions, "members", _everyone),
        r"(vote|redux)\.sync\.[^;]*%m_tile",
    ),
    "shift amounts wrap": (
        _set(bitwise, "shifted", _unclamped),
        r"sh[lr]\.[bus](32|64) [^;]*%r\d;",
    ),
    "conversions round to zero": (
        _wrap(conversion, "_rounding", lambda found, *_: found and "trunc"),
        r"cvt\.r[nmp]i\.[us]",
    ),
    "subnormal numbers are not flushed": (
        _set(floating_point, "flush", lambda _lowering, _instruction, value: value),
        r"(add|mul|fma\.rn|sub|div\.rn)\.ftz\.f32",
    ),
    "a guard is taken for its opposite": (_set(branch_lowering.Ways, "guard", _ungated), r"@!%p"),
}
# The others are as fast, but many; they run with --run-slow.
ALWAYS = {
    "lanes that meet forget each other",
    "the carry is dropped",
    "signed is compared as unsigned",
    "shfl takes lanes beyond its bound",
}


def found_after(needs: str) -> int | None:
    """How many fitting programs agree before one does not; None if all agree."""
    texts = (program_of(number, 1) for number in range(10_000))
    fit = (program for program in texts if re.search(needs, program.text))
    for count, program in enumerate(islice(fit, MOST)):
        plain = results(oracle.compile_module, program, 1)
        if differences(results(jit.compile_module, program, 1), plain):
            return count
    return None


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[] if bug in ALWAYS else [pytest.mark.slow]) for bug in PLANTED],
)
def test_a_planted_bug_is_found(monkeypatch, bug):
    plant, needs = PLANTED[bug]
    plant(monkeypatch)
    assert found_after(needs) is not None
