"""The files of a profile that `trace` and `demo` write: a trace, a page, a picture.

A file that cannot be written is reported before the program runs, which may take hours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cudasync.command.arguments import CommandError

if TYPE_CHECKING:
    from pathlib import Path

    from cudasync.profile import Profile


class Files:
    """The path of each file; None for a file that is not wanted.

    Raises CommandError for a missing folder and for an unknown format of a picture, and
    ModuleNotFoundError for a picture without matplotlib.
    """

    def __init__(self, *, trace: Path | None, page: Path | None, picture: Path | None) -> None:
        for file in filter(None, (trace, page, picture)):
            if not file.resolve().parent.is_dir():
                raise CommandError(f"{file}: there is no folder {file.parent}: create it first")
        if picture is not None:
            _check_picture(picture)
        # Resolved now: the program may change the folder it is in.
        self.trace, self.page, self.picture = (
            None if file is None else file.resolve() for file in (trace, page, picture)
        )

    @property
    def all(self) -> dict[str, Path]:
        """The wanted files, by kind."""
        named = {"trace": self.trace, "page": self.page, "picture": self.picture}
        return {kind: file for kind, file in named.items() if file is not None}

    def write(self, profile: Profile) -> None:
        """Write the files. Raises CommandError if the system refuses one."""
        write = {"trace": profile.save, "page": profile.html, "picture": profile.plot}
        for kind, file in self.all.items():
            try:
                write[kind](file)
            except OSError as error:
                raise CommandError(f"{file}: {error.strerror}") from error


def _check_picture(file: Path) -> None:
    known = importlib.import_module("matplotlib.figure").FigureCanvasBase.filetypes
    if file.suffix and file.suffix[1:].lower() not in known:
        raise CommandError(
            f"{file}: the suffix of a picture must be one of {', '.join(sorted(known))}"
        )
