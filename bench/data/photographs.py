"""The sample photographs of installed packages, and a pipeline's function for one of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 224

# By package: a portrait by the US Navy; a temple and a flower.
_SAMPLES = {
    "matplotlib": ["mpl-data/sample_data/grace_hopper.jpg"],
    "sklearn": ["datasets/images/china.jpg", "datasets/images/flower.jpg"],
}


def paths(count: int) -> list[str]:
    """`count` paths, which repeat the installed photographs. FileNotFoundError without any."""
    found = []
    for package, names in _SAMPLES.items():
        # This finds the files without importing the package.
        spec = importlib.util.find_spec(package)
        folders = spec.submodule_search_locations if spec else None
        found += [Path(folder, name) for folder in folders or () for name in names]
    there = [str(each) for each in found if each.is_file()]
    if not there:
        raise FileNotFoundError("no sample photograph: pip install matplotlib, or scikit-learn")
    return [there[at % len(there)] for at in range(count)]


def decode(path: str) -> np.ndarray:
    """The photograph as (224, 224, 3) uint8."""
    with Image.open(path) as image:
        return np.array(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
