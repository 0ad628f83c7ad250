"""Floor 1, BLAS. NVIDIA's cuBLAS, if it is installed and the device is real."""

from __future__ import annotations

from cudasync.driver.blas.choice import blas_of
from cudasync.driver.blas.gemm import Gemm
from cudasync.driver.blas.handles import Blas

__all__ = ["Blas", "Gemm", "blas_of"]
