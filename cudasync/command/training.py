"""`experiments training`: one perceptron, trained in every way that this machine supports.

`launch` runs the ways with several processes; each process writes its result to a file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.command import mpiexec
from cudasync.command.arguments import CommandError
from cudasync.command.progress import Progress
from cudasync.experiments.training import digits, outcome
from cudasync.experiments.training.model import Settings
from cudasync.experiments.training.outcome import Outcome, Trained
from cudasync.experiments.training.table import as_text
from cudasync.experiments.training.ways import WAYS, Way

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

NAME = "training"
_DEVICES = "CUDASYNC_SOFTGPU_DEVICES"
_LAST_WORDS_S = 15.0


def start(options: argparse.Namespace, draw: Callable[[Outcome, Path], None] | None) -> int:
    """Train in every way; returns 0 if the losses agree as promised, 1 if not."""
    os.environ[_DEVICES] = os.environ.get(_DEVICES) or "2"
    settings = Settings()
    if options.size:
        settings = replace(settings, hidden=options.size)
    try:
        data = digits.load()
    except digits.DataMissing as error:
        raise CommandError(str(error)) from error
    found = train(data, settings)
    if draw is not None:
        try:
            draw(found, options.plot)
        except OSError as error:
            raise CommandError(f"{options.plot}: {error.strerror or error}") from error
    if options.json:
        print(json.dumps({"training": found.as_json(), "holds": found.holds}, indent=2))
    else:
        wrote = [f"wrote {options.plot}"] if draw is not None else []
        print("\n".join([*as_text(found), *wrote]))
    return 0 if found.holds else 1


def train(data: digits.Data, settings: Settings) -> Outcome:
    """Train in every way that this machine supports."""
    left_out = {way.name: why for way in WAYS if (why := _lacking(way))}
    found: list[Trained] = []
    progress = Progress(is_quiet=False)
    try:
        with tempfile.TemporaryDirectory(prefix="cudasync-training-") as folder:
            for way in WAYS:
                if way.name in left_out:
                    continue
                progress.say(f"{NAME}: {way.name}")
                if way.train is not None:
                    is_free = bool(way.servers)
                    found.append(
                        outcome.run(way.name, way.train, data, settings, is_asynchronous=is_free)
                    )
                else:
                    found.append(_in_processes(way, data, settings, Path(folder)))
    finally:
        progress.close()
    reference = outcome.reference(data, settings)
    return Outcome(settings=settings, ways=found, reference=reference, left_out=left_out)


def _lacking(way: Way) -> str:
    """The reason why this machine does not support a way; "" if it does."""
    if way.devices > cs.device_count():
        return f"needs {way.devices} devices, found {cs.device_count()}"
    if not way.processes:
        return ""
    if way.transport == "ray":
        is_there = importlib.util.find_spec("ray") is not None
        return "" if is_there else 'needs Ray: pip install "cudasync[ray]"'
    if importlib.util.find_spec("mpi4py") is None:
        return 'needs mpi4py: pip install "cudasync[mpi]"'
    try:
        mpiexec.find()
    except CommandError as error:
        return str(error)
    return ""


def _in_processes(way: Way, data: digits.Data, settings: Settings, folder: Path) -> Trained:
    """The result of rank 0 of the way's processes."""
    data.save(folder / "digits.npz")
    order = folder / f"{way.name}.json"
    said: dict[str, Any] = {"name": way.name, "data": "digits.npz", "settings": asdict(settings)}
    said |= {"by": way.by, "servers": way.servers, "transport": way.transport}
    order.write_text(json.dumps(said))
    words = [sys.executable, "-m"]
    if way.processes > 1:
        words += ["cudasync", "launch", "-n", str(way.processes), "-m"]
    paths = [str(Path(cs.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    # In a session of its own: Ctrl-C reaches only this process, which ends the launcher.
    child = subprocess.Popen(
        [*words, "cudasync.experiments.training.rank", str(order)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told, _ = child.communicate()
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(_LAST_WORDS_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    if child.returncode:
        last = (told.splitlines() or ["it printed nothing"])[-1]
        raise CommandError(f"{way.name}: its process ended with status {child.returncode}: {last}")
    return Trained(**json.loads(order.with_suffix(".found").read_text()))
