"""The README and the pages of the rooms are true: their Python blocks run, from any folder."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING

import pytest
from helpers.repository.checkout import PACKAGE, ROOT
from helpers.repository.fork_server import run_warm
from helpers.repository.readme_blocks import blocks
from helpers.repository.subprocesses import run_text

import cudasync as cs

if TYPE_CHECKING:
    from pathlib import Path

README = ROOT / "README.md"
PAGES = [README, *sorted(PACKAGE.glob("*/README.md"))]
PYTHON = [(page, block) for page in PAGES for block in blocks(page) if block.language == "python"]
# Blocks with CuPy run in their own process, because they choose the driver before CuPy's import.
WITH_CUPY = [block for page in PAGES for block in blocks(page) if block.language == "py"]


def place(part: object) -> str | None:
    if hasattr(part, "relative_to"):
        return part.relative_to(ROOT).as_posix().replace("/", "_")
    return f"line_{part.line}" if hasattr(part, "line") else None


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=place)
def test_a_python_block_runs_as_it_stands(page, block, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    # The blank lines move the block to its line in the file, so that a traceback names that line.
    text = "\n" * (block.line - 1) + block.text
    with cs.Engine():  # The block has its own engine, without other tests' ops.
        exec(compile(text, str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", WITH_CUPY, ids=place)
def test_a_block_with_cupy_runs_where_that_is_installed(block):
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("needs cupy")
    program = f"{block.text}print('over')"
    assert run_text(program, 120, CUDASYNC_DEVICE="soft") == (0, "over\n")


def test_the_tour_has_a_block_with_cupy():
    assert [block for block in WITH_CUPY if "import cupy" in block.text]


BY_HAND = next(block for _, block in PYTHON if "x_is_there" in block.text)
NOT_TO_FORGET = [line for line in BY_HAND.text.splitlines() if "this: " in line]


def outcome(text, scheduler):
    """The last line of the block's errors, or "right", in its own process on the software GPU."""
    environment = {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_SCHEDULER": scheduler}
    done = run_warm(text, 60, **environment)
    return done.err.strip().rpartition("\n")[2] or "right"


@pytest.mark.parametrize("line", NOT_TO_FORGET)
def test_some_schedule_shows_that_a_line_was_forgotten(line):
    """The bug that the block's comments warn of occurs, under a schedule that can be repeated."""
    forgotten = BY_HAND.text.replace(line, "")
    # The likely schedules come first, because each try is a process of its own.
    schedules = ["fifo", *(f"seed={number}" for number in (5, 6, 7, 8, 9, 1, 2, 3, 4))]
    shown = next((one for one in schedules if outcome(forgotten, one) == "AssertionError"), None)
    assert shown is not None
    assert outcome(BY_HAND.text, shown) == "right"


def test_three_lines_are_not_to_be_forgotten():
    assert len(NOT_TO_FORGET) == 3


def test_the_two_commands_are_the_first_block_without_a_language():
    first = next(block for block in blocks() if not block.language)
    # These commands are on the first screen.
    assert first.line <= 40
    demo, tests = first.text.splitlines()
    for line in (demo, tests):
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install -q '.[")
    assert "[soft,demo]" in demo
    assert demo.endswith("-m cudasync demo")
    assert "[soft,test]" in tests
    assert tests.endswith("-m pytest")


def test_the_first_example_is_cuda_c():
    first = next(block for block in blocks() if block.language == "python")
    assert "__global__" in first.text
    assert first.line <= 20


@pytest.mark.parametrize("page", PAGES, ids=place)
def test_every_name_that_a_page_uses_is_public(page):
    used = set(re.findall(r"\bcs\.([A-Za-z_]+)", page.read_text()))
    assert not used - set(cs.__all__)


@pytest.mark.parametrize("page", PAGES, ids=place)
def test_every_link_leads_somewhere(page):
    def target(link: str) -> Path:
        return page.parent / link.partition("#")[0]

    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", prose)
    assert not [link for link in links if "://" not in link and not target(link).exists()]
