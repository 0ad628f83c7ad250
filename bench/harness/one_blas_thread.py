"""Imported before NumPy by a bench whose threads are its own: NumPy's BLAS gets one.

OpenBLAS and its like read these variables when they are loaded, and never again.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
