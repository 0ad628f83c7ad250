"""Cellar, core. Fat binaries: what `nvcc` and `fatbinary` put machine code and PTX into.

`container.py` reads the entries. `decompression.py` unpacks the payload of one. `selection.py`
takes the PTX that a device runs. The layout is that of CUDA's fatbinary_section.h and of what the
public tool `fatbinary` writes for each of its options.
"""

from __future__ import annotations

from cudasync.softgpu.core.fat_binaries.container import is_container as is_container
from cudasync.softgpu.core.fat_binaries.container import size_of as size_of
from cudasync.softgpu.core.fat_binaries.selection import select_ptx as select_ptx
