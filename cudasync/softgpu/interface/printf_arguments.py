"""Cellar. The arguments that a format of printf takes, for those who leave and those who read them.

They lie like members of a C struct: each at the next multiple of its own size.
"""

from __future__ import annotations

import re
from typing import Final

CONVERSION: Final = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*)?)?"
    rb"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<letter>[diouxXeEfFgGaAcspn%])"
)
# Lengths of integers of 64 bits.
LONG: Final = frozenset({b"l", b"ll", b"j", b"z", b"t"})
_INTEGERS: Final = frozenset(b"diouxX")


def sizes(conversion: re.Match[bytes]) -> list[int]:
    """The sizes in bytes of the arguments of a conversion, in their order."""
    found = [4 for each in ("width", "precision") if conversion[each] == b"*"]
    letter = ord(conversion["letter"])
    if letter == ord("%"):
        return found
    is_short = letter == ord("c") or (letter in _INTEGERS and conversion["length"] not in LONG)
    return [*found, 4 if is_short else 8]


def count(text: bytes) -> int:
    """The number of arguments of a format."""
    return sum(len(sizes(each)) for each in CONVERSION.finditer(text))


def string_slots(text: bytes) -> int:
    """Which of the arguments' words of 8 bytes are strings, as bits."""
    found = position = 0
    for each in CONVERSION.finditer(text):
        for size in sizes(each):
            position = -(-position // size) * size + size
        if each["letter"] == b"s":
            found |= 1 << (position // 8 - 1)
    return found
