"""Cellar, core. Fat binaries: the containers of machine code and PTX from `nvcc` and `fatbinary`.

`container.py` reads the entries. `decompression.py` unpacks an entry's payload. `selection.py`
takes the PTX that a device runs. The layout follows CUDA's fatbinary_section.h, and the output of
the public tool `fatbinary` for each of its options.
"""

from __future__ import annotations

from cudasync.softgpu.core.fat_binaries.container import is_container as is_container
from cudasync.softgpu.core.fat_binaries.container import size_of as size_of
from cudasync.softgpu.core.fat_binaries.selection import select_ptx as select_ptx
