"""Headless Chromium from the distribution: the content of a page after its script ran."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
MISSING = f"no browser here: none of {', '.join(_NAMES)} is in the PATH"


def browser() -> str | None:
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def document(page: Path, fragment: str = "", deadline_s: float = 120) -> str:
    """The document's HTML after its script, as the browser writes it. `fragment` is appended to the
    address, with its #."""
    program = browser()
    assert program, MISSING
    with tempfile.TemporaryDirectory(prefix="browser") as home:
        done = subprocess.run(
            [
                *(program, "--headless", "--no-sandbox", "--disable-gpu"),
                *("--disable-dev-shm-usage", "--no-first-run"),
                *(f"--user-data-dir={home}", "--window-size=1200,700"),
                *("--dump-dom", f"{page.as_uri()}{fragment}"),
            ],
            capture_output=True,
            timeout=deadline_s,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()
