"""The libraries for native programs, and the advice that they print on failure."""

from __future__ import annotations

import ctypes
import subprocess

import pytest
from helpers.driver import nvcc
from helpers.driver.fat_binaries import MACHINE_CODE, PTX, container, entry, wrapper

from cudasync.command import main
from cudasync.driver import probe
from cudasync.errors import CudasyncError
from cudasync.softgpu.abi.native import build, names, versions
from cudasync.softgpu.abi.runtime.chapters import entries

TEXT = b".version 9.0\n.target sm_75\n.address_size 64\n"


def symbols(library):
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True
    )
    return {line.split()[-1] for line in done.stdout.splitlines()}


def test_every_function_of_the_table_is_exported_with_its_version(libraries):
    found = symbols(libraries / "libcudart.so.13")
    assert {f"{name}@@libcudart.so.13" for name in entries()} <= found
    for name in ("__cudaRegisterFatBinary", "__cudaPushCallConfiguration", "cudaLaunchKernel_ptsz"):
        assert f"{name}@@libcudart.so.13" in found


def test_the_driver_has_its_names(libraries):
    assert {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel_ptsz"} <= symbols(libraries / "libcuda.so.1")


def test_names_are_listed_once_and_stay_in_order():
    listed = names.runtime_names()
    assert listed == sorted(set(listed))
    assert names.form_of("cudaMemcpy_ptds") == ("cudaMemcpy", True)
    assert names.form_of("cudaMemcpy") == ("cudaMemcpy", False)


def test_the_command_says_how_to_build_and_run(libraries, capsys):
    assert main(["native", "--libs", str(libraries)]) == 0
    said = capsys.readouterr().out
    assert f"nvcc PROGRAM.cu -L {libraries}" in said
    assert f"LD_LIBRARY_PATH={libraries}" in said


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [
        ("_libpython", None, "install Python's shared library"),
        ("_compiler", None, "no C compiler"),
    ],
)
def test_what_is_missing_is_one_line(tmp_path, monkeypatch, capsys, what, value, said):
    if what == "_libpython":
        monkeypatch.setattr(build.sysconfig, "get_config_var", lambda _name: value)
    else:
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setattr(build.shutil, "which", lambda _name: value)
    assert main(["native", "--libs", str(tmp_path / "libs")]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


def test_a_compiler_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CudasyncError, match="false failed to compile lib"):
        probe.write_native_libraries(tmp_path)


def test_bindings_of_another_version_are_refused(monkeypatch):
    monkeypatch.setattr(versions.bindings, "__version__", "12.9.1")
    with pytest.raises(CudasyncError, match=r'pip install "cuda-python==13'):
        versions.check_bindings()


@pytest.mark.parametrize(
    ("kind", "isa", "is_refused"),
    [(PTX, 8, True), (PTX, 9, False), (MACHINE_CODE, 8, False)],
)
def test_a_program_of_an_earlier_compiler_is_refused(kind, isa, is_refused):
    data = container(entry(kind, 80, TEXT, isa=isa))
    image = ctypes.create_string_buffer(data, len(data))
    wrapped = ctypes.create_string_buffer(wrapper(ctypes.addressof(image)), 24)
    places = [ctypes.addressof(wrapped)]
    if not is_refused:
        versions.check_programs(places)
        return
    with pytest.raises(CudasyncError, match="build it with the nvcc of CUDA 13"):
        versions.check_programs(places)


def test_a_missing_libpython_is_one_line(libraries, features, tmp_path):
    for path in libraries.iterdir():
        data = path.read_bytes().replace(b"libpython3", b"nopython3.")
        (tmp_path / path.name).write_bytes(data)
    done = nvcc.run(tmp_path, features, "symbols")
    assert done.returncode == 2
    assert done.stderr.startswith("cudasync native: libpython cannot be loaded; run `python -m")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["static", "shared"])
def test_a_program_linked_with_nvidias_runtime(libraries, features, tmp_path, runtime):
    """NVIDIA's static runtime is refused with advice; ours is loaded in place of the shared one."""
    program = tmp_path / runtime
    command = [*nvcc.nvcc(), f"-cudart={runtime}", "-arch=compute_75"]
    # The driver's library is ours in both cases, because none exists without a GPU.
    command += ["-Xlinker", str(libraries / "libcuda.so.1")]
    source = nvcc.PROGRAMS / "features.cu"
    if subprocess.run([*command, str(source), "-o", str(program)], check=False).returncode:
        pytest.skip("this nvcc has no such library")
    done = nvcc.run(libraries, program, "symbols")
    if runtime == "shared":
        assert (done.stdout, done.returncode) == ("symbols right\n", 0)
        return
    assert done.returncode == 1
    assert "brings a CUDA runtime of its own" in done.stderr
    assert done.stderr.count("cudasync native: ") == 1


@pytest.mark.slow
def test_a_library_that_brings_a_runtime_of_its_own(libraries, features, tmp_path):
    """The program's own kernels are right, and the library is told how to be built."""
    source = nvcc.PROGRAMS / "library_of_kernels.cu"
    program, library = tmp_path / "program", tmp_path / "library.so"
    nvcc.build(libraries, source, program, "-arch=compute_75", "-DPROGRAM")
    command = [*nvcc.nvcc(), "-shared", "-Xcompiler=-fPIC", "-cudart=static", "-arch=compute_75"]
    if subprocess.run([*command, str(source), "-o", str(library)], check=False).returncode:
        pytest.skip("this nvcc has no such library")
    done = nvcc.run(libraries, program, str(library))
    assert done.stdout == "program 5, library -1\n"
    assert "brings a CUDA runtime of its own" in done.stderr
    assert "link it with -L DIR" in done.stderr
    assert done.stderr.count("\n") == 1
    nvcc.build(libraries, source, library, "-shared", "-Xcompiler=-fPIC", "-arch=compute_75")
    done = nvcc.run(libraries, program, str(library))
    assert (done.stdout, done.stderr) == ("program 5, library 7\n", "")


@pytest.mark.slow
def test_a_program_without_ptx_is_told_how_to_embed_some(libraries, features, tmp_path):
    program = tmp_path / "without_ptx"
    source = nvcc.PROGRAMS / "features.cu"
    nvcc.build(libraries, source, program, "-gencode=arch=compute_80,code=sm_80", "-lcuda")
    done = nvcc.run(libraries, program, "symbols")
    assert done.returncode == 1
    assert "machine code for sm_80 only" in done.stderr
    assert "-arch=compute_80" in done.stderr
