"""Each refusal of an argument names a remedy, and the remedy works."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

import cudasync as cs
from cudasync.driver.arguments.argument_packing import Packing
from cudasync.driver.arguments.parameter import Parameter
from cudasync.ptx.types import Access, ScalarType

TYPES = [
    ScalarType(name)
    for name in (
        "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "b8", "b16", "b32", "b64",
        "f16", "f32", "f64", "bf16", "f16x2", "bf16x2",
    )
]  # fmt: skip
VALUES = [
    1.5, float("inf"), 1e300, -1, 300, 1 << 20, 1 << 40, -(1 << 40), 1 << 70, 10**400, 1j, True,
    np.float16(1.5), np.float32(1.5), np.float64(1.5), np.int8(-3), np.int16(3), np.int32(-3),
    np.int64(3), np.uint8(3), np.uint64(1 << 63), np.complex64(1 + 2j), np.bool_(1),
    ctypes.c_int32(3), ctypes.c_float(1.5), None, "1", b"1", [1.0, 2.0], (1,), np.arange(3.0), {},
]  # fmt: skip


def refusal(parameter, value):
    """Why a kernel with this parameter refuses `value`; "" if it accepts the value."""
    try:
        Packing("k", [parameter]).take([value])
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def ways_out(message):
    """The expressions that a refusal recommends."""
    said = message.rpartition(": ")[2]
    if "give" not in said:
        return []
    said = said.partition("give ")[2]
    said = re.sub(
        r" if (its|infinity).*|, the bits of.*| to kernel.*| for a null pointer", "", said
    )
    said = said.removeprefix("a number, such as ")
    return [each.strip() for each in re.split(r" or(?:, if the bits are meant,)? ", said)]


def tried(way, value):
    """The argument after following the remedy `way` for `value`."""
    if way == "an address" or "device array" in way or "DeviceBuffer" in way:
        return cs.DeviceBuffer(8)
    return eval(way, {"np": np, "cs": cs, "x": value, "bits": 0})


def remaining(parameter, value):
    """The refusals that remain after trying all remedies. The int of a float may be too large."""
    message = refusal(parameter, value)
    if not message:
        return []
    if not message.startswith(f"argument 1 (.{parameter.type.value} x)") or not ways_out(message):
        return [message]
    left = []
    for way in ways_out(message):
        if way.startswith("int(") and value == float("inf"):
            continue  # No int is infinite.
        given = tried(way, value)
        again = refusal(parameter, given)
        if "is not in [" in again and "is not in [" not in message:
            left += remaining(parameter, given)
        elif again:
            left.append((message, way, again))
    return left


@pytest.mark.sampled(7)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.value)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {value!r:.9}")
def test_what_a_refusal_names_is_taken(type_, value):
    assert remaining(Parameter("x", type_, type_.size, Access.VALUE), value) == []


@pytest.mark.parametrize("value", [7, 1.5, None, "1", bytes(7), np.zeros(3), np.float32(1)])
def test_a_structure_takes_its_bytes(value):
    parameter = Parameter("x", ScalarType.B8, 8, Access.VALUE, is_array=True)
    message = refusal(parameter, value)
    assert message.endswith("give its 8 bytes")
    assert not refusal(parameter, bytes(8))


def test_a_wrong_number_of_arguments_is_told_the_parameters():
    parameters = [Parameter(name, ScalarType.U32, 4, Access.VALUE) for name in "xyz"]
    with pytest.raises(TypeError, match=r"3 arguments, not 1: \(\.u32 x, \.u32 y, \.u32 z\)"):
        Packing("k", parameters).take([1])


def test_a_message_without_a_way_out_would_be_noticed():
    assert not ways_out("argument 1 (.u32 x) does not take a float")
    assert ways_out("argument 1 (.b32 x) does not take a float: give np.float32(x) or int(x)") == [
        "np.float32(x)", "int(x)",
    ]  # fmt: skip
