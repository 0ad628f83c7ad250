"""Running one random program on a lowering, and comparing what two of them left in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudasync.ptx import parse
from cudasync.softgpu.launching import OutcomeKind
from helpers import direct
from helpers.ptx_programs import INPUT_WORDS, Program
from helpers.ptx_tables import POOLS

if TYPE_CHECKING:
    from cudasync.softgpu.launching import Compile

_SPECIAL = np.array(
    [0, 1 << 31, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FFFFFFF, 0x3F800000, 0x7F7FFFFF],
    np.uint32,
)
# What the words that atomics work on begin as: see Writer.atomic.
_COUNTERS = np.array([0, 2**32 - 1, 2**31, 0, 0, 0, 0, 0], np.uint32)


def random_input(seed: int) -> np.ndarray:
    """Words that are small numbers, edges, random bits and ordinary floats, in turn."""
    random = np.random.default_rng(seed)
    words = random.integers(0, 2**32, INPUT_WORDS, np.uint32)
    words[::4] = random.integers(0, 40, len(words[::4]), np.uint32)
    words[1::8] = random.choice(_SPECIAL, len(words[1::8]))
    floats = random.normal(0, 100, len(words[2::4])).astype(np.float32)
    words[2::4] = floats.view(np.uint32)
    return words


def results(compile_module: Compile, program: Program, seed: int) -> dict[str, np.ndarray]:
    """Everything the program leaves in memory, by the name of the parameter."""
    threads = program.threads
    memory = {"input": random_input(seed), "scratch": np.full((threads, 16), 7, np.uint32)}
    for name, letter, type_ in (
        ("longs", "L", np.uint64),
        ("singles", "F", np.float32),
        ("doubles", "D", np.float64),
    ):
        memory[name] = np.zeros((threads, POOLS[letter][1] + 1), type_)
    memory["counters"] = _COUNTERS
    memory = {name: direct.aligned(array) for name, array in memory.items()}
    outcome = direct.run(
        compile_module(parse(program.text)),
        "test",
        grid=program.grid,
        block=program.block,
        args=list(memory.values()),
        # Turns of polite loops are dear; these loops end.
        budget=2**40,
    )
    assert outcome.kind is OutcomeKind.DONE, outcome
    return memory


def differences(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """One line per element that differs in a bit; two NaNs are alike."""
    lines = []
    for name, first in one.items():
        second = other[name]
        bits = np.dtype(f"u{first.itemsize}")
        differs = first.view(bits) != second.view(bits)
        if first.dtype.kind == "f":
            differs &= ~(np.isnan(first) & np.isnan(second))
        for index in np.argwhere(differs)[:10]:
            place = tuple(int(number) for number in index)
            lines.append(f"{name}{list(place)}: {first[place]!r} and {second[place]!r}")
    return lines
