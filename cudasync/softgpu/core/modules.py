"""Cellar. A module: compiled PTX, its variables in memory, and its kernels."""

from __future__ import annotations


class Module:
    """One loaded module."""
