"""The headers of ptx/isa: their expectations are compared, and an error names the wrong header."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering.isa_cases import encode, load_case

HEADER = """\
// PURPOSE adds, and says so over
//         two lines
// PARAMETERS a, count, result
// LAUNCH grid 2,3 block 64 shared 160
// VALUE count u32 7
// INPUT a s16 -1 2
// INPUT a s16 0x8000
// TOLERANCE result relative 2^-10
// EXPECT result f32 1.0 nan
// EXPECT result f32 * -inf 0.0

.version 6.4
"""


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "case.ptx"
        path.write_text(text)
        return load_case(path)

    return load


def test_a_header_becomes_a_case(load):
    case = load(HEADER)
    assert case.purpose == "adds, and says so over two lines"
    assert (case.grid, case.block, case.shared_bytes) == ((2, 3), (64,), 160)
    assert case.values["count"].bytes() == b"\x07\0\0\0"
    assert case.memory("a").view(np.int16).tolist() == [-1, 2, -32768]
    assert case.memory("result").tolist() == [0xA5] * 20


@pytest.mark.parametrize(
    ("results", "wrong"),
    [
        ([1.0, np.nan, 5.0, -np.inf, 0.0], []),
        ([1.0009, np.nan, 5.0, -np.inf, 0.0], []),
        ([1.001, np.nan, 5.0, -np.inf, 0.0], [0]),
        ([1.0, 1.0, 5.0, -np.inf, 0.0], [1]),
        ([1.0, np.nan, np.nan, np.inf, 1e-30], [3, 4]),
    ],
)
def test_only_what_is_beyond_the_tolerance_is_a_mismatch(load, results, wrong):
    memory = np.array(results, np.float32).view(np.uint8)
    found = load(HEADER).mismatches("result", memory)
    assert [line.partition(":")[0] for line in found] == [f"result[{index}]" for index in wrong]


def test_without_a_tolerance_the_sign_of_zero_counts(load):
    case = load(HEADER.replace("// TOLERANCE result relative 2^-10\n", ""))
    memory = np.array([1.0, np.nan, 5.0, -np.inf, -0.0], np.float32).view(np.uint8)
    assert case.mismatches("result", memory) == ["result[4]: 0.0 expected, not 0x80000000"]


@pytest.mark.parametrize(
    ("type_", "word", "bits"),
    [
        ("f32", "0x7f800001", 0x7F800001),
        ("f32", "nan", 0x7FFFFFFF),
        ("f16", "1.5", 0x3E00),
        ("f64", "-0.0", 1 << 63),
        ("s8", "-1", 0xFF),
        ("u64", "0xffffffffffffffff", 2**64 - 1),
    ],
)
def test_elements_are_encoded_by_their_type(type_, word, bits):
    assert int.from_bytes(encode(type_, word), "little") == bits


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("// VALUE", "// VALVE", "no such field: VALVE"),
        ("a s16 -1", "a q16 -1", "no such type: q16"),
        ("relative", "roughly", "no such tolerance: roughly"),
        ("shared 160", "shared", "LAUNCH"),
        ("shared 160", "depth 3", "no such word in LAUNCH: depth"),
        ("a, count, result", "a, result", "does not account for every parameter"),
    ],
)
def test_a_wrong_header_is_named(load, old, new, message):
    with pytest.raises(ValueError, match=message):
        load(HEADER.replace(old, new))
