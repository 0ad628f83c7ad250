"""Floor 1. The form of a kernel's argument: all that matters of memory but its address.

Arguments of one form are packed alike and pass the same checks, so each form is one object, made
once: what takes arguments compares with `is`. Whatever is memory of a known form has it in `form`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np

    from cudasync.driver.device import Device

    Key: TypeAlias = "tuple[type, np.dtype[Any] | None, bool, Device | None]"


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The type of the argument, that of its elements, whether they have gaps, and where they are.

    `dtype` is None for plain bytes, and `device` for memory that every device reaches. `has_gaps`
    is True for anything but elements in C order, unless the caller says that strides are meant.
    """

    kind: type
    dtype: np.dtype[Any] | None
    has_gaps: bool
    device: Device | None


_forms: dict[Key, Form] = {}


def form_for(
    kind: type, dtype: np.dtype[Any] | None, has_gaps: bool, device: Device | None
) -> Form:
    """The one form of these properties."""
    key = (kind, dtype, has_gaps, device)
    form = _forms.get(key)
    if form is None:
        # dict.setdefault is one C call: all threads get the same form.
        form = _forms.setdefault(key, Form(kind, dtype, has_gaps, device))
    return form


def form_of(value: Any) -> Form | None:
    """The form of `value`; None if it has none."""
    form = getattr(value, "form", None)
    return form if type(form) is Form else None


def kind_of(value: Any) -> Form | type:
    """What decides how `value` is packed: its form, else its type."""
    return form_of(value) or type(value)
