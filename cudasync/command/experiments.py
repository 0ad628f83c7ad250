"""`experiments`: the measurements of automatic parallelism, as tables and as a picture.

A process has one clock on the software GPU. The virtual clock shows what devices do at once,
however few processors there are. Only the wall clock, of the scheduler `threaded`, shows what the
CPU does beside them. Unless the user chose a scheduler, wall-clock experiments run in a child
process.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.command.arguments import CommandError
from cudasync.command.progress import Progress
from cudasync.driver.probe import chosen
from cudasync.experiments.catalogue import EXPERIMENTS
from cudasync.experiments.clocks import device_clock_is_wall_clock
from cudasync.experiments.exchange import as_json, from_json
from cudasync.experiments.measuring import Measurement, measure
from cudasync.experiments.report import as_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cudasync.experiments.experiment import Experiment

_DEVICES, _SCHEDULER = "CUDASYNC_SOFTGPU_DEVICES", "CUDASYNC_SOFTGPU_SCHEDULER"
_FORMATS = (".png", ".svg", ".pdf")
# Runs only if named, and alone: it needs scikit-learn's data, and uses MPI if installed.
TRAINING = "training"
TITLE = "a perceptron learns handwritten digits: on devices, in stages, in processes"


def start(options: argparse.Namespace) -> int:
    """Run experiments; 0 if all results are right, 1 if not."""
    if options.list:
        titles = {name: each.title for name, each in EXPERIMENTS.items()} | {TRAINING: TITLE}
        width = max(map(len, titles))
        print("\n".join(f"{name:<{width}}  {title}" for name, title in titles.items()))
        return 0
    if TRAINING in options.names:
        return _train(options)
    draw = _drawer(options.plot, "picture")
    wanted = _named(options.names)
    is_ours_to_choose = not os.environ.get(_SCHEDULER)
    _set_up_software_gpu(wanted)
    possible = _possible(wanted, is_picked=bool(options.names))
    found = _measured(possible, options, is_ours_to_choose=is_ours_to_choose)
    if draw is not None:
        try:
            draw(found, options.plot)
        except OSError as error:
            raise CommandError(f"{options.plot}: {error.strerror or error}") from error
    left_out = [each.name for each in wanted if each not in possible]
    if options.json:
        print(json.dumps(_as_json(found, left_out), indent=2))
    else:
        print("\n".join(_as_text(found, left_out, options.plot)))
    return 0 if all(each.is_right for each in found) else 1


def _train(options: argparse.Namespace) -> int:
    """Run `training`, which has a report and a picture of its own."""
    if set(options.names) != {TRAINING}:
        raise CommandError(f"{TRAINING} does not run with other experiments: name it alone")
    from cudasync.command import training

    return training.start(options, _drawer(options.plot, "training.curves"))


def _drawer(path: Path | None, module: str) -> Any:
    """The function that draws the picture; a missing matplotlib is reported before measuring."""
    if path is None:
        return None
    if path.suffix.lower() not in _FORMATS:
        raise CommandError(f"{path}: the suffix of a picture must be one of {', '.join(_FORMATS)}")
    if not path.resolve().parent.is_dir():
        raise CommandError(f"{path}: there is no folder {path.parent}: create it first")
    if path.is_dir():
        raise CommandError(f"{path} is a folder: name a file")
    return importlib.import_module(f"cudasync.experiments.{module}").draw


def _named(names: Sequence[str]) -> list[Experiment]:
    """The experiments with these names, each once; all experiments if no name is given."""
    for name in names:
        if name not in EXPERIMENTS:
            known = ", ".join([*EXPERIMENTS, TRAINING])
            raise CommandError(f"there is no experiment {name!r}: choose from {known}")
    return [each for name, each in EXPERIMENTS.items() if not names or name in names]


def _set_up_software_gpu(wanted: Sequence[Experiment]) -> None:
    """Set the software GPU's devices and scheduler, unless the user has set them."""
    os.environ[_DEVICES] = os.environ.get(_DEVICES) or "2"
    if all(each.clock == "wall" for each in wanted):
        os.environ[_SCHEDULER] = os.environ.get(_SCHEDULER) or "threaded"


def _possible(wanted: Sequence[Experiment], *, is_picked: bool) -> list[Experiment]:
    """The experiments with enough devices. CommandError if a named one lacks them, or all do."""
    count = cs.device_count()
    possible = [each for each in wanted if each.devices <= count]
    lacking = [each.name for each in wanted if each.devices > count]
    if lacking and (is_picked or not possible):
        raise CommandError(f"{', '.join(lacking)}: {_remedy(count)}")
    return possible


def _remedy(count: int) -> str:
    devices = "1 device" if count == 1 else f"{count} devices"
    software = "" if chosen().kind == "soft" else "CUDASYNC_DEVICE=soft "
    return f"two devices are needed, found {devices}: set {software}{_DEVICES}=2"


def _measured(
    wanted: Sequence[Experiment], options: argparse.Namespace, *, is_ours_to_choose: bool
) -> list[Measurement]:
    """The measurements of these experiments, in their order."""
    is_for_child = is_ours_to_choose and not device_clock_is_wall_clock()
    others = [each for each in wanted if each.clock == "wall"] if is_for_child else []
    progress = Progress(is_quiet=False)
    try:
        found = {
            each.name: measure(each, options.size or each.size, options.repeat, progress.say)
            for each in wanted
            if each not in others
        }
    except MemoryError as error:
        raise CommandError("not enough memory: use a smaller --size") from error
    finally:
        progress.close()
    if others:
        found |= _in_a_child(others, options)
    return [found[each.name] for each in wanted]


def _in_a_child(
    wanted: Sequence[Experiment], options: argparse.Namespace
) -> dict[str, Measurement]:
    """The measurements of a child process whose software GPU uses the wall clock."""
    command = [sys.executable, "-m", "cudasync", "experiments", "--json"]
    command += ["--repeat", str(options.repeat)]
    command += ["--size", str(options.size)] if options.size else []
    command += [each.name for each in wanted]
    package = str(Path(cs.__file__).resolve().parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "CUDASYNC_DEVICE": "soft",
        _SCHEDULER: "threaded",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    # In a session of its own: Ctrl-C reaches only this process, which ends the child.
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, _ = child.communicate()
    finally:
        child.kill()
        child.wait()
    if child.returncode not in (0, 1):
        raise CommandError(
            f"the process of the wall-clock experiments ended with status {child.returncode}"
        )
    documents = json.loads(said)["experiments"]
    return {document["name"]: from_json(document) for document in documents}


def _as_text(found: Sequence[Measurement], left_out: Sequence[str], plot: Path | None) -> list[str]:
    device = cs.Device(0)
    count = cs.device_count()
    lines = [f"devices: {count} x {device.name} ({chosen().why})"]
    if device.is_software:
        lines += [
            "These devices share this machine's processors, so the wall clock shows little gain."
        ]
    lines += [""]
    for each in found:
        lines += [*as_text(each), ""]
    if left_out:
        lines += [f"not run: {', '.join(left_out)}: {_remedy(count)}"]
    if plot is not None:
        lines += [f"wrote {plot}"]
    return lines if lines[-1] else lines[:-1]


def _as_json(found: Sequence[Measurement], left_out: Sequence[str]) -> dict[str, Any]:
    device = cs.Device(0)
    return {
        "holds": all(each.is_right for each in found),
        "device": {
            "name": device.name,
            "count": cs.device_count(),
            "is_software": device.is_software,
            "why": chosen().why,
        },
        "experiments": [as_json(each) for each in found],
        "left_out": list(left_out),
    }
