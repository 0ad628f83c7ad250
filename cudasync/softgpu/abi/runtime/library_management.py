"""Cellar, abi. Runtime API, Library Management."""

from __future__ import annotations

from cudasync.softgpu.abi.runtime.table import forward

forward(
    """
    cudaLibraryEnumerateKernels pup
    cudaLibraryGetGlobal pppp
    cudaLibraryGetKernel ppp
    cudaLibraryGetKernelCount pp
    cudaLibraryLoadData ppppuppu
    cudaLibraryLoadFromFile ppppuppu
    cudaLibraryUnload p
    """
)
