"""Cellar. What is handed over as a module and is no PTX: told by how it begins."""

from __future__ import annotations

from typing import Final

# CUDA's fatbinary.h, LLVM's bitcode reference and ar(5) have the magic numbers; that of
# intermediate code for optimising at link time is as NVRTC writes it with -dlto.
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
    """What an image is that is not a text; None if it may be one."""
    return next((kind for start, kind in _KINDS if image.startswith(start)), None)
