"""Floor 4. Random numbers that depend on the seed and the order of calls alone."""

from __future__ import annotations

from cudasync.random.generator import Generator

__all__ = ["Generator"]


def __dir__() -> list[str]:
    return sorted(__all__)
