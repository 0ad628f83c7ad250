"""Counting driver calls: the functions of the binding that a piece of code calls, and how often."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

from cuda.bindings import driver


@contextmanager
def counted_calls():
    """Count the binding's functions called inside the block. Each function still runs."""
    calls = Counter()
    names = [name for name in dir(driver) if name.startswith("cu") and name[2:3].isupper()]
    originals = {name: getattr(driver, name) for name in names}

    def counting(name, function):
        def call(*arguments):
            calls[name] += 1
            return function(*arguments)

        return call

    for name, function in originals.items():
        setattr(driver, name, counting(name, function))
    try:
        yield calls
    finally:
        for name, function in originals.items():
            setattr(driver, name, function)
