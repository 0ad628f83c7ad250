"""Cellar. The options of nvJitLink: those in its header, and the faults of a list of options.

Only the architecture matters here, also for an empty link; the other options tune machine code. All
options are checked, because a program may ask whether an option is known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# nvJitLinkResult.
SUCCESS: Final = 0
UNRECOGNIZED_OPTION: Final = 1
MISSING_ARCH: Final = 2
INCOMPATIBLE_OPTIONS: Final = 11

_FLAGS: Final = frozenset(
    {
        "-time",
        "-verbose",
        "-lto",
        "-dlto",
        "-ptx",
        "-O0",
        "-O3",
        "-g",
        "-lineinfo",
        "-optimize-unused-variables",
        "-nvvm-latest",
        "-no-cache",
        "-device-stack-protector",
        "-r",
    }
)
_WITH_VALUE: Final = re.compile(
    "-(maxrregcount|ftz|prec-div|prec-sqrt|fma|kernels-used|variables-used|Xptxas|Xnvvm"
    "|split-compile|split-compile-extended|jump-table-density|device-stack-protector)=.+"
    "|-Ofc=(min|mid|max)",
    re.DOTALL,
)
_ARCHITECTURE: Final = re.compile(r"-arch=(sm|compute|lto)_(\d+)[af]?")
# From the oldest architecture that any nvJitLink accepts to the newest.
_NUMBERS: Final = frozenset(
    {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121}
)


class JitLinkOptions:
    """The options of one link; `result` is the nvJitLinkResult of creating it."""

    def __init__(self, options: Iterable[str]) -> None:
        self.result = SUCCESS
        self.architecture = ""
        self.is_lto = False
        kind = ""
        self.given = given = list(options)
        for option in given:
            match = _ARCHITECTURE.fullmatch(option)
            if match is not None and int(match[2]) in _NUMBERS:
                kind, self.architecture = match[1], match[2]
            elif option not in _FLAGS and not _WITH_VALUE.fullmatch(option):
                self.result = UNRECOGNIZED_OPTION
                return
        is_ptx = "-ptx" in given
        is_lto = self.is_lto = "-lto" in given or "-dlto" in given
        if not self.architecture:
            self.result = MISSING_ARCH
        elif (is_ptx and not is_lto) or (kind == "compute" and not is_ptx):
            self.result = INCOMPATIBLE_OPTIONS

    def for_ptx(self) -> list[str]:
        """The options of the same link, for PTX as its result."""
        rest = [option for option in self.given if option not in ("-r", "-ptx")]
        return [*rest, "-ptx"]

    def empty_program(self) -> bytes:
        """The result of a link without inputs: a program with nothing in it."""
        return f".version 8.8\n.target sm_{self.architecture}\n.address_size 64\n".encode()
