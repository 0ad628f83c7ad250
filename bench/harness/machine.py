"""The machine and the versions of a bench run: the facts that a ratio needs beside it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.checkout import ROOT


def facts() -> dict[str, object]:
    """Commit, versions, processor, load and date, as plain values."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "numpy": installed("numpy"),
        "cuda_bindings": installed("cuda-bindings"),
        "llvmlite": installed("llvmlite"),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        # Other work during the run. Above the number of cores, it distorts the medians.
        "load_average": round(os.getloadavg()[0], 2),
    }


def commit() -> str | None:
    """The measured commit, with "+" if the tree had changes; None outside a git checkout."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        done = subprocess.run(command, capture_output=True, check=True, timeout=30, text=True)
        return done.stdout.strip()

    try:
        # The files that compare.py writes do not change what is measured.
        written = (":!bench/results", ":!bench/README.md")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *written)
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu() -> str:
    """The processor's name from the kernel, or else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
