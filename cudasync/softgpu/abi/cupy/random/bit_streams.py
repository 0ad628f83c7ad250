"""Cellar, abi. The streams of random bits behind CuPy's bit generators, and their state.

CuPy's own kernels keep a state for each thread in device memory. Here the first words of that
memory are the whole state: a mark, the kind of the generator, the seed, and the number of draws.
So a copy of the memory is a copy of the generator, and each launch of a captured draw gives new
numbers.

Each draw has a sequence of its own in NumPy's Philox4x64-10: seed and kind are the key, and the
number of the draw is the upper half of the counter. A draw never reaches the next one's sequence
(2**128 blocks). The bits are not NVIDIA's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudasync.softgpu.core.driver_types.result_codes import LAUNCH_FAILED, DriverFailure

KINDS: Final = ("XORWOW", "MRG32k3a", "Philox4x3210")
"""CuPy's bit generators, in the order of its `RandGenerators`."""
STATE_BYTES: Final = 32
_MARK: Final = 0x6373_5247_5354_4154
_WORD: Final = 2**64


@dataclass(frozen=True, slots=True)
class BitStream:
    """A generator before its next draw."""

    kind: int
    seed: int
    draws: int = 0

    def generator(self) -> np.random.Generator:
        """NumPy's generator at the start of this draw's sequence."""
        key = np.array([self.seed % _WORD, self.kind], np.uint64)
        counter = np.array([0, 0, self.draws % _WORD, 0], np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def after(self) -> BitStream:
        """The same generator, one draw later."""
        return BitStream(self.kind, self.seed, (self.draws + 1) % _WORD)

    def save(self, words: np.ndarray[Any, np.dtype[np.uint64]]) -> None:
        """Write the state into its four words."""
        words[...] = (_MARK, self.kind, self.seed % _WORD, self.draws)


def load(words: np.ndarray[Any, np.dtype[np.uint64]]) -> BitStream:
    """The generator whose state these four words are; LAUNCH_FAILED if they are no state."""
    mark, kind, seed, draws = (int(word) for word in words)
    if mark != _MARK or kind >= len(KINDS):
        raise DriverFailure(
            LAUNCH_FAILED,
            "the state of the bit generator was overwritten or never initialised: "
            "make a new one, for example cupy.random.XORWOW(seed)",
        )
    return BitStream(kind, seed, draws)
