"""The libraries for native programs, and a program built with them, once for all tests."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from helpers.driver import nvcc
from helpers.repository.checkout import ROOT


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """A folder that `cudasync native` has written."""
    if shutil.which("cc") is None:
        pytest.skip("no compiler of C")
    folder = tmp_path_factory.mktemp("native") / "libs"
    command = [sys.executable, "-m", "cudasync", "native", "--libs", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def features(libraries):
    """The native program with the parts that show the features."""
    if nvcc.nvcc() is None:
        pytest.skip("no nvcc")
    program = libraries.parent / "features"
    nvcc.build(libraries, nvcc.PROGRAMS / "features.cu", program, "-arch=compute_75", "-lcuda")
    return program
