"""Floor 1. The form of a kernel's argument: all that matters of memory but its address.

Arguments of one form are packed alike and pass the same checks, so each form is one object, made
once: what takes arguments compares with `is`. Whatever is memory of a known form has it in `form`.

Arrays whose memory goes with a reset of its device have forms of their own for each life of the
device's context. So what was worked out for one life is never found with arrays of another, and
what works it out anew refuses those that are over: nobody asks at each use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np

    from cudasync.driver.device import Device
    from cudasync.driver.ownership.context_life import Life

    Key: TypeAlias = "tuple[type, np.dtype[Any] | None, bool, Device | None]"


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The type of the argument, that of its elements, whether they have gaps, and where they are.

    `dtype` is None for plain bytes, and `device` for memory that every device reaches. `has_gaps`
    is True for anything but elements in C order, unless the caller says that strides are meant.
    `life` is that of the device's context which the memory ends with, where that is told.
    """

    kind: type
    dtype: np.dtype[Any] | None
    has_gaps: bool
    device: Device | None
    life: Life | None = None

    def raise_if_over(self) -> None:
        """ClosedError if the memory went with a reset of its device."""
        life = self.life
        if life is not None and life is not self.device.context.token:  # type: ignore[union-attr]
            raise ClosedError(
                f"the array went with the reset of {self.device!r}: make it anew, for what it held "
                "is gone"
            )


# Of memory that is told of no life.
_forms: dict[Key, Form] = {}


def form_for(
    kind: type,
    dtype: np.dtype[Any] | None,
    has_gaps: bool,
    device: Device | None,
    life: Life | None = None,
) -> Form:
    """The one form of these properties."""
    key = (kind, dtype, has_gaps, device)
    forms = _forms if life is None else life.forms
    form = forms.get(key)
    if form is None:
        # dict.setdefault is one C call: all threads get the same form.
        form = forms.setdefault(key, Form(kind, dtype, has_gaps, device, life))
    return form


def form_of(value: Any) -> Form | None:
    """The form of `value`; None if it has none."""
    form = getattr(value, "form", None)
    return form if type(form) is Form else None


def kind_of(value: Any) -> Form | type:
    """What decides how `value` is packed: its form, else its type."""
    return form_of(value) or type(value)
