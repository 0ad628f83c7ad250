"""The experiments program: tables, JSON, a picture, and one clear line where it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.repository.checkout import ROOT
from helpers.repository.subprocesses import document, run_module
from PIL import Image

import cudasync.command.experiments
from cudasync.command import main
from cudasync.experiments.catalogue import EXPERIMENTS

DEVICES, SCHEDULER = "CUDASYNC_SOFTGPU_DEVICES", "CUDASYNC_SOFTGPU_SCHEDULER"
SMALL = ("--size", 40, "--repeat", 1)
# The variables count as unset, whatever the tests run under.
UNSET = {DEVICES: "", SCHEDULER: ""}


@pytest.fixture(autouse=True)
def the_scheduler_is_chosen(monkeypatch):
    """Set this process's scheduler, so that the program starts no second process."""
    monkeypatch.setenv(SCHEDULER, os.environ.get(SCHEDULER) or "fifo")
    monkeypatch.setenv(DEVICES, os.environ[DEVICES])


def experiments(*arguments):
    return main(["experiments", *(str(argument) for argument in arguments)])


def test_it_says_what_was_expected_measured_and_right(capsys):
    assert experiments(*SMALL) == 0
    out, err = capsys.readouterr()
    # A busy machine may print a line about a part that takes long.
    assert [line for line in err.splitlines() if not line.endswith(" s so far)")] == []
    for name in EXPERIMENTS:
        assert f"\n{name}: " in out
    assert out.count("  expected ") == out.count("  measured ") == out.count("  results ") == 6
    assert out.count("equal to the serial engine's, bit for bit; NumPy's within") == 6
    assert max(map(len, out.splitlines())) <= 100
    assert "loss " in out


def test_json_is_one_document_with_times_and_traces(capsys):
    assert experiments("copying", *SMALL, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is True
    assert found["left_out"] == []
    assert {"name", "count", "is_software", "why"} == set(found["device"])
    (copying,) = found["experiments"]
    assert list(copying["times"]) == ["compute", "compute, then copy", "copy as ready"]
    assert all(each["device_ms"] > 0 < each["wall_ms"] for each in copying["times"].values())
    kinds = [entry["kind"] for entry in copying["traces"]["copy as ready"]]
    assert kinds.count("kernel") == kinds.count("copy") == 10


def test_a_list_needs_no_device(capsys):
    assert experiments("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*EXPERIMENTS, "training"]


@pytest.mark.parametrize("name", ["a.png", "a.SVG"])
def test_a_picture_shows_both_ways_of_each(tmp_path, name, capsys):
    path = tmp_path / name
    assert experiments("two-gpus", "copying", *SMALL, "--plot", path) == 0
    assert f"wrote {path}" in capsys.readouterr().out
    if name == "a.png":
        with Image.open(path) as image:
            width, height = image.size
            assert width >= 800 <= height
            assert len(image.convert("RGB").getcolors(1 << 24)) > 10
    else:
        text = path.read_text()
        assert text.count("<!-- two-gpus: ") == text.count("<!-- copying: ") == 2
        assert "<!-- copy DtoH -->" in text


def test_the_serial_engine_leaves_nothing_to_draw_and_a_picture_that_says_so(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("CUDASYNC_ENGINE", "serial")
    assert experiments("two-gpus", *SMALL, "--plot", tmp_path / "a.svg") == 0
    assert "no picture: the serial engine keeps no trace" in capsys.readouterr().out
    assert "<!-- nothing was traced -->" in (tmp_path / "a.svg").read_text()


def fails(capsys, *arguments):
    """The one line that the failing program writes to stderr."""
    assert experiments(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("cudasync experiments: ")
    return err


def test_an_unknown_name_is_told_with_those_that_there_are(capsys):
    said = fails(capsys, "two-gpus", "nosuch")
    assert "'nosuch'" in said
    assert ", ".join(EXPERIMENTS) in said


def test_a_picture_that_can_not_be_written_is_one_line(tmp_path, capsys):
    assert "must be one of .png, .svg" in fails(capsys, "--plot", tmp_path / "a.txt")
    assert "there is no folder" in fails(capsys, "--plot", tmp_path / "nosuch" / "a.png")
    (tmp_path / "folder.png").mkdir()
    assert "is a folder" in fails(capsys, "--plot", tmp_path / "folder.png")


@pytest.mark.parametrize(
    "arguments", [["--size", "0"], ["--size", "x"], ["--repeat", "0"], ["--nosuch"], ["--plot"]]
)
def test_wrong_arguments_are_told_with_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        experiments(*arguments)
    assert caught.value.code == 2
    assert "usage: cudasync" in capsys.readouterr().err


def test_a_wrong_result_is_said_and_is_exit_status_1(monkeypatch, capsys):
    right = EXPERIMENTS["two-gpus"]
    wrong = replace(right, reference=lambda x, y: [y @ y] * 10 + [x @ x] * 10)
    monkeypatch.setattr(cudasync.command.experiments, "EXPERIMENTS", {"two-gpus": wrong})
    assert experiments("two-gpus", *SMALL) == 1
    assert "; NOT NumPy's within" in capsys.readouterr().out


def elsewhere(*arguments, **environment):
    return run_module("cudasync", "experiments", *arguments, deadline_s=60, **environment)


def test_one_device_leaves_out_what_needs_two_and_says_what_to_set():
    code, printed = elsewhere(*SMALL, **{DEVICES: "1"})
    assert code == 0
    assert "not run: two-gpus, dag, perceptron: two devices are needed" in printed
    assert printed.rstrip().endswith(f"set {DEVICES}=2")
    code, printed = elsewhere("dag", **{DEVICES: "1"})
    assert code == 2
    assert printed.startswith("cudasync experiments: dag: two devices are needed, found 1")


def test_left_to_itself_it_has_two_devices_and_the_clock_that_each_experiment_needs():
    """One report uses the virtual clock here, and the wall clock in a second process."""
    code, printed = elsewhere("dag", "two-gpus", *SMALL, "--json", **UNSET)
    assert code == 0, printed
    found = document(printed)
    assert found["device"]["count"] == 2
    two_gpus, dag = found["experiments"]
    assert (two_gpus["name"], two_gpus["trace_clock"]) == ("two-gpus", "device clock")
    assert (dag["name"], dag["trace_clock"]) == ("dag", "wall clock")
    assert 0 <= dag["shared"] <= 1
    assert two_gpus["ratio"] == pytest.approx(2.0, rel=1e-3)


def second_process_of(process):
    """The process that `process` has started for the other clock, or None before that."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return next((each for each in children if is_ours(each)), None)


def is_ours(number):
    """True if this is a live process of ours."""
    try:
        return b"cudasync\0experiments" in Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return False


def test_interrupted_it_says_so_in_one_line_and_leaves_no_process():
    command = [sys.executable, "-m", "cudasync", "experiments", "two-gpus", "dag"]
    process = subprocess.Popen(
        [*command, "--size", "40", "--repeat", "1"],
        cwd=ROOT,
        env={**os.environ, **UNSET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while (second := second_process_of(process)) is None:
            assert process.poll() is None
        process.send_signal(2)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "cudasync experiments: interrupted"
    assert not is_ours(second)


def test_without_matplotlib_it_says_what_to_install_and_measures_nothing(tmp_path):
    """Matplotlib cannot be found, in a process that never imported it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'matplotlib':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "cudasync", "experiments", "--plot", str(tmp_path / "a.png")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        'cudasync experiments: a picture needs matplotlib: pip install "cudasync[demo]"\n'
    )
