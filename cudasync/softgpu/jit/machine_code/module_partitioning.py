"""Cellar, jit. Divides a kernel's text in two, so that two processors can compile it.

Segments (`parallel_regions`) are functions that are called only through a table, and LLVM's work on
one does not depend on the others. So about half of them become a module of their own. The two
halves are linked together again, and are kept as one.
"""

from __future__ import annotations

import re

# Segments with fewer characters than this compile as fast on one processor.
_LEAST = 25_000
_SEGMENT = re.compile(
    r"^define internal (i64 @segment\.\d+\([^)]*\)) noinline(.*?^\}\n)", re.MULTILINE | re.DOTALL
)
_TABLES = re.compile(r"^@(?:segments|numbers) = .*\n", re.MULTILINE)
_KERNEL = "define i32 @kernel("
# For LLVM the start of a basic block is as much work as this many lines. For 26 segments of the
# bench, lines and blocks together predict the time within 2.4 ms of 12, characters within 4.6.
_LINES_OF_A_BLOCK = 36


def cut(text: str, beside: int = 0) -> tuple[str, ...]:
    """The text as one module or two, the one with the kernel first.

    `beside` is the weight of other texts to compile: the thread with the second half does that.
    """
    found = list(_SEGMENT.finditer(text))
    rest = _SEGMENT.sub("", text)
    length = len(text) - len(rest)
    if len(found) < 2 or length < _LEAST or "define internal" in rest:
        return (text,)
    start = rest.index(_KERNEL)
    end = rest.index("\n}\n", start) + 3
    # The part that both halves need: constants, declarations and metadata.
    common = rest[:start] + rest[end:]
    halves: tuple[list[re.Match[str]], list[re.Match[str]]] = ([], [])
    weights = [weight(rest[start:end]), beside]
    weighed = [(weight(each.group()), each) for each in found]
    for own_weight, each in sorted(weighed, key=lambda pair: -pair[0]):
        lighter = weights.index(min(weights))
        weights[lighter] += own_weight
        halves[lighter].append(each)
    if not halves[1]:
        return (text,)
    own, other = (
        "".join(f"define {each[1]} noinline{each[2]}" for each in half) for half in halves
    )
    declared = "".join(f"declare {each[1]}\n" for each in halves[1])
    return own + declared + rest, other + _TABLES.sub("", common)


def weight(text: str) -> int:
    """An estimate of LLVM's work on a function, in lines."""
    return text.count("\n") + _LINES_OF_A_BLOCK * text.count(":\n")
