"""The data: scikit-learn's handwritten digits, in batches."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Matrix = np.ndarray[Any, Any]

WIDTH, CLASSES = 64, 10
TESTED = 261


class DataMissing(Exception):
    """The data is not installed; the text says what to install."""


@dataclass(frozen=True, slots=True)
class Data:
    """Rows of numbers between 0 and 1 (`x`), rows of zeros with one 1 (`y`), and test rows."""

    x: Matrix
    y: Matrix
    test_x: Matrix
    test_y: Matrix

    def batches(self, rows: int, steps: int) -> Iterator[tuple[Matrix, Matrix]]:
        """`steps` batches, which start again at the end of the data; the same for all callers."""
        for step in range(steps):
            chosen = np.arange(step * rows, (step + 1) * rows) % len(self.x)
            yield self.x[chosen], self.y[chosen]

    def save(self, path: Path) -> None:
        """Write the data to a file, which another process can `read`."""
        np.savez(path, x=self.x, y=self.y, test_x=self.test_x, test_y=self.test_y)


def read(path: Path) -> Data:
    """The data of a file of `save`."""
    with np.load(path) as held:
        return Data(*(held[name] for name in ("x", "y", "test_x", "test_y")))


def load() -> Data:
    """The 1797 digits of scikit-learn, in a fixed order; `DataMissing` without it."""
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError as error:
        raise DataMissing(
            "training needs the digits of scikit-learn: pip install scikit-learn"
        ) from error
    images, labels = datasets.load_digits(return_X_y=True)
    return prepared(images / 16, labels)


def prepared(images: Matrix, labels: Matrix) -> Data:
    """Rows with their labels, shuffled, and divided into training rows and test rows."""
    order = np.random.default_rng(19).permutation(len(images))
    x, y = images[order].astype(np.float32), np.eye(CLASSES, dtype=np.float32)[labels[order]]
    tested = min(TESTED, len(x) // 4)
    return Data(x[:-tested], y[:-tested], x[-tested:], y[-tested:])
