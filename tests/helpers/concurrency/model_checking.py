"""Small concurrent programs for the model checker, and the call that explores them.

A `Model` is a class: its instance is the state, its `workers` are the threads. `holds` says what
must be true once all threads have ended, in every interleaving. A model with `planted` has a bug,
and shows that the checker finds it.

Exploring replaces locks and the stepping of threads in the whole process, so it has its own
process: `explored([path])` runs `helpers/concurrency/model_explorer.py` under frontrun's command.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self

TESTS = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0


class Length(Enum):
    """How much of the space of interleavings is explored."""

    SHORT = "short"
    USUAL = "usual"
    LONG = "long"

    def of(self, count: int) -> int:
        """Scale a count to this length."""
        short = max(2, -(-count // 8))
        return {Length.SHORT: short, Length.USUAL: count, Length.LONG: 20 * count}[self]


class Model:
    """A program of two or three threads."""

    # The planted bug, if any.
    planted: ClassVar[str] = ""
    # The part of the engine that the model is about.
    block: ClassVar[str] = ""
    # Every order of conflicting accesses is tried, up to this number times the factor of `Length`.
    # A planted bug is looked for at any length: with one preemption, by chance, in all of these.
    most: ClassVar[int] = 40
    # Additional random schedules, which find what no recorded access shows.
    drawn: ClassVar[int] = 15

    def __new__(cls) -> Self:
        model = super().__new__(cls)
        # The exceptions of its threads. Any of them breaks the model.
        model.raised = []
        return model

    raised: list[str]

    def workers(self) -> Sequence[Callable[[], object]]:
        """What each thread does."""
        raise NotImplementedError

    def holds(self) -> bool:
        """Whether the model ended right. May raise AssertionError instead."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Explored:
    """The result of exploring one model."""

    name: str
    # None if no interleaving broke the model, else the story of one that did.
    counterexample: str | None
    interleavings: int
    # Whether these were all interleavings.
    is_complete: bool
    drawn: int
    seconds: float

    def __str__(self) -> str:
        if self.counterexample is not None:
            return f"{self.name}: broken by one of {self.interleavings + self.drawn} interleavings"
        which = "all" if self.is_complete else "the first"
        return (
            f"{self.name}: {which} {self.interleavings} interleavings and {self.drawn} by chance, "
            f"{self.seconds:.1f} s"
        )


def load(path: Path) -> ModuleType:
    """The module of models at `path`."""
    spec = importlib.util.spec_from_file_location(f"models_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def models_of(path: Path) -> dict[str, type[Model]]:
    """The models that a file defines, by name."""
    module = load(path)
    found: dict[str, Any] = vars(module)
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, type)
        and issubclass(each, Model)
        and each.__module__ == module.__name__
        and not name.startswith("_")
    }


@dataclass(frozen=True, slots=True)
class Exploration:
    """The results of some files' models, as far as the process got, and its other output."""

    results: dict[str, Explored]
    said: str


def explored(
    paths: Sequence[Path], *, length: Length = Length.USUAL, names: Collection[str] = ()
) -> Exploration:
    """Explore models of these files in one process, which imports the engine once: all of them, or
    those of these names."""
    if importlib.util.find_spec("frontrun") is None:
        return Exploration({}, "no model checker here: pip install 'cudasync[test]'")
    command = [sys.executable, "-m", "frontrun.cli", sys.executable]
    explorer = TESTS / "helpers" / "concurrency" / "model_explorer.py"
    command += [str(explorer), length.value, *map(str, paths), *sorted(names)]
    patience_s = PATIENCE_S * (10 if length is Length.LONG else 1)
    with subprocess.Popen(
        command, cwd=TESTS.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            said += f"\nnot done after {patience_s} s"
    lines = said.splitlines()
    results = [Explored(**json.loads(line)) for line in lines if line.startswith('{"name"')]
    rest = "\n".join(line for line in lines if not line.startswith('{"name"'))
    return Exploration({each.name: each for each in results}, rest)
