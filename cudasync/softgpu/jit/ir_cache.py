"""Cellar, jit. The LLVM text of a kernel and its properties, lowered or found on disk.

Lowering a kernel takes 5 to 40 ms, and the lowering must be loaded first. So texts are kept on disk
like machine code (see `disk_cache`). The key consists of the PTX, the variant, the settings, and
the names, sizes and times of the compiler's own files. Only PTX that was lowered once has a kept
text, so PTX that cannot run is refused as always.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import zlib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.kernel_text import KernelText, Nontemporal, Traits
from cudasync.softgpu.jit.machine_code import disk_cache

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.jit.findings import Findings
    from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
    from cudasync.softgpu.jit.transforms.program import Program

# The rooms of the software GPU with files that determine the text.
_COMPILING = ("interface", "semantics", "expansion", "jit")


def _compiler() -> str | None:
    """A key for this version of the compiler's files; None if the files cannot be read."""
    package = Path(__file__).parents[2]
    seen = [f"{sys.version_info[:2]} {platform.machine()}"]
    try:
        folders = []
        for room in ("ptx", *(f"softgpu/{each}" for each in _COMPILING)):
            folders += _rooms(package / room)
        for folder in folders:
            for each in os.scandir(folder):
                if each.name.endswith(".py"):
                    about = each.stat()
                    # Some installers give all files one mtime, but nobody can set the ctime.
                    times = f"{about.st_mtime_ns} {about.st_ctime_ns}"
                    seen.append(f"{each.path} {about.st_size} {times}")
    except OSError:
        return None
    return disk_cache.key_of(*sorted(seen))


def _rooms(folder: Path) -> list[Path]:
    """A folder and all folders within it; OSError if one cannot be read."""
    inside = [Path(each) for each in os.scandir(folder) if each.is_dir()]
    rooms = [each for each in inside if each.name != "__pycache__"]
    return [folder, *(part for each in rooms for part in _rooms(each))]


# Computed before the files are loaded: a file that is edited later then matches no key.
_COMPILER = _AT_START = _compiler()


class KernelTexts:
    """The texts of one kernel, by variant."""

    def __init__(
        self, name: str, program: Callable[[], Program], settings: Settings, source: str | None
    ) -> None:
        """`program` returns the program to lower. `source` identifies the PTX; without it,
        nothing is kept on disk."""
        self._name = name
        self._program = program
        self._settings = settings
        self._source = source
        self._found: dict[Variant, KernelText] = {}
        # Results of analyses while lowering; variants share most of them.
        self._findings: Findings | None = None

    def of(self, variant: Variant) -> KernelText:
        """The text of a variant; PtxError for the first instruction that cannot be lowered."""
        found = self._found.get(variant)
        if found is None:
            found = self._found[variant] = self._kept_or_lowered(variant)
        return found

    def _kept_or_lowered(self, variant: Variant) -> KernelText:
        key = self._key(variant)
        record = None if key is None else disk_cache.find(key)
        if record is not None:
            return _text_of(record)
        # Imported late, because this import loads every emitter.
        from cudasync.softgpu.jit.findings import Findings
        from cudasync.softgpu.jit.pipeline import lower

        program = self._program()
        self._findings = self._findings or Findings(program)
        text = lower(program, variant, self._settings, self._findings)
        if key is not None:
            keep(key, _record_of(text))
        return text

    def _key(self, variant: Variant) -> str | None:
        """The key under which a text is kept; None if nothing is kept."""
        source = self._source
        if source is None:
            return None
        return key_of_compiled("text", source, self._name, repr(variant), repr(self._settings))


def key_of_compiled(kind: str, *parts: str) -> str | None:
    """The key for compiler results of this kind; None if nothing is kept."""
    if _COMPILER is None or disk_cache.folder() is None:
        return None
    return disk_cache.key_of(kind, _COMPILER, *parts)


def keep(key: str, record: bytes) -> None:
    """Keep a result of the compiler, unless its files have changed since this process began.

    The emitters are loaded late. After an edit or an upgrade they are the new ones, and would leave
    their results under the name of the old, for processes with the old code around them.
    """
    if _compiler() == _AT_START:
        disk_cache.keep(key, record)


def _record_of(text: KernelText) -> bytes:
    parts = {each.name: getattr(text, each.name) for each in fields(text)}
    far = text.traits.nontemporal
    parts["traits"] = [
        text.traits.needs_whole_warps,
        text.traits.is_order_free,
        None if far is None else [far.bytes_per_thread, far.outputs],
    ]
    return zlib.compress(json.dumps(parts).encode(), 1)


def _text_of(record: bytes) -> KernelText:
    parts = json.loads(zlib.decompress(record))
    needs_whole_warps, is_order_free, far = parts.pop("traits")
    nontemporal = None if far is None else Nontemporal(far[0], tuple(far[1]))
    return KernelText(**parts, traits=Traits(needs_whole_warps, is_order_free, nontemporal))
