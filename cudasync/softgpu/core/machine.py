"""Cellar. The machine: devices, contexts, and the current context of each thread.

The root of the core. One `Machine` holds everything that a driver call needs. A process with the
software GPU installed has one; a test may make any number.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cudasync import late
from cudasync.errors import PtxError
from cudasync.softgpu.core.context import Context, Device
from cudasync.softgpu.core.driver_types.compute_capability import DEFAULT
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_VALUE,
    UNSUPPORTED_LIMIT,
    DriverFailure,
)
from cudasync.softgpu.core.driver_types.thread_state import PerThread
from cudasync.softgpu.core.graphs.capture_manager import Captures
from cudasync.softgpu.core.green_contexts.current import ContextHandles, ContextStack
from cudasync.softgpu.core.launch.kernel_stop import Deadline
from cudasync.softgpu.core.memory.allocation_table import AllocationTable
from cudasync.softgpu.core.memory.arena import Arena
from cudasync.softgpu.core.memory.copy_manager import TransferManager
from cudasync.softgpu.core.memory.interprocess_handles import InterprocessMemory
from cudasync.softgpu.core.memory.memory_manager import MemoryManager
from cudasync.softgpu.core.memory.memory_pools import PoolManager
from cudasync.softgpu.core.memory.peer_access import ALL, Peers
from cudasync.softgpu.core.memory.quarantine import DEFAULT_HELD_BYTES, AwaitingFrees, Quarantine
from cudasync.softgpu.core.memory.virtual_memory import VirtualMemory
from cudasync.softgpu.core.modules.module_manager import ModuleManager
from cudasync.softgpu.core.scheduling.executor import Executor
from cudasync.softgpu.core.scheduling.interprocess_progress import Progress
from cudasync.softgpu.core.scheduling.scheduler import THREADED, make_scheduler
from cudasync.softgpu.core.streams.host_functions import HostFunctions
from cudasync.softgpu.core.streams.stream_manager import StreamManager
from cudasync.softgpu.interface import DEFAULT_BUDGET

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.core.checks.session import Check
    from cudasync.softgpu.core.driver_types.compute_capability import Capability
    from cudasync.softgpu.core.exploration.session import Session
    from cudasync.softgpu.core.graphs.executable_manager import Executables
    from cudasync.softgpu.core.graphs.graph_manager import GraphManager
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext
    from cudasync.softgpu.core.green_contexts.manager import GreenContexts
    from cudasync.softgpu.core.launch.declared_accesses import Expectations
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.memory.managed_memory import Managed
    from cudasync.softgpu.core.textures.manager import ArrayManager
    from cudasync.softgpu.core.textures.object_manager import ObjectManager
    from cudasync.softgpu.core.textures.references import ReferenceManager
    from cudasync.softgpu.interface.launch import Compile, CompiledModule, Find, Found

if TYPE_CHECKING:
    from cudasync.softgpu.core.scheduling import threaded_executor as _threaded
else:
    _threaded = late.Module("cudasync.softgpu.core.scheduling.threaded_executor")

DEFAULT_TOTAL_BYTES: Final = 4 << 30


def no_compiler(
    module: ir.Module,
    *,
    memcheck: bool = True,
    record: bool = False,
    races: bool = False,
    convergence: bool = False,
    reads: bool = True,
    windows: bool = False,
    units: bool = False,
    image: bytes | None = None,
    only: str | None = None,
) -> CompiledModule:
    """The compiler of a machine that loads no modules: refuses every module."""
    settings = f"memcheck={memcheck}, record={record}, races={races}, convergence={convergence}"
    settings += f", reads={reads}, windows={windows}, units={units}, {len(image or b'')} bytes"
    raise PtxError(f"no compiler was given to this machine ({settings})", file=module.file)


def nothing_kept(image: bytes, *, memcheck: bool = True) -> Found | None:
    """The finder of a machine without a disk cache: finds nothing."""


class _MadeLate:
    """A manager that a machine makes, and whose modules are imported, when it is first asked for.

    Making one has no effect outside of it. So threads that ask at once may each make one: all of
    them get the first that was stored. No lock is held, since an import may run any finaliser.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = f"cudasync.softgpu.core.{module}"
        self._class = name

    def __set_name__(self, _owner: type[Machine], name: str) -> None:
        self._name = name

    def __get__(self, machine: Machine | None, _owner: type[Machine]) -> Any:
        if machine is None:
            return self
        made = getattr(import_module(self._module), self._class)(machine)
        found = machine.made.setdefault(self._name, made)
        # The next look-up finds it without this function.
        setattr(machine, self._name, found)
        return found


def _late(module: str, name: str) -> Any:
    return _MadeLate(module, name)


