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
        help="soft: on the software GPU; cuda: on a real one, skipped where there is none; "
        "auto: on a real one if there is one",
    )
    group.addoption(
        "--gpu-schedules",
        type=_number("--gpu-schedules"),
        default=0,
        metavar="N",
        help="run each test under N seeds, each another order of streams (software GPU)",
    )
    group.addoption(
        "--gpu-explore",
        type=_number("--gpu-explore"),
        nargs="?",
        const=_MOST,
        default=0,
        metavar="MOST",
        help=f"run each test in every order of its commands, up to MOST ({_MOST}); "
        "with =MOST, or behind the names of files",
    )
    group.addoption(
        "--gpu-check",
        default="",
        metavar="KINDS",
        help="check each test: mem,race,init,sync,leak or some of them (software GPU)",
    )
    group.addoption(
        "--gpu-replay",
        default="",
        metavar="SCHEDULE",
        help="run once, in the order that a failure has printed: seed=N or order=...",
    )
    parser.addini("gpu_failures", f"folder of schedules that failed ({_FOLDER})", default=_FOLDER)


def settings_of(config: pytest.Config) -> Settings | None:
    """The chosen settings; UsageError for options that exclude each other."""
    option = config.option
    asked = option.gpu_schedules, option.gpu_explore, option.gpu_check, option.gpu_replay
    if option.gpu_device is None and not any(asked):
        return None
    replays_order = option.gpu_replay.startswith("order=")
    if sum(map(bool, (option.gpu_schedules, option.gpu_explore, option.gpu_replay))) > 1:
        raise pytest.UsageError("one of --gpu-schedules, --gpu-explore and --gpu-replay at a time")
    if option.gpu_check and (option.gpu_explore or replays_order):
        raise pytest.UsageError("--gpu-check goes with --gpu-schedules, not with --gpu-explore")
    if option.gpu_replay and not replays_order:
        name, _, seed = option.gpu_replay.partition("=")
        if name != "seed" or not seed.isdecimal():
            raise pytest.UsageError("--gpu-replay takes seed=N or order=..., as a failure printed")
    kinds = tuple(kind for kind in option.gpu_check.split(",") if kind)
    unknown = sorted(set(kinds) - {"mem", "race", "init", "sync", "leak"})
    if unknown:
        raise pytest.UsageError(
            f"--gpu-check: {', '.join(unknown)} is none of mem, race, init, sync, leak"
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
            raise ArgumentTypeError(f"{text!r} is no number above 0: write {name}=NUMBER")
        return int(text)

    return number
