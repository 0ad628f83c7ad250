"""Floor 1. `Device`: a CUDA device with its attributes and its primary context.

`Device(n)` is one object per ordinal, so devices compare and hash by identity. The driver is asked
only when a value is needed, and once for each attribute.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda.bindings import driver

from cudasync.driver.context import Context, context_of
from cudasync.driver.memory.device_memory import DeviceMemory, memory_of
from cudasync.driver.probe import ensure_driver
from cudasync.driver.result import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    # The type of every public `device=`.
    DeviceLike: TypeAlias = "Device | SupportsIndex"

_devices: dict[int, Device] = {}
# Called before a device is synchronised: a floor above may have work that is not yet enqueued.
ISSUE_FIRST: list[Callable[[], None]] = []


class Device:
    """One CUDA device, by its ordinal.

    Raises ValueError for an ordinal that no device has. Safe to use from any thread: each function
    that needs the device's context makes it current on the calling thread.
    """

    __slots__ = ("_attributes", "_name", "context", "ordinal")

    ordinal: int
    context: Context
    _attributes: dict[str, int]
    _name: str

    def __new__(cls, ordinal: SupportsIndex = 0) -> Device:
        number = operator.index(ordinal)
        known = _devices.get(number)
        if known is not None:
            return known
        count = device_count()
        if not 0 <= number < count:
            raise ValueError(
                f"there is no device {number}: {count} visible, numbered from 0"
                + _more_devices(number, count)
            )
        self = super().__new__(cls)
        self.ordinal = number
        self.context = context_of(number)
        self._attributes = {}
        self._name = ""
        # dict.setdefault is one C call: all threads get the same device.
        return _devices.setdefault(number, self)

    @property
    def name(self) -> str:
        """The device's name (cuDeviceGetName)."""
        if not self._name:
            raw = check(driver.cuDeviceGetName(256, self.ordinal), "cuDeviceGetName")
            self._name = raw.partition(b"\0")[0].decode(errors="replace")
        return self._name

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor, for instance (7, 5)."""
        return (
            self.attribute("COMPUTE_CAPABILITY_MAJOR"),
            self.attribute("COMPUTE_CAPABILITY_MINOR"),
        )

    @property
    def is_software(self) -> bool:
        """True on the software GPU. For users and logs: programs do not need it."""
        return ensure_driver().kind == "soft"

    def attribute(self, name: str) -> int:
        """A device attribute by the end of its CUDA name: "MAX_THREADS_PER_BLOCK".

        Queried once (cuDeviceGetAttribute). Raises ValueError for a name that CUDA does not have.
        """
        value = self._attributes.get(name)
        if value is None:
            key: Any = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
            if key is None:
                raise ValueError(f"CUDA has no device attribute {name!r}")
            ensure_driver()
            value = int(
                check(driver.cuDeviceGetAttribute(key, self.ordinal), "cuDeviceGetAttribute")
            )
            self._attributes[name] = value
        return value

    def use(self) -> None:
        """Make this the current device, and its context current, on the calling thread.

        Calls without a device or stream use the current device. `use` is needed only for these, or
        after another library has switched the thread's context. (cuCtxSetCurrent)
        """
        # Imported here, since that file imports this one.
        from cudasync.driver.streams.current_streams import choose_device

        self.context.enter_anew()
        choose_device(self)

    def synchronize(self) -> None:
        """Block until all work enqueued on the device is done, with the GIL released.

        Raises CudaError for a failure of that work. (cuCtxSynchronize)
        """
        for issue in ISSUE_FIRST:
            issue()
        self.context.synchronize()

    def memory(self) -> DeviceMemory:
        """The bytes that the device has, can allocate, and holds after frees. Never blocks.

        Held bytes are the default pool's reserves (cuMemPoolGetAttribute). On the software GPU they
        are the freed memory that it keeps, of all its devices and of pinned memory together: at
        most CUDASYNC_SOFTGPU_HELD, unless frees have to wait for a stream. (cuMemGetInfo)
        """
        return memory_of(self.context, self.ordinal)

    def reset(self) -> None:
        """End the device's context; the next use begins a new one.

        This closes everything made on the device: streams, events, buffers, modules. Other
        libraries in this process lose their objects too. After a fault (a sticky error), a GPU's
        driver gives this process no new context: the next use raises CudaError, and only a new
        process helps. The software GPU does begin a new one. (cuDevicePrimaryCtxReset)
        """
        self.context.reset()

    def __repr__(self) -> str:
        return f"Device({self.ordinal})"

    def __reduce__(self) -> tuple[type[Device], tuple[int]]:
        return (Device, (self.ordinal,))


def as_device(device: DeviceLike) -> Device:
    """A Device unchanged, or the Device of an ordinal. Raises TypeError for anything else."""
    if isinstance(device, Device):
        return device
    try:
        return Device(device)
    except TypeError:
        kind = type(device).__name__
        # A string is meant as an array's device: only calls for arrays take "cpu".
        also = ' (for an array also "cpu")' if isinstance(device, str) else ""
        raise TypeError(f"device= takes a Device or its ordinal, not {kind}{also}") from None


def _more_devices(wanted: int, count: int) -> str:
    """How a program gets a device that is not there."""
    if count and not Device(0).is_software:
        return "; CUDA_VISIBLE_DEVICES chooses the GPUs of a process"
    if wanted < 0:
        return ""
    return f"; set CUDASYNC_SOFTGPU_DEVICES={wanted + 1} before the program starts"


def device_count() -> int:
    """The number of devices: at least 1, the software GPU if there is no other."""
    ensure_driver()
    return int(check(driver.cuDeviceGetCount(), "cuDeviceGetCount"))


def driver_version() -> tuple[int, int]:
    """The CUDA version that the driver supports, for instance (12, 8). (cuDriverGetVersion)"""
    ensure_driver()
    # 1000 * major + 10 * minor, by the driver API reference.
    version = int(check(driver.cuDriverGetVersion(), "cuDriverGetVersion"))
    return version // 1000, version % 1000 // 10


def highest_priority(device: Device) -> int:
    """The number of stream priorities above the usual one; 0 if all are the same.

    (cuCtxGetStreamPriorityRange)
    """
    device.context.enter_anew()
    code, _, greatest = driver.cuCtxGetStreamPriorityRange()
    return 0 if code else max(0, -greatest)
