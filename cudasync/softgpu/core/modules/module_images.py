"""Cellar. Module images that are no PTX, recognised by their first bytes."""

from __future__ import annotations

from typing import Final

# The magic numbers are from CUDA's fatbinary.h, LLVM's bitcode reference and ar(5). The one of
# intermediate code for link-time optimisation is from NVRTC's output with -dlto.
INTERMEDIATE: Final = b"\xed\x43\x4e\x7f"
_KINDS: Final = (
    (b"\x7fELF", "machine code"),
    (b"\x50\xed\x55\xba", "a fat binary"),
    (b"\xb1\x43\x62\x46", "the wrapper of a fat binary, which only its address leads to"),
    (INTERMEDIATE, "intermediate code for optimising at link time"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"!<arch>\n", "a library of objects"),
)


def kind_of(image: bytes) -> str | None:
    """The kind of a binary image; None if the image may be a text."""
    return next((kind for start, kind in _KINDS if image.startswith(start)), None)
