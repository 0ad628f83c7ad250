"""Cellar, abi. The whole table of the runtime API: the chapters of its manual, loaded.

Every client of the runtime API (its bindings, CuPy, native programs) takes `entries` from here.
"""

from __future__ import annotations

from cudasync.softgpu.abi.runtime.table import KINDS as KINDS
from cudasync.softgpu.abi.runtime.table import entries as entries
