"""The README is true: its Python blocks run as they stand, its commands are the two promised."""

from __future__ import annotations

import re

import pytest
from helpers.house import ROOT
from helpers.readme import blocks
from helpers.warm import run_warm

import cudasync as cs

PYTHON = [block for block in blocks() if block.language == "python"]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"line_{block.line}")
def test_a_python_block_runs_as_it_stands(block, monkeypatch):
    monkeypatch.chdir(ROOT)
    # The blank lines put the block where it stands in the file, so that a traceback points there.
    text = "\n" * (block.line - 1) + block.text
    with cs.Engine():  # The block's own current engine: what another test left behind is not its.
        run(text)


def run(text):
    exec(compile(text, str(ROOT / "README.md"), "exec"), {"__name__": "__main__"})


BY_HAND = PYTHON[0]
NOT_TO_FORGET = [line for line in BY_HAND.text.splitlines() if "this: " in line]


def outcome(text, scheduler):
    """What the block's last line says in a process of its own on the software GPU."""
    environment = {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_SCHEDULER": scheduler}
    done = run_warm(text, 60, **environment)
    return done.err.strip().rpartition("\n")[2] or "right"


@pytest.mark.parametrize("line", NOT_TO_FORGET)
def test_some_schedule_shows_that_a_line_was_forgotten(line):
    """What the block's comments warn of does happen, under a schedule that can be named again."""
    forgotten = BY_HAND.text.replace(line, "")
    # In the order in which they are likely to show it: each try is a process of its own.
    schedules = ["fifo", *(f"seed={number}" for number in (5, 6, 7, 8, 9, 1, 2, 3, 4))]
    shown = next((one for one in schedules if outcome(forgotten, one) == "AssertionError"), None)
    assert shown is not None
    assert outcome(BY_HAND.text, shown) == "right"


def test_three_lines_are_not_to_be_forgotten():
    assert len(NOT_TO_FORGET) == 3


def test_the_two_commands_stand_before_anything_else():
    first = blocks()[0]
    assert first.line <= 4
    demo, tests = first.text.splitlines()
    for line in (demo, tests):
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install -q '.[")
    assert "[soft,demo]" in demo
    assert demo.endswith("-m cudasync demo")
    assert "[soft,test]" in tests
    assert tests.endswith("-m pytest")


def test_every_name_the_readme_uses_is_public():
    text = (ROOT / "README.md").read_text()
    used = set(re.findall(r"\bcs\.([A-Za-z_]+)", text))
    assert not used - set(cs.__all__)
