"""Floor 2. The failed step of a batch, for the name that a failure carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver.kernels.launch_sequences import failed_launch
from cudasync.errors import CudaError

if TYPE_CHECKING:
    from cudasync.engine.op import Op, Salvage
    from cudasync.engine.op_classes import DeviceOp


class Steps(tuple[str, ...]):
    """The names of an op's kernels, with their own description of a fault."""

    # See `Op._salvage`.
    salvage: Salvage | None = None

    def said_of(self, error: CudaError) -> str:
        """The kernels that may have caused a sticky error."""
        raise NotImplementedError


def name_to_blame(op: Op, error: BaseException) -> str:
    """The name of `op`, which fails with `error`; for a batch, with the step if it is known.

    It is known if a step raised when it was called or enqueued. The failure of a running kernel
    shows later, at another step's enqueueing: only the device's report may name the step.
    """
    step: str = getattr(op, "_step", "")
    names: Any = getattr(op, "_kernel", "")
    if isinstance(names, tuple):
        index = failed_launch(error)
        if isinstance(error, CudaError) and error.sticky:
            step = names.said_of(error) if isinstance(names, Steps) else reported(names, error)
        elif index is not None:
            step = _words([index], names)
    return f"{op.name}, {step}" if step else op.name


def is_named(op: DeviceOp, error: BaseException) -> bool:
    """True if the device's report of `error` names a kernel that `op` launches."""
    known = op._kernel
    names = known if isinstance(known, tuple) else (known,)
    return any(tells_of(each, error) for each in names)


def declared_as(name: str, index: int) -> str:
    """The name of a step in reports of checked mode."""
    return f"{name} (step {index})"


def reported(names: tuple[str, ...], error: CudaError) -> str:
    """The steps that the report may concern; "" if it names none."""
    steps = range(len(names))
    found = [i for i in steps if f"op '{declared_as(names[i], i)}' " in error.hint]
    return _words(found or [i for i in steps if tells_of(names[i], error)], names)


def _words(indices: list[int], names: tuple[str, ...]) -> str:
    if not indices:
        return ""
    return f"step {' or '.join(map(str, indices))} ({names[indices[0]]})"


def tells_of(kernel: str, error: BaseException) -> bool:
    """True if the device's report of `error` names this kernel."""
    return bool(kernel) and isinstance(error, CudaError) and f"kernel {kernel}," in error.hint
