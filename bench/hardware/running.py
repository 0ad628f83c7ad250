"""Runs tasks as processes with deadlines, a few at a time, and ends all that they started.

A task is one command. Its output goes to a file, and the last lines of a failed task are kept.
True throughout:
- a process never outlives its deadline, and nothing that it started outlives the process: every
  child inherits a word in its environment, and whoever has the word is killed;
- a task that the end of its part cuts short is left out, and has not failed;
- what a task writes goes to the scratch folder: caches, bytecode and temporary files included.
"""

from __future__ import annotations

import os
import resource
import secrets
import shlex
import signal
import site
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.checkout import ROOT
from bench.hardware import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.hardware.reading import Outcome

TAIL_LINES = 40
# After its deadline a process has this long to print the stacks of its threads.
_DYING_S = 2.0
_POLL_S = 0.02
_TASK, _RUN = "CUDASYNC_ON_GPU_TASK", "CUDASYNC_ON_GPU_RUN"
# Less time than this starts no process: it would be spent on imports.
LEAST_S = 2.0
# Settings of the user that would change what is tested, or where something is kept.
_NOT_PASSED_ON = (
    *("CUDASYNC_", "HYPOTHESIS_", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST", "CI"),
    *("PYTHONDONTWRITEBYTECODE", "COVERAGE_", "COV_CORE"),
)


@dataclass(frozen=True)
class Task:
    """A command, and how its result is read.

    `command` follows the interpreter. `{result}` in it is the file that `kind` is read from, and
    `{scratch}` a folder of the task's own. `needs` are modules without which it is left out.
    """

    name: str
    command: tuple[str, ...]
    kind: str = reading.PROGRAM
    deadline_s: float = 120.0
    is_alone: bool = False  # no other task runs beside it
    needs: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """What all tasks of a run share."""

    scratch: Path
    is_dry: bool
    processes: int
    # A dry run measures no time, and may have little of a processor.
    patience: float = 1.0

    # In the environment of every process of this run.
    word: str = field(default_factory=partial(secrets.token_hex, 8))

    def end_all(self) -> None:
        """Kill what an interrupt in the middle of a start has left."""
        kill_bearers(f"{_RUN}={self.word}")

    def environment(self) -> dict[str, str]:
        """The environment of a task: this tree, this device, and nothing kept elsewhere."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == "CUDASYNC_CUBLAS" or not name.startswith(_NOT_PASSED_ON)
        }
        folders = {
            "TMPDIR": "tmp",
            "HOME": "home",
            "XDG_CACHE_HOME": "cache",
            "XDG_CONFIG_HOME": "config",
            "PYTHONPYCACHEPREFIX": "bytecode",
            "HYPOTHESIS_STORAGE_DIRECTORY": "hypothesis",
            "CUDASYNC_SOFTGPU_CACHE": "compiled",
            "CUDA_CACHE_PATH": "driver",
            "MPLCONFIGDIR": "matplotlib",
            "CUPY_CACHE_DIR": "cupy",
            "NUMBA_CACHE_DIR": "numba",
            "TORCHINDUCTOR_CACHE_DIR": "torch",
            "TRITON_CACHE_DIR": "triton",
        }
        made = {name: str(self.scratch / folder) for name, folder in folders.items()}
        for folder in made.values():
            # Code is kept in no folder that others may write to.
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            **kept,
            **made,
            # Packages of the user are found without the user's home.
            "PYTHONUSERBASE": site.getuserbase(),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            "CUDASYNC_DEVICE": "soft" if self.is_dry else "cuda",
            # In a dry run as many devices as one usually has.
            **({"CUDASYNC_SOFTGPU_DEVICES": "1"} if self.is_dry else {}),
            # `git status` would refresh the index.
            "GIT_OPTIONAL_LOCKS": "0",
            _RUN: self.word,
        }


class Running:
    """A task under way."""

    def __init__(self, task: Task, setting: Setting, number: int, ends: float) -> None:
        self.task = task
        self.began = time.monotonic()
        # The task's own deadline, or the end of its part if that is nearer.
        deadline_s = task.deadline_s * setting.patience
        self.is_cut = ends < self.began + deadline_s
        self.ends = min(ends, self.began + deadline_s)
        folder = setting.scratch / "tasks" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        self.result, self._log = folder / "result", folder / "log"
        words = {"{result}": str(self.result), "{scratch}": str(folder)}
        self.command = [sys.executable, *(filled(word, words) for word in task.command)]
        if task.kind == reading.TESTS:
            # pytest prints all stacks shortly before the end.
            left = max(1, int(self.ends - self.began) - 5)
            self.command += ["-o", f"faulthandler_timeout={left}"]
        self._word = secrets.token_hex(8)
        self._device = "soft" if setting.is_dry else "cuda"
        environment = {**setting.environment(), **task.environment, _TASK: self._word}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def outcome(self) -> Outcome | None:
        """The outcome, if the task is over or has passed its deadline; else None."""
        status = self._process.poll()
        is_late = status is None and time.monotonic() >= self.ends
        if status is None and not is_late:
            return None
        if is_late:
            self._show_stacks()
        self.kill()
        seconds = time.monotonic() - self.began
        found = reading.outcome_of(
            self.task.kind, self.task.name, self.result, self._process.returncode
        )
        found["seconds"] = round(seconds, 1)
        if is_late and self.is_cut:
            found |= {"state": reading.LEFT_OUT, "why": "no time: cut off at the end of its part"}
        elif is_late:
            found |= {
                "state": reading.FAILED,
                "why": f"still running after {self.ends - self.began:.0f} s",
            }
        if found["state"] == reading.FAILED:
            found["failed"] = max(1, found["failed"])
            found["tail"] = self._tail()
            found["repeat"] = repeating(self.task, found, self._device)
        return found

    def _show_stacks(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING_S)

    def kill(self) -> None:
        """End the process and all that it started. Killing twice is harmless."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # Fork servers, ranks and workers may have begun sessions of their own.
        kill_bearers(f"{_TASK}={self._word}")

    def _tail(self) -> list[str]:
        text = self._log.read_bytes()[-65536:].decode(errors="replace")
        return text.splitlines()[-TAIL_LINES:]


def kill_bearers(word: str) -> None:
    """Kill the processes that have this word in the environment that they began with."""
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile, or be another user's.
        with suppress(OSError):
            if word.encode() in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(name, value)
    return text


def repeating(task: Task, found: Outcome, device: str) -> str:
    """The line that runs a failed task again, from the root of the source tree."""
    settings = {"PYTHONPATH": ".:tests", "CUDASYNC_DEVICE": device, **task.environment}
    told = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
    if task.kind == reading.TESTS:
        words = task.command[2:]
        tests = found["failures"][:5] or [word for word in words if word.endswith(".py")]
        if "--run-slow" in words:
            tests.append("--run-slow")
        if not found["failures"] and "-k" in words:
            tests += ["-k", words[words.index("-k") + 1]]
        return f"{told} python -m pytest {shlex.join(tests)}"
    words = [word for word in task.command if word != "--json" and "{result}" not in word]
    return f"{told} python {shlex.join(filled(word, {'{scratch}': '/tmp'}) for word in words)}"


def run_all(
    tasks: Sequence[Task],
    setting: Setting,
    *,
    ends: float,
    first_number: int = 0,
    told: Callable[[Outcome], None],
) -> None:
    """Run the tasks, in order and a few at a time; `told` hears of each once it is over.

    Tasks that cannot begin before `ends` (by `time.monotonic`) are left out. An interrupt ends the
    tasks under way, and is passed on.
    """
    waiting = list(enumerate(tasks, first_number))
    under_way: list[Running] = []
    try:
        while waiting or under_way:
            while waiting and can_begin(waiting[0][1], under_way, setting.processes):
                number, task = waiting.pop(0)
                if ends - time.monotonic() < LEAST_S:
                    told(reading.left_out(task.name, "no time"))
                    continue
                try:
                    under_way.append(Running(task, setting, number, ends))
                except OSError as error:
                    # No memory for a process, or no place for its files.
                    told(reading.left_out(task.name, f"could not be started: {error}"))
            for each in tuple(under_way):
                found = each.outcome()
                if found is not None:
                    under_way.remove(each)
                    told(found)
            time.sleep(_POLL_S)
    finally:
        for each in under_way:
            each.kill()


def can_begin(task: Task, under_way: Sequence[Running], processes: int) -> bool:
    if any(each.task.is_alone for each in under_way):
        return False
    return len(under_way) < (1 if task.is_alone else processes)


def no_core_files() -> None:
    """A process that is ended by SIGABRT leaves no file in the source tree."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def cores() -> int:
    return len(os.sched_getaffinity(0))


def available_gib() -> float:
    """Memory of the host that programs can have."""
    for line in lines_of(Path("/proc/meminfo")):
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) / 2**20
    return 4.0


def lines_of(path: Path) -> Iterator[str]:
    with suppress(OSError):
        yield from path.read_text(encoding="utf-8").splitlines()
