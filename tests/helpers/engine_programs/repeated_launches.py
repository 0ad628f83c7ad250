"""A loop of launches that the engine replays, and what a serial run of it gives."""

from __future__ import annotations

import numpy as np
from helpers.concurrency.bytecode_freezer import PATIENCE_S

import cudasync as cs

# After so many launches of a loop it is replayed.
LIMIT = 200


class Loop:
    """x = 31 x + 2 y + position, again and again; `wanted` is what a serial run gives."""

    def __init__(self, mix):
        self.mix = mix
        self.index = np.arange(8, dtype=np.int32)
        self.wanted = np.zeros(8, np.int32)
        self.x = cs.zeros(8, np.int32)
        self.y = cs.array(self.index)

    def __call__(self, factor=2):
        self.wanted = 31 * self.wanted + factor * self.index + self.index
        return self.mix[1, 8](self.x, self.y, factor, 8)

    def until_replayed(self, engine):
        for _ in range(LIMIT):
            self()
            if "replays" in engine.replay_report():
                break
        else:
            raise AssertionError(engine.replay_report())
        engine.waitall(PATIENCE_S)
        return self

    def check(self):
        assert self.x.numpy().tolist() == self.wanted.tolist()
