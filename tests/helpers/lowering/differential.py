"""Running one random program on a lowering, and comparing the memory that two lowerings left."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from helpers.lowering import bare_launch
from helpers.ptx_generators.programs import INPUT_WORDS, RESULT_BYTES, Program, program_of

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import OutcomeKind

if TYPE_CHECKING:
    from cudasync.softgpu.interface.launch import Compile

_SPECIAL = np.array(
    [0, 1 << 31, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FFFFFFF, 0x3F800000, 0x7F7FFFFF],
    np.uint32,
)
# The initial values of the words for atomics: see memory_accesses.atomic.
_COUNTERS = np.array([0, 2**32 - 1, 2**31, *[0] * 13], np.uint32)
_COUNTERS[[5, 6, 12, 13]] = 2**32 - 1, 2**31 - 1, 2**32 - 1, 2**31 - 1
_RESULTS = {"longs": np.uint64, "singles": np.float32, "doubles": np.float64, "halves": np.float16}


def random_input(seed: int) -> np.ndarray:
    """Words in turn: small numbers, edge values, random bits and ordinary floats."""
    random = np.random.default_rng(seed)
    words = random.integers(0, 2**32, INPUT_WORDS, np.uint32)
    words[::4] = random.integers(0, 40, len(words[::4]), np.uint32)
    words[1::8] = random.choice(_SPECIAL, len(words[1::8]))
    floats = random.normal(0, 100, len(words[2::4])).astype(np.float32)
    words[2::4] = floats.view(np.uint32)
    return words


def results(compile_module: Compile, program: Program, seed: int) -> dict[str, np.ndarray]:
    """The memory that the program leaves, by parameter name."""
    threads = program.threads
    memory = {"input": random_input(seed), "scratch": np.full((threads, 16), 7, np.uint32)}
    for name, type_ in _RESULTS.items():
        memory[name] = np.zeros((threads, RESULT_BYTES[name]), np.uint8).view(type_)
    memory["counters"] = _COUNTERS
    memory = {name: bare_launch.aligned(array) for name, array in memory.items()}
    outcome = bare_launch.run(
        compile_module(parse(program.text)),
        "test",
        grid=program.grid,
        block=program.block,
        args=list(memory.values()),
        # Turns of polite spin loops are expensive; these loops end.
        budget=2**40,
    )
    assert outcome.kind is OutcomeKind.DONE, outcome
    return memory


def differences(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """A line for each element that differs in a bit; any two NaNs are equal."""
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


def disagreement(number: int, size: int = 2) -> list[str]:
    """The differences between the lowerings for the program of this number.

    The number also decides whether accesses are checked, and whether all registers count as
    varying.
    """
    program = program_of(number, size)
    settings = {"memcheck": number % 3 != 0, "assume_varying": number % 5 == 0}
    fast = results(partial(jit.compile_module, **settings), program, number)
    return differences(fast, results(oracle.compile_module, program, number))
