"""Cellar, abi. Runtime API, Device Management: properties of a device."""

from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.marshalling.device_attributes import device_attribute
from cudasync.softgpu.abi.marshalling.pointers import need
from cudasync.softgpu.abi.runtime.table import runtime_function
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Device
    from cudasync.softgpu.core.machine import Machine

# The size of CUDA 13's cudaDeviceProp, which is no smaller than earlier ones.
_PROPERTIES_BYTES: Final = 1008
# By name: the equal attribute of the driver.
_OF_ATTRIBUTES: Final = {
    "sharedMemPerBlock": 8,
    "regsPerBlock": 12,
    "warpSize": 10,
    "memPitch": 11,
    "maxThreadsPerBlock": 1,
    "totalConstMem": 9,
    "major": 75,
    "minor": 76,
    "textureAlignment": 14,
    "texturePitchAlignment": 51,
    "multiProcessorCount": 16,
    "integrated": 18,
    "canMapHostMemory": 19,
    "concurrentKernels": 31,
    "ECCEnabled": 32,
    "pciBusID": 33,
    "pciDeviceID": 34,
    "pciDomainID": 50,
    "tccDriver": 35,
    "asyncEngineCount": 40,
    "unifiedAddressing": 41,
    "memoryBusWidth": 37,
    "l2CacheSize": 38,
    "persistingL2CacheMaxSize": 108,
    "maxThreadsPerMultiProcessor": 39,
    "streamPrioritiesSupported": 78,
    "globalL1CacheSupported": 79,
    "localL1CacheSupported": 80,
    "sharedMemPerMultiprocessor": 81,
    "regsPerMultiprocessor": 82,
    "managedMemory": 83,
    "isMultiGpuBoard": 84,
    "multiGpuBoardGroupID": 85,
    "hostNativeAtomicSupported": 86,
    "pageableMemoryAccess": 88,
    "concurrentManagedAccess": 89,
    "computePreemptionSupported": 90,
    "canUseHostPointerForRegisteredMem": 91,
    "cooperativeLaunch": 95,
    "sharedMemPerBlockOptin": 97,
    "pageableMemoryAccessUsesHostPageTables": 100,
    "directManagedMemAccessFromHost": 101,
    "maxBlocksPerMultiProcessor": 106,
    "accessPolicyMaxWindowSize": 109,
    "reservedSharedMemPerBlock": 111,
    "hostRegisterSupported": 99,
    "sparseCudaArraySupported": 112,
    "hostRegisterReadOnlySupported": 113,
    "timelineSemaphoreInteropSupported": 114,
    "memoryPoolsSupported": 115,
    "gpuDirectRDMASupported": 116,
    "gpuDirectRDMAFlushWritesOptions": 117,
    "gpuDirectRDMAWritesOrdering": 118,
    "memoryPoolSupportedHandleTypes": 119,
    "deferredMappingCudaArraySupported": 121,
    "ipcEventSupported": 125,
    "clusterLaunch": 120,
    "unifiedFunctionPointers": 129,
    # Fields of the bindings before CUDA 13.
    "clockRate": 13,
    "deviceOverlap": 15,
    "kernelExecTimeoutEnabled": 17,
    "computeMode": 20,
    "memoryClockRate": 36,
    "singleToDoublePrecisionPerfRatio": 87,
    "cooperativeMultiDeviceLaunch": 96,
}


def described(device: Device) -> dict[str, Any]:
    """The contents of cudaDeviceProp for a device, by names of fields; arrays are lists."""
    said: dict[str, Any] = {name: _said(device, number) for name, number in _OF_ATTRIBUTES.items()}
    said["totalGlobalMem"] = device.total_bytes
    said["maxThreadsDim"] = [device_attribute(device, number) for number in (2, 3, 4)]
    said["maxGridSize"] = [device_attribute(device, number) for number in (5, 6, 7)]
    said["luidDeviceNodeMask"] = 1
    return said


def luid(device: Device) -> bytes:
    """The locally unique identifier; here it is the ordinal."""
    return device.ordinal.to_bytes(8, "little")


@runtime_function("cudaGetDeviceProperties", "pi", in_context=False)
def cuda_get_device_properties(machine: Machine, properties: int, ordinal: int) -> None:
    device = machine.device(ordinal)
    need(properties, _PROPERTIES_BYTES)
    # The bindings know the layout of the structure in their version.
    runtime: Any = importlib.import_module("cuda.bindings.runtime")
    structure = runtime.cudaDeviceProp(_ptr=properties)
    for name, value in described(device).items():
        if hasattr(structure, name):
            setattr(structure, name, value)
    structure.name = device.name.encode().ljust(256, b"\0")
    structure.luid = luid(device)
    ctypes.memmove(structure.uuid.getPtr(), device.uuid, len(device.uuid))


def _said(device: Device, number: int) -> int:
    try:
        return device_attribute(device, number)
    except DriverFailure:
        return 0  # An attribute that these bindings do not know.
