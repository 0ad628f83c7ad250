"""The tower. The plugin's options as one value, which is None if no option is given."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# The software GPU has any number of devices; this many are there for tests of several devices.
SEVERAL = "4"
_MOST = 1000
_FOLDER = ".cudasync/failures"


@dataclass(frozen=True, slots=True)
class Settings:
    """How tests marked `gpu` are run.

    `seeds` is the number of seeds, `explore` the most orders, and `kinds` the checks; 0 and () are
    the defaults. `replay` is "seed=N", "order=..." or empty.
    """

    device: str
    seeds: int
    explore: int
    kinds: tuple[str, ...]
    replay: str
    folder: str


def add_options(parser: pytest.Parser) -> None:
    """The options, and the line of the configuration file that names the folder of failures."""
    group = parser.getgroup("gpu", "tests marked gpu (cudasync)")
    group.addoption(
        "--gpu-device",
        choices=("auto", "soft", "cuda"),
        help="soft: run on the software GPU; cuda: run on a real GPU, skip without one; auto: "
        "prefer a real GPU",
    )
    group.addoption(
        "--gpu-schedules",
        type=_number("--gpu-schedules"),
        default=0,
        metavar="N",
        help="run each test N times, each time with another order of the streams (software GPU)",
    )
    group.addoption(
        "--gpu-explore",
        type=_number("--gpu-explore"),
        nargs="?",
        const=_MOST,
        default=0,
        metavar="MOST",
        help=f"run each test in every order of its commands, at most MOST orders (default: "
        f"{_MOST}); write --gpu-explore=MOST, or put the option after the file names",
    )
    group.addoption(
        "--gpu-check",
        default="",
        metavar="KINDS",
        help="check each test for mem,race,init,sync,leak or some of these (software GPU)",
    )
    group.addoption(
        "--gpu-replay",
        default="",
        metavar="SCHEDULE",
        help="run each test once, in the order that a failure printed: seed=N or order=...",
    )
    parser.addini(
        "gpu_failures", f"folder of failed schedules (default: {_FOLDER})", default=_FOLDER
    )


def settings_of(config: pytest.Config) -> Settings | None:
    """The chosen settings; UsageError for options that exclude each other."""
    option = config.option
    asked = option.gpu_schedules, option.gpu_explore, option.gpu_check, option.gpu_replay
    if option.gpu_device is None and not any(asked):
        return None
    replays_order = option.gpu_replay.startswith("order=")
    if sum(map(bool, (option.gpu_schedules, option.gpu_explore, option.gpu_replay))) > 1:
        raise pytest.UsageError(
            "--gpu-schedules, --gpu-explore and --gpu-replay exclude each other: give one"
        )
    if option.gpu_check and (option.gpu_explore or replays_order):
        raise pytest.UsageError("--gpu-check does not work with --gpu-explore: use --gpu-schedules")
    if option.gpu_replay and not replays_order:
        name, _, seed = option.gpu_replay.partition("=")
        if name != "seed" or not seed.isdecimal():
            raise pytest.UsageError(
                "--gpu-replay takes seed=N or order=...: copy the text that a failure printed"
            )
    kinds = tuple(kind for kind in option.gpu_check.split(",") if kind)
    unknown = sorted(set(kinds) - {"mem", "race", "init", "sync", "leak"})
    if unknown:
        raise pytest.UsageError(
            f"--gpu-check: unknown check {', '.join(unknown)}: choose from mem, race, init, "
            f"sync, leak"
        )
    return Settings(
        option.gpu_device or "",
        option.gpu_schedules,
        option.gpu_explore,
        kinds,
        option.gpu_replay,
        config.getini("gpu_failures"),
    )


def _number(name: str) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise ArgumentTypeError(f"{text!r} is not a number above 0: write {name}=NUMBER")
        return int(text)

    return number
