"""Limits NumPy's BLAS to one thread, for benches with their own threads; imported before NumPy.

OpenBLAS and similar libraries read these variables only when they are loaded.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
