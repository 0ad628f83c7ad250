"""Cellar, abi. Runtime API, Stream Ordered Memory Allocator."""

from __future__ import annotations

from cudasync.softgpu.abi.runtime.table import forward

forward(
    """
    cudaFreeAsync pp cuMemFreeAsync
    cudaMallocAsync pzp cuMemAllocAsync
    cudaMallocFromPoolAsync pzpp cuMemAllocFromPoolAsync
    cudaMemGetDefaultMemPool ppi
    cudaMemGetMemPool ppi
    cudaMemPoolCreate pp
    cudaMemPoolDestroy p
    cudaMemPoolGetAccess ppp
    cudaMemPoolGetAttribute pip
    cudaMemPoolSetAccess ppz
    cudaMemPoolSetAttribute pip
    cudaMemPoolTrimTo pz
    cudaMemSetMemPool pip
    """
)
