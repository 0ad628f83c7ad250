"""The demo program: right on every kind of picture, and one clear line where it fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from helpers.arrays.images import gradient, save
from helpers.repository.checkout import ROOT
from helpers.repository.subprocesses import interrupt
from PIL import Image

import cudasync.demo.trial
from cudasync.command import main


@pytest.fixture
def picture(tmp_path):
    return save(Image.fromarray(gradient(61, 17)), tmp_path / "picture.png")


def opened(path):
    with Image.open(path) as image:
        image.load()
        return image


def demo(*arguments):
    return main(["demo", *(str(argument) for argument in arguments)])


def test_it_says_what_it_did_and_writes_the_picture(picture, tmp_path, capsys):
    output = tmp_path / "out.png"
    assert demo("--image", picture, "--output", output) == 0
    said = capsys.readouterr()
    # On a busy machine a part may take so long that a line names it.
    assert re.sub(r".* \(\d+ s so far\)\n", "", said.err) == ""
    for word in ("device", "ops", "streams", "waits elided", "bit for bit", "NumPy", "out.png"):
        assert word in said.out
    assert "device clock" in said.out
    assert "wall clock" in said.out
    assert max(len(line) for line in said.out.splitlines()[5:]) <= 100
    assert opened(output).size == (61, 17)


def test_the_default_is_the_sample_photo_and_a_file_in_this_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert demo("--size", 24) == 0
    assert "grace_hopper.jpg, 20 x 24" in capsys.readouterr().out
    # The picture shows before and after, with a white line between them.
    both = np.asarray(opened(tmp_path / "enhanced.png"))
    assert both.shape[:2] == (24, 41)
    assert (both[:, 20] == 255).all()
    assert (both[:, :20] != both[:, 21:]).any()
    assert demo("--size", 24, "--output", tmp_path / "after.png") == 0
    assert (np.asarray(opened(tmp_path / "after.png")) == both[:, 21:]).all()


def test_json_holds_what_a_program_wants_to_know(picture, tmp_path, capsys):
    assert demo("--image", picture, "--output", tmp_path / "a.png", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is True
    assert found["serial"] == {"is_equal": True}
    assert found["reference"]["is_within_tolerance"] is True
    assert found["reference"]["largest_difference"] <= 1
    assert found["image"]["width"] == 61
    assert {"name", "why", "is_software", "compute_capability"} <= set(found["device"])
    assert found["statistics"]["ops"] >= len(found["trace"]) > 20
    kinds = [entry["kind"] for entry in found["trace"]]
    assert kinds.count("kernel") >= 12
    assert kinds.count("host") == 2
    assert all(entry["end_us"] >= entry["start_us"] for entry in found["trace"])


def test_the_graph_forks_and_joins(picture, tmp_path, capsys):
    """Blurs and masks run at the same time, on several streams with waits between them."""
    demo("--image", picture, "--output", tmp_path / "a.png", "--json")
    counts = json.loads(capsys.readouterr().out)["statistics"]
    assert counts["streams_used"] > 2
    assert counts["waits"] > 0
    assert counts["waits_elided"] > 0
    assert counts["failed_ops"] == 0


def test_picture_trace_and_page_are_written_when_asked(picture, tmp_path, capsys):
    plot, trace, page = (tmp_path / name for name in ("p.svg", "t.json", "p.html"))
    files = ["--plot", plot, "--trace", trace, "--html", page]
    assert demo("--image", picture, "--output", tmp_path / "a.png", "--repeat", 2, *files) == 0
    said = capsys.readouterr().out
    assert f"\ntrace      {trace}\npage       {page}\npicture    {plot}\n" in said
    names = [each["name"] for each in json.loads(trace.read_text())["traceEvents"]]
    assert names.count("decode") == names.count("encode") == 2
    assert names.count("push a picture") == 2
    assert "gaussian_rows" in page.read_text()
    assert "<!-- MainThread, annotations -->" in plot.read_text()


def test_ops_are_pushed_at_lines_of_the_demo(picture, tmp_path):
    trace = tmp_path / "t.json"
    assert demo("--image", picture, "--output", tmp_path / "a.png", "--trace", trace) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    sites = {each["args"]["push site"] for each in events if "push site" in each.get("args", {})}
    room = os.path.join(ROOT, "cudasync", "demo") + os.sep
    assert len(sites) > 10
    assert [each for each in sites if not each.startswith(room)] == []


@pytest.mark.parametrize(
    ("option", "name", "says"),
    [
        ("--html", "no/page.html", "there is no folder "),
        ("--plot", "picture.xyz", "the suffix of a picture must be one of "),
    ],
)
def test_what_can_not_be_written_is_told_before_anything_runs(
    picture, tmp_path, capsys, option, name, says
):
    output = tmp_path / "a.png"
    assert demo("--image", picture, "--output", output, option, tmp_path / name) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cudasync demo: {tmp_path / name}: {says}")
    assert said.count("\n") == 1
    assert not output.exists()


def test_quiet_prints_nothing(picture, tmp_path, capsys):
    assert demo("--image", picture, "--output", tmp_path / "a.png", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_repeated_it_comes_out_the_same_each_time(picture, tmp_path, capsys):
    assert demo("--image", picture, "--output", tmp_path / "a.png", "--repeat", 3, "--json") == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)["trace"]]
    assert names.count("decode") == names.count("encode") == 3


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (2, 3), (300, 5), (5, 70)])
def test_odd_sizes_hold(tmp_path, size):
    path = save(Image.fromarray(gradient(*size)), tmp_path / "odd.png")
    assert demo("--image", path, "--output", tmp_path / "a.png", "--quiet") == 0
    assert opened(tmp_path / "a.png").size == size


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F"])
def test_modes_hold(tmp_path, mode):
    image = Image.fromarray(gradient(33, 8))
    if mode in ("I;16", "F"):
        levels = np.asarray(image.convert("L")).astype(np.uint16 if mode == "I;16" else np.float32)
        image = Image.fromarray(levels * 200 if mode == "I;16" else levels)
    else:
        image = image.convert(mode)
    path = save(image, tmp_path / "picture.tiff")
    assert demo("--image", path, "--output", tmp_path / "a.jpg", "--quiet") == 0
    assert opened(tmp_path / "a.jpg").size == (33, 8)


@pytest.mark.parametrize("level", [0, 127, 255])
def test_an_even_picture_holds_and_stays(tmp_path, level):
    path = save(Image.new("RGB", (40, 9), (level, level, level)), tmp_path / "even.png")
    assert demo("--image", path, "--output", tmp_path / "a.png", "--quiet") == 0
    assert opened(tmp_path / "a.png").getextrema() == ((level, level),) * 3


def fails(capsys, *arguments):
    """The one line that a failing demo writes to stderr."""
    assert demo(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("cudasync demo: ")
    return said.err


def test_a_missing_file_is_one_line(tmp_path, capsys):
    assert "nosuch.png: No such file" in fails(capsys, "--image", tmp_path / "nosuch.png")


def test_a_file_that_is_no_picture_is_one_line(tmp_path, capsys):
    path = tmp_path / "notes.jpg"
    path.write_text("not a picture\n")
    assert "Pillow cannot read this as a picture" in fails(capsys, "--image", path)


def test_a_picture_cut_short_is_one_line_though_its_header_is_whole(picture, tmp_path, capsys):
    """The decoding op notices on a worker, and its dependents fail with it."""
    noise = np.random.default_rng(1).integers(0, 256, (60, 60, 3), np.uint8)
    path = save(Image.fromarray(noise), tmp_path / "short.jpg")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "short.jpg: " in fails(capsys, "--image", path, "--output", tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()
    # The failure leaves nothing behind: the next picture is enhanced as usual.
    assert demo("--image", picture, "--output", tmp_path / "a.png", "--quiet") == 0


def test_an_output_that_can_not_be_written_is_one_line(picture, tmp_path, capsys):
    output = tmp_path / "nosuch" / "a.png"
    assert "there is no folder" in fails(capsys, "--image", picture, "--output", output)
    output = tmp_path / "a.txt"
    assert "no format" in fails(capsys, "--image", picture, "--output", output)
    (tmp_path / "folder.png").mkdir()
    output = tmp_path / "folder.png"
    assert "is a folder" in fails(capsys, "--image", picture, "--output", output)


@pytest.mark.parametrize(
    "arguments",
    [["--size", "0"], ["--size", "big"], ["--repeat", "0"], ["--nosuch"], ["--image"], ["more"]],
)
def test_wrong_arguments_are_told_with_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        demo(*arguments)
    assert caught.value.code == 2
    assert "usage: cudasync" in capsys.readouterr().err


def test_a_result_that_differs_is_said_and_is_exit_status_1(picture, tmp_path, capsys, monkeypatch):
    """The planted bug is a wrong reference. A demo that cannot fail proves nothing."""
    monkeypatch.setattr(
        cudasync.demo.trial, "enhance_reference", lambda pixels, settings: pixels[::-1]
    )
    assert demo("--image", picture, "--output", tmp_path / "a.png") == 1
    assert "NumPy      DIFFERENT" in capsys.readouterr().out


def in_a_process(*arguments, **options):
    command = [sys.executable, "-m", "cudasync", "demo", *(str(a) for a in arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_interrupted_it_says_so_in_one_line(tmp_path):
    """A named pipe blocks the program at its picture. Once the test can open it, it is blocked."""
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    process = in_a_process("--image", pipe)
    try:
        with pipe.open("wb"):
            interrupt(process)
            out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "cudasync demo: interrupted\n")


def test_without_pillow_it_says_what_to_install(tmp_path):
    """A finder ahead of the real one reports that the module does not exist."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'PIL':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    process = in_a_process(env={**os.environ, "PYTHONPATH": paths})
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "")
    assert err == 'cudasync demo: this this needs Pillow: pip install "cudasync[demo]"\n'
