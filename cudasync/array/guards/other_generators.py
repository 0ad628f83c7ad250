"""Floor 4, guards. Random numbers of Python and NumPy, which a trace would draw once."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _of_numpy() -> Any:
    import numpy.random

    return numpy.random.mtrand._rand


# The generators behind the functions of these modules.
SHARED_GENERATORS: dict[str, Callable[[], Any]] = {
    "random": lambda: random.getstate.__self__,  # type: ignore[attr-defined]
    "numpy": _of_numpy,
    "numpy.random": _of_numpy,
}


def is_generator(kind: type) -> bool:
    """True for the classes of generators, by name: NumPy loads its own at their first use."""
    is_of_numpy = str(kind.__module__).startswith("numpy.random.")
    return issubclass(kind, random.Random) or (
        is_of_numpy and kind.__name__ in ("Generator", "RandomState")
    )


class Draws:
    """A generator, and its state before the trace."""

    def __init__(self, name: str, generator: Any) -> None:
        self.name = name
        self._generator = generator
        self._before = self._state()

    def has_drawn(self) -> bool:
        return self._state() != self._before

    def _state(self) -> bytes:
        generator = self._generator
        if isinstance(generator, random.Random):
            return pickle.dumps(generator.getstate())
        if hasattr(generator, "bit_generator"):
            return pickle.dumps(generator.bit_generator.state)
        return pickle.dumps(generator.get_state(legacy=False))
