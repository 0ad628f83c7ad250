"""The programs of ptx/isa and their expectations, read from their headers (see ptx/README.md)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np

ISA = Path(__file__).parents[3] / "ptx" / "isa"
# The initial value of memory that no INPUT line fills.
POISON = 0xA5

_SIZES = {"b8": 1, "u8": 1, "s8": 1} | {
    f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (16, 32, 64)
}
_FLOAT_FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class Elements:
    """The elements of one header line: the text of each, and their type."""

    type: str
    words: tuple[str, ...]

    def bytes(self) -> bytes:
        return b"".join(encode(self.type, word) for word in self.words)

    def array(self) -> np.ndarray:
        """The elements in NumPy's type for them."""
        kind = {"s": "i", "f": "f"}.get(self.type[0], "u")
        return np.frombuffer(self.bytes(), f"{kind}{_SIZES[self.type]}")

    @property
    def size_bytes(self) -> int:
        return _SIZES[self.type] * len(self.words)


@dataclass(frozen=True)
class Tolerance:
    """The permitted distance of a float from its expectation."""

    kind: str
    bound: Fraction

    def admits(self, actual: float, expected: float) -> bool:
        if not np.isfinite(expected) or not np.isfinite(actual):
            return actual == expected
        distance = abs(Fraction(actual) - Fraction(expected))
        scale = abs(Fraction(expected)) if self.kind == "relative" else 1
        return distance <= self.bound * scale and (expected != 0 or actual == 0)


@dataclass
class Case:
    """One program and its expected results."""

    name: str
    path: Path
    purpose: str = ""
    parameters: tuple[str, ...] = ()
    grid: tuple[int, ...] = (1,)
    block: tuple[int, ...] = (1,)
    shared_bytes: int = 0
    values: dict[str, Elements] = field(default_factory=dict)
    inputs: dict[str, Elements] = field(default_factory=dict)
    expected: dict[str, Elements] = field(default_factory=dict)
    tolerances: dict[str, Tolerance] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The least compute capability that can run the program, from its .target."""
        (number,) = re.findall(r"^\.target sm_(\d+)[af]?$", self.text, re.MULTILINE)
        return divmod(int(number), 10)

    def memory(self, name: str) -> np.ndarray:
        """The bytes behind the pointer parameter `name` before the launch."""
        if name in self.inputs:
            return np.frombuffer(self.inputs[name].bytes(), np.uint8).copy()
        return np.full(self.expected[name].size_bytes, POISON, np.uint8)

    def memories(self) -> dict[str, np.ndarray]:
        """The memory of every pointer parameter, by name."""
        return {name: self.memory(name) for name in self.parameters if name not in self.values}

    def mismatches(self, name: str, memory: np.ndarray) -> list[str]:
        """A line for each wrong element of `name`."""
        expected = self.expected[name]
        size = _SIZES[expected.type]
        found = memory.tobytes()
        assert len(found) == expected.size_bytes
        tolerance = self.tolerances.get(name)
        wrong = []
        for index, word in enumerate(expected.words):
            actual = found[index * size : (index + 1) * size]
            if not _matches(expected.type, actual, word, tolerance):
                bits = int.from_bytes(actual, "little")
                wrong.append(f"{name}[{index}]: {word} expected, not {bits:#0{2 * size + 2}x}")
        return wrong


def encode(type_: str, word: str) -> bytes:
    """The bytes of one element in memory."""
    size = _SIZES[type_]
    if type_ in _FLOATS and not word.startswith("0x"):
        if word == "nan":
            # The hardware's NaN: every bit is set except the sign.
            return ((1 << (8 * size - 1)) - 1).to_bytes(size, "little")
        return struct.pack(_FLOAT_FORMATS[type_], float(word))
    return (int(word, 0) % (1 << (8 * size))).to_bytes(size, "little")


def _matches(type_: str, actual: bytes, word: str, tolerance: Tolerance | None) -> bool:
    if word == "*":
        return True
    if type_ in _FLOATS:
        (number,) = np.frombuffer(actual, _FLOATS[type_])
        if word == "nan":
            return bool(np.isnan(number))
        if tolerance is not None:
            (wanted,) = np.frombuffer(encode(type_, word), _FLOATS[type_])
            return tolerance.admits(float(number), float(wanted))
    return actual == encode(type_, word)


def load_case(path: Path) -> Case:
    """Read the header of one file; a ValueError names the error in the header."""
    case = Case(path.stem, path)
    for number, line in enumerate(_header(path), start=1):
        keyword, _, rest = line.partition(" ")
        try:
            _field(case, keyword, rest)
        except (ValueError, KeyError, IndexError) as error:
            raise ValueError(f"{path.name}, header field {number}: {line!r}: {error}") from error
    named = set(case.values) | set(case.inputs) | set(case.expected)
    if named != set(case.parameters) or not case.purpose or not case.expected:
        raise ValueError(f"{path.name}: the header does not account for every parameter")
    return case


def _header(path: Path) -> list[str]:
    """The fields of the header, each joined with its continuation lines."""
    fields: list[str] = []
    for line in path.read_text().splitlines():
        if not line.startswith("//"):
            break
        text = line[2:]
        if text.startswith("  ") and fields:
            fields[-1] += " " + text.strip()
        else:
            fields.append(text.strip())
    return fields


def _field(case: Case, keyword: str, rest: str) -> None:
    words = rest.split()
    match keyword:
        case "PURPOSE":
            case.purpose = rest
        case "PARAMETERS":
            case.parameters = tuple(word.strip() for word in rest.split(","))
        case "LAUNCH":
            _launch(case, words)
        case "VALUE":
            name, type_, value = words
            case.values[name] = Elements(type_, (value,))
        case "INPUT":
            _append(case.inputs, words)
        case "EXPECT":
            _append(case.expected, words)
        case "TOLERANCE":
            name, kind, bound = words
            if kind not in ("relative", "absolute"):
                raise ValueError(f"no such tolerance: {kind}")
            case.tolerances[name] = Tolerance(
                kind, Fraction(2.0 ** float(bound.removeprefix("2^")))
            )
        case _:
            raise ValueError(f"no such field: {keyword}")


def _append(lists: dict[str, Elements], words: list[str]) -> None:
    name, type_, *values = words
    if type_ not in _SIZES:
        raise ValueError(f"no such type: {type_}")
    before = lists[name].words if name in lists else ()
    lists[name] = Elements(type_, (*before, *values))


def _launch(case: Case, words: list[str]) -> None:
    for key, value in zip(words[::2], words[1::2], strict=True):
        numbers = tuple(int(number) for number in value.split(","))
        if key == "grid":
            case.grid = numbers
        elif key == "block":
            case.block = numbers
        elif key == "shared":
            (case.shared_bytes,) = numbers
        else:
            raise ValueError(f"no such word in LAUNCH: {key}")


@cache
def all_cases() -> tuple[Case, ...]:
    """Every program of ptx/isa, by name. Several test files ask while they are collected."""
    return tuple([load_case(path) for path in sorted(ISA.glob("*.ptx"))])
