"""The programs that measure compiling: what they keep, and what they count of files of PTX."""

from __future__ import annotations

import json

from bench.softgpu import compile_times
from bench.suites import ptx_files

KERNEL = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry %s()
{
    .reg .b32 %%r<4>;
    %s
    ret;
}
"""


def kernel(family, size, seconds):
    times = {"text": seconds, "passes": seconds}
    return {"family": family, "size": size, "seconds": times}


def test_a_file_keeps_the_kernels_that_were_not_measured_again(tmp_path):
    file = tmp_path / "times.json"
    compile_times.keep({"kernels": [kernel("loops", 500, 1), kernel("straight", 500, 2)]}, file)
    compile_times.keep({"kernels": [kernel("loops", 500, 3)]}, file)
    kept = json.loads(file.read_text(encoding="utf-8"))["kernels"]
    assert [(each["family"], compile_times.total(each)) for each in kept] == [
        ("straight", 4),
        ("loops", 6),
    ]


def test_a_kernel_above_its_limit_is_found():
    assert compile_times.is_over(kernel("loops", 5000, 2.6))
    assert not compile_times.is_over(kernel("loops", 5000, 2.4))
    assert not compile_times.is_over(kernel("loops", 2000, 99))


def test_files_and_kernels_are_counted_with_what_stopped_them(tmp_path):
    for name, body in (
        ("good", "mov.u32 %r0, 1;"),
        ("refused", "barrier.cluster.arrive;"),
        ("wrong", "no.such.u32 %r0;"),
    ):
        (tmp_path / f"{name}.ptx").write_text(KERNEL % (name, body), encoding="utf-8")
    found = ptx_files.measured(sorted(tmp_path.glob("*.ptx")))
    assert found["counts"] == {"files": 3, "files parsed": 2, "kernels": 2, "kernels lowered": 1}
    assert sum(found["refused"].values()) == sum(found["not parsed"].values()) == 1
    assert "barrier.cluster" in next(iter(found["refused"]))
