"""Cellar. The addresses of functions: numbers that no memory can have.

A function's number is its place in the PTX text, kernels included.
"""

from __future__ import annotations

from typing import Final

# User space ends far below: no allocation ever lies here.
FIRST: Final = 1 << 62
DISTANCE: Final = 16


def address_of(number: int) -> int:
    """The address of the function with this number."""
    return FIRST + DISTANCE * number


def number_of(address: int) -> int:
    """The number of the function with this address."""
    return (address - FIRST) // DISTANCE
