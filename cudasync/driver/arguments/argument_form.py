"""Floor 1. `Form`: the properties of a memory argument that decide its packing and checks.

Arguments of one form are packed alike and pass the same checks. So each form is one interned
object, and packers compare forms with `is`. Memory of a known form has an attribute `form`.

Arrays in memory that ends with a reset of its device have separate forms for each life of the
device's context. So results cached for one life are never found with arrays of another life, and a
new check refuses arrays of a past life: no check at each use is needed.
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
    """The type of the argument, the dtype of its elements, their gaps, and their device.

    `dtype` is None for plain bytes, and `device` for memory that every device reaches. `has_gaps`
    is True for anything but elements in C order, unless the caller passes strides on purpose.
    `life` is the life of the device's context that the memory ends with, if known.
    """

    kind: type
    dtype: np.dtype[Any] | None
    has_gaps: bool
    device: Device | None
    life: Life | None = None

    def raise_if_over(self) -> None:
        """Raise ClosedError if a reset of its device ended the memory."""
        life = self.life
        if life is not None and life is not self.device.context.token:  # type: ignore[union-attr]
            raise ClosedError(
                f"a reset of {self.device!r} freed the array and its contents: make the array again"
            )


# Forms without a life.
_forms: dict[Key, Form] = {}


def form_for(
    kind: type,
    dtype: np.dtype[Any] | None,
    has_gaps: bool,
    device: Device | None,
    life: Life | None = None,
) -> Form:
    """The interned form with these properties."""
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
    """The key for the packing of `value`: its form, else its type."""
    return form_of(value) or type(value)
