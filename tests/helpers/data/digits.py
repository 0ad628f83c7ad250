"""Rows like scikit-learn's digits, for machines without scikit-learn: ten shapes with noise."""

from __future__ import annotations

import numpy as np

from cudasync.experiments.training import digits


def rows(count=400):
    random = np.random.default_rng(2)
    shapes = random.random((digits.CLASSES, digits.WIDTH))
    labels = random.integers(0, digits.CLASSES, count)
    noisy = shapes[labels] + random.normal(0, 0.3, (count, digits.WIDTH))
    return digits.prepared(np.clip(noisy, 0, 1), labels)
