"""Cellar, core. Selects the PTX of a fat binary that a device runs.

A driver takes the entry for the highest compute capability that the device reaches. Machine code is
skipped. A device without a chosen capability runs any text, so it also takes a later one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import NO_BINARY_FOR_GPU, DriverFailure
from cudasync.softgpu.core.fat_binaries.container import Entry, entries_of
from cudasync.softgpu.core.fat_binaries.decompression import payload_of

if TYPE_CHECKING:
    from cudasync.softgpu.core.driver_types.compute_capability import Capability

_TARGET: Final = re.compile(rb"^\s*\.target\s+(\w+)", re.MULTILINE)


def select_ptx(image: bytes, capability: Capability) -> bytes:
    """The PTX for a device; NO_BINARY_FOR_GPU if there is none.

    INVALID_IMAGE if the container or the selected text is damaged.
    """
    entries = entries_of(image)
    texts = [entry for entry in entries if entry.is_ptx]
    if not texts:
        raise _without_ptx(entries)
    here = 10 * capability.major + capability.minor
    reached = [entry for entry in texts if entry.capability <= here]
    for entry in sorted(reached, key=lambda entry: entry.capability, reverse=True):
        text = _text_of(entry)
        if _runs_on(text, capability):
            return text
    if not capability.is_chosen:
        return _text_of(min(texts, key=lambda entry: entry.capability))
    raise DriverFailure(
        NO_BINARY_FOR_GPU,
        f"the fat binary has PTX for {_list(texts)}, and the device has compute capability "
        f"{capability} (CUDASYNC_SOFTGPU_CC): build with `nvcc -arch=compute_{here}`",
    )


def _text_of(entry: Entry) -> bytes:
    return payload_of(entry).partition(b"\0")[0]


def _runs_on(text: bytes, capability: Capability) -> bool:
    """False for a text for one architecture only, such as `sm_90a`, if the device has another."""
    target = _TARGET.search(text)
    try:
        capability.check_target(target[1].decode() if target else "")
    except DriverFailure:
        return False
    return True


def _without_ptx(entries: list[Entry]) -> DriverFailure:
    codes = [entry for entry in entries if entry.is_machine_code]
    what = f"machine code for {_list(codes)} only" if codes else "no PTX"
    return DriverFailure(
        NO_BINARY_FOR_GPU,
        f"the fat binary has {what}, and the software GPU runs PTX: build with "
        "`nvcc -arch=compute_80`, which embeds PTX",
    )


def _list(entries: list[Entry]) -> str:
    return ", ".join(f"sm_{number}" for number in sorted({each.capability for each in entries}))
