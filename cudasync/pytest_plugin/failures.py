"""The tower. A folder of failed schedules, which are tried first next time, until they pass.

Each schedule has its own file, so that several processes may add and remove files at once.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Failures:
    """The folder. Files that cannot be written or read are ignored: they only save time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> dict[str, list[str]]:
        """By test, the failed schedules, in a fixed order."""
        found: dict[str, list[str]] = {}
        for path in sorted(self._folder.glob("*.json")):
            try:
                kept = json.loads(path.read_text(encoding="utf-8"))
                found.setdefault(kept["test"], []).append(kept["schedule"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def keep(self, test: str, schedule: str) -> None:
        """Try `schedule` first next time."""
        path = self._path(test, schedule)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"test": test, "schedule": schedule}) + "\n", "utf-8")
        except OSError:
            return

    def forget(self, test: str, schedule: str) -> None:
        """Delete a schedule that passes now."""
        try:
            self._path(test, schedule).unlink(missing_ok=True)
        except OSError:
            return

    def _path(self, test: str, schedule: str) -> Path:
        return self._folder / f"{sha256(f'{test} {schedule}'.encode()).hexdigest()[:16]}.json"