class Machine:
    """All devices of a process, with their contexts and memory."""

    green_contexts: GreenContexts = _late("green_contexts.manager", "GreenContexts")
    arrays: ArrayManager = _late("textures.manager", "ArrayManager")
    objects: ObjectManager = _late("textures.object_manager", "ObjectManager")
    references: ReferenceManager = _late("textures.references", "ReferenceManager")
    graphs: GraphManager = _late("graphs.graph_manager", "GraphManager")
    expectations: Expectations = _late("launch.declared_accesses", "Expectations")
    managed: Managed = _late("memory.managed_memory", "Managed")
    executables: Executables = _late("graphs.executable_manager", "Executables")

    def __init__(
        self,
        *,
        devices: int = 1,
        scheduler: str = "fifo",
        total_bytes: int = DEFAULT_TOTAL_BYTES,
        budget: int = DEFAULT_BUDGET,
        held_bytes: int = DEFAULT_HELD_BYTES,
        memcheck: bool = True,
        record: bool = False,
        peers: str = ALL,
        capability: Capability = DEFAULT,
        compile_module: Compile = no_compiler,
        find_module: Find = nothing_kept,
    ) -> None:
        self.budget = budget
        self.memcheck = memcheck
        self.record = record
        self.is_initialized = False
        # The managers that were asked for, by their names here.
        self.made: dict[str, Any] = {}
        # By allocation: the memory of the texture and surface objects on it, which end with it.
        self.under_objects: dict[Allocation, set[Allocation]] = {}
        self.executor = (
            _threaded.ThreadedExecutor()
            if scheduler == THREADED
            else Executor(make_scheduler(scheduler))
        )
        self.host_functions = HostFunctions(self.executor)
        self.quarantine = quarantine = Quarantine(held_bytes)
        self.awaiting_frees = AwaitingFrees(self.executor, quarantine)
        self.capability = capability
        self.devices = [
            Device(ordinal, total_bytes, quarantine, capability) for ordinal in range(devices)
        ]
        self.host_memory = AllocationTable(Arena(total_bytes, quarantine))
        self.contexts = ContextHandles()
        self.peers = Peers(peers)
        self.pools = PoolManager(self.devices, self.executor, self.peers)
        for device in self.devices:
            self.contexts.add(device.primary.handle, device.primary)
        # The calling thread's stack of contexts; the top one is current.
        self._current: PerThread[ContextStack] = PerThread(ContextStack, {})
        if record:
            self.executor.expectations = self.expectations
        # The active exploration, if there is one.
        self.exploration: Session | None = None
        # The active check, if there is one.
        self.check_under_way: Check | None = None
        self.captures = Captures()
        self.streams = StreamManager(self)
        self.virtual = VirtualMemory(self)
        self.interprocess = InterprocessMemory(self)
        self.progress = Progress(self)
        self.memory = MemoryManager(self)
        self.transfers = TransferManager(self)
        self.modules = ModuleManager(self, compile_module, find_module)

    # Devices and current contexts

    def device(self, ordinal: int) -> Device:
        """The device with this ordinal; DriverFailure INVALID_DEVICE if there is none."""
        if not 0 <= ordinal < len(self.devices):
            raise DriverFailure(INVALID_DEVICE, f"there is no device {ordinal}")
        return self.devices[ordinal]

    def current(self) -> Context | None:
        """The calling thread's context, in any state."""
        stack = self._current.own
        return stack[-1] if stack else None

    def context(self) -> Context:
        """The calling thread's usable context; DriverFailure if there is none."""
        stack = self._current.own
        if not stack:
            raise DriverFailure(INVALID_CONTEXT, "no context is current on this thread")
        context = stack[-1]
        self.check(context)
        return context

    def check(self, context: Context) -> None:
        """Raise the context's fault, or INVALID_CONTEXT if the context is destroyed."""
        if context.error:
            raise context.failure()
        if context.is_destroyed:
            raise DriverFailure(INVALID_CONTEXT, "the context has been destroyed")

    def current_green(self) -> GreenContext | None:
        """The calling thread's green context, if its current context was made from one."""
        stack = self._current.own
        return stack.green.get(len(stack)) if stack.green else None

    def set_current(self, context: Context | None, green: GreenContext | None = None) -> None:
        """Replace the top of the calling thread's stack."""
        stack = self._current.own
        if stack:
            if stack.green:
                stack.green.pop(len(stack), None)
            stack.pop()
        if context is not None:
            self.push(context, green)

    def push(self, context: Context, green: GreenContext | None = None) -> None:
        """Push a context onto the calling thread's stack."""
        stack = self._current.own
        stack.append(context)
        if green is not None:
            stack.green[len(stack)] = green

    def pop(self) -> int:
        """Pop the top context; return its handle."""
        stack = self._current.own
        if not stack:
            raise DriverFailure(INVALID_CONTEXT, "no context is current on this thread")
        green = stack.green.pop(len(stack), None) if stack.green else None
        context = stack.pop()
        return context.handle if green is None else green.context_handle

    # Lifetimes of contexts

    def retain_primary(self, device: Device) -> Context:
        """Add a user of the primary context."""
        with self.executor.lock:
            device.primary_uses += 1
            device.primary.is_destroyed = False
        return device.primary

    def use_primary(self, device: Device) -> Context:
        """The primary context, retained unless it already has a user."""
        with self.executor.lock:
            if not device.primary_uses:
                device.primary_uses = 1
                device.primary.is_destroyed = False
        return device.primary

    def release_primary(self, device: Device) -> None:
        """Remove a user; after the last one the context is reset."""
        with self.executor.lock:
            if not device.primary_uses:
                raise DriverFailure(
                    INVALID_CONTEXT, "the primary context is released more often than retained"
                )
            device.primary_uses -= 1
            is_last = not device.primary_uses
        if is_last:
            self.reset_primary(device)

    def reset_primary(self, device: Device) -> None:
        """Destroy everything in the primary context, and its fault; its users remain."""
        self._clear(device.primary)
        device.primary.revive()
        device.primary.is_destroyed = not device.primary_uses

    def create(self, device: Device, flags: int) -> Context:
        """A new context, made current."""
        context = Context(device, flags=flags)
        self.contexts.add(context.handle, context)
        self.push(context)
        return context

    def destroy(self, context: Context) -> None:
        """Destroy a created context; pop it if it is current on this thread."""
        if context.is_primary:
            raise DriverFailure(
                INVALID_CONTEXT,
                "a primary context is not destroyed: call cuDevicePrimaryCtxRelease",
            )
        self.contexts.remove(context.handle)
        self._clear(context)
        context.is_destroyed = True
        if self.current() is context:
            self.pop()

    def attach(self, context: Context) -> None:
        """cuCtxAttach: add a user."""
        if context.is_primary:
            self.retain_primary(context.device)
        else:
            with self.executor.lock:
                context.attached += 1

    def detach(self, context: Context) -> None:
        """cuCtxDetach: remove a user; the last one destroys the context."""
        if self.current() is not context:
            raise DriverFailure(INVALID_CONTEXT, "the context is not current on this thread")
        if context.is_primary:
            self.release_primary(context.device)
            return
        with self.executor.lock:
            is_last = not context.attached
            context.attached -= not is_last
        if is_last:
            self.destroy(context)

    def _clear(self, context: Context) -> None:
        executor = self.executor
        with Deadline(executor, context):
            executor.finish_nowait([s.tail for s in list(context.streams) if s.tail is not None])
            with executor.lock:
                executor.drop(context)
            executor.settle(context)
        # Resources that graphs held for dropped launches.
        executor.deferred.run()
        self._forget("green_contexts", context)
        self.streams.forget(context)
        self.modules.forget(context)
        for name in ("arrays", "objects", "references"):
            self._forget(name, context)
        self.memory.free_all(context)

    def _forget(self, name: str, context: Context) -> None:
        manager = self.made.get(name)
        if manager is not None:
            manager.forget(context)

    def after_fork(self) -> None:
        """Called in a forked child, in which the other threads and their locks are gone."""
        self.executor.after_fork()

    def stop_kernels(self, device: Device, reason: str) -> None:
        """Stop the kernels that run on a device."""
        for context in self.contexts:
            if context.device is device:
                self.executor.stop_kernels(reason, context)

    def end(self) -> None:
        """Called when the process ends: begin nothing new."""
        self.progress.end()
        self.executor.stop()

    # Limits

    def limit(self, context: Context, which: int) -> int:
        """cuCtxGetLimit; unset limits have the documented defaults."""
        _check_limit(which)
        return context.limits.get(which, _LIMITS[which])

    def set_limit(self, context: Context, which: int, value: int) -> None:
        """cuCtxSetLimit: stores the value for `limit`; the limits have no other effect."""
        _check_limit(which)
        context.limits[which] = value


def _check_limit(which: int) -> None:
    if which in _OTHER_LIMITS:
        raise DriverFailure(
            UNSUPPORTED_LIMIT,
            f"limit {which} is not supported: the software GPU does not model its subject",
        )
    if which not in _LIMITS:
        raise DriverFailure(INVALID_VALUE, f"there is no limit {which}")


# CUlimit: sizes of shared memory, and of memory shared with graphics.
_OTHER_LIMITS: Final = range(7, 11)
# CUlimit: stack size, printf FIFO, malloc heap, device runtime depth and count, L2 fetch, L2 size.
_LIMITS: Final = {0: 1024, 1: 1 << 20, 2: 8 << 20, 3: 2, 4: 2048, 5: 128, 6: 0}
