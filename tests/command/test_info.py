"""The info program: what is used and why, what is installed, and how to install what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from helpers.distributed.ranks import lacks_mpi
from helpers.repository.checkout import ROOT

import cudasync as cs
from cudasync.command import info, main, versions
from cudasync.distributed import initialisation, mpi_library


def test_it_names_the_device_and_the_reason(capsys):
    assert main(["info"]) == 0
    said = capsys.readouterr().out
    assert cs.Device(0).name in said
    for word in ("chosen", "device 0", "driver", "python", "numpy", "cuda-python", "[soft]"):
        assert word in said


def test_it_says_whether_launches_are_checked_and_how_far(capsys, monkeypatch):
    monkeypatch.setenv("CUDASYNC_CHECK", "0")
    main(["info"])
    assert "checked mode  off" in capsys.readouterr().out
    monkeypatch.setenv("CUDASYNC_CHECK", "1")
    for can_record, said in ((True, "compared with their declared"), (False, "contradict the PTX")):
        monkeypatch.setattr(info, "can_record", lambda can_record=can_record: can_record)
        main(["info"])
        assert said in capsys.readouterr().out
    monkeypatch.setenv("CUDASYNC_CHECK", "perhaps")
    assert main(["info"]) == 0
    assert "0 or 1" in capsys.readouterr().out


def test_it_says_how_much_memory_is_kept_that_nobody_uses(capsys, monkeypatch):
    for held, said in (((0, 5 << 20), "5 MiB of freed memory"), (None, "driver's memory pools")):
        monkeypatch.setattr(info, "held_by_software", lambda held=held: held)
        main(["info"])
        assert said in capsys.readouterr().out


def test_it_names_what_computes_products(capsys, monkeypatch):
    monkeypatch.setenv("CUDASYNC_CUBLAS", "0")
    main(["info"])
    assert "matmul        own kernels (CUDASYNC_CUBLAS=0)" in capsys.readouterr().out
    monkeypatch.setenv("CUDASYNC_CUBLAS", "/nowhere/libcublas.so")
    assert main(["info"]) == 0
    assert "/nowhere/libcublas.so cannot be loaded" in capsys.readouterr().out


def test_it_says_which_communicators_there_are_and_why_not(capsys, monkeypatch):
    for launcher in initialisation._LAUNCHERS:
        monkeypatch.delenv(launcher, raising=False)
    monkeypatch.setattr(mpi_library, "about", lambda: "Some MPI 7")
    main(["info"])
    said = capsys.readouterr().out
    assert "local ranks   the devices of this process (init() chooses it here)" in said
    assert "mpi ranks     Some MPI 7\n" in said
    monkeypatch.setenv("PMI_SIZE", "2")
    main(["info"])
    assert "mpi ranks     Some MPI 7 (init() chooses it here)" in capsys.readouterr().out


def test_an_mpi_that_is_not_there_or_does_not_load_says_so(monkeypatch):
    monkeypatch.setattr(mpi_library.importlib.util, "find_spec", lambda name: None)
    assert initialisation.available()["mpi"] == (
        False,
        "mpi4py is not installed; pip install 'cudasync[mpi]'",
    )
    monkeypatch.undo()
    monkeypatch.setattr(mpi_library.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(mpi_library, "_ASK", "raise RuntimeError('cannot load MPI library')")
    can, why = initialisation.available()["mpi"]
    assert not can
    assert why.startswith("RuntimeError: cannot load MPI library; load this machine's MPI, or pip")


@pytest.mark.skipif(bool(lacks_mpi()), reason=lacks_mpi())
def test_an_mpi_that_is_there_is_named():
    can, what = initialisation.available()["mpi"]
    assert can
    assert "MPI" in what


def test_json_holds_the_same(capsys):
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] in ("cuda", "soft")
    assert found["why"]
    assert [device["ordinal"] for device in found["devices"]] == list(range(cs.device_count()))
    assert found["packages"]["numpy"]
    assert set(found["extras"]) == {
        *("soft", "arrays", "blas", "mpi", "ray", "nccl", "nvtx", "demo", "test"),
    }


def test_what_is_missing_comes_with_the_line_that_installs_it(capsys, monkeypatch):
    monkeypatch.setattr(versions, "EXTRAS", {**versions.EXTRAS, "demo": ("pillow-nosuch",)})
    main(["info"])
    said = capsys.readouterr().out
    assert 'lacks pillow-nosuch: pip install "cudasync[demo]"' in said


def test_the_extras_are_those_of_the_project():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for name, distributions in versions.EXTRAS.items():
        wanted = [re.match(r"[\w-]+", each)[0] for each in extras[name]]
        # An extra that another extra includes has its own row.
        assert [each for each in wanted if each != "cudasync"] == list(distributions)


def test_with_no_device_at_all_it_says_why_and_is_exit_status_1():
    environment = {**os.environ, "CUDASYNC_DEVICE": "nosuch"}
    done = subprocess.run(
        [sys.executable, "-m", "cudasync", "info"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert "chosen        none: " in done.stdout
    assert "numpy" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("program", [[], ["info"], ["demo"], ["run"]])
def test_help_is_there(program, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*program, "--help"])
    assert caught.value.code == 0
    assert "usage: cudasync" in capsys.readouterr().out


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("cudasync ")


@pytest.mark.parametrize("arguments", [[], ["nosuch"], ["info", "more"]])
def test_anything_else_is_exit_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: cudasync" in capsys.readouterr().err


def test_what_of_cupy_runs_is_said_where_cupy_is_installed(monkeypatch):
    """The listed refusals are those of the software GPU."""
    from cudasync.softgpu.abi.cupy.libraries import REFUSED, REFUSED_AT_CALLS, STOOD_IN_FOR

    installed = {"cupy-cuda13x": "14.2.0"}
    monkeypatch.setattr(info, "version_of", installed.get)
    said = info._cupy("soft")
    assert said.startswith("cupy-cuda13x 14.2.0 runs, with ")
    stood_in, refused = said.lower().split("not supported")
    assert all(name in stood_in for name in STOOD_IN_FOR)
    assert all(name.lower() in refused for name in (REFUSED | REFUSED_AT_CALLS).values())
    assert info._cupy("cuda") == "cupy-cuda13x 14.2.0"
    installed.clear()
    assert info._cupy("soft") is None
