"""Work that runs unchecked is reported once, with the reason, beside the findings."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync.driver.extensions import sanitizer
from cudasync.softgpu.core.checks import thread_order, watching

pytestmark = pytest.mark.lazy

# A barrier that a guard restricts to some lanes of a warp: only the plain lowering supports it.
GUARDED = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry guarded(.param .u64 y)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .reg .pred %p;
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p, %r0, 0;
    @%p bar.sync 0;
    ld.param.u64 %rd0, [y];
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r0;
    ret;
}
"""
# Each thread adds to one word behind a fence, and so publishes all accesses that it knows of.
HANDED_ON = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry handed_on(.param .u64 y)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd0;
    ld.param.u64 %rd0, [y];
    membar.gl;
    atom.global.add.u32 %r0, [%rd0], 1;
    membar.gl;
    st.global.u32 [%rd0+4], 7;
    ret;
}
"""


def report_of(text, name, kinds, grid=1):
    y = cs.DeviceBuffer(4096)
    kernel = cs.Module.from_ptx(text).kernel(name)
    sanitizer.begin(kinds)
    try:
        cs.memset_async(y, 0)
        cs.launch(kernel, grid=grid, block=32, args=(np.uint64(y.ptr),))
        cs.launch(kernel, grid=grid, block=32, args=(np.uint64(y.ptr),))
        cs.Device(0).synchronize()
        return sanitizer.report()
    finally:
        sanitizer.end()


def test_a_kernel_of_the_plain_lowering_is_said_not_to_be_checked(capfd):
    report = report_of(GUARDED, "guarded", ["race", "sync"])
    (told,) = report["not_checked"]
    assert told.startswith("race, sync of kernel guarded: ")
    assert "plain lowering" in told
    assert "not checked: 1" in report["summary"]
    assert capfd.readouterr().err.count("not checked: race, sync of kernel guarded") == 1


def test_nothing_is_said_where_it_is_not_to_be_checked_anyway():
    assert report_of(GUARDED, "guarded", ["mem"])["not_checked"] == []


def test_a_kernel_that_is_checked_is_not_said_not_to_be(capfd):
    report = report_of(HANDED_ON, "handed_on", ["race", "init", "sync"])
    assert report["not_checked"] == []
    assert "not checked" not in capfd.readouterr().err + report["summary"]


def test_what_was_handed_on_too_often_is_said(monkeypatch):
    monkeypatch.setattr(thread_order, "MOST_TOLD", 0)
    (told,) = report_of(HANDED_ON, "handed_on", ["race"], grid=4)["not_checked"]
    assert told.startswith("race between blocks of kernel handed_on, for the rest of the launch")


def test_memory_beyond_what_is_recorded_is_said(monkeypatch):
    monkeypatch.setattr(watching.LaunchWatching, "most_bytes", 0)
    (told,) = report_of(HANDED_ON, "handed_on", ["race"])["not_checked"]
    assert told.startswith("race of kernel handed_on: more than 0 GiB are allocated")


def test_a_checker_that_passes_over_in_silence_is_found_out(monkeypatch):
    monkeypatch.setattr(watching.LaunchWatching, "_not_checked", lambda *_, **__: "")
    assert report_of(GUARDED, "guarded", ["race", "sync"])["not_checked"] == []


IN_REGISTERS = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry groups(.param .u64 y)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;
    mov.u32 %r0, %tid.x;
    shr.u32 %r1, %r0, 4;
    add.u32 %r1, %r1, 1;
    mov.u32 %r2, 32;
    bar.sync %r1, %r2;
    ret;
}
"""


def test_a_barrier_whose_number_and_count_are_in_registers_is_compiled():
    assert report_of(IN_REGISTERS.replace(", 4;", ", 5;"), "groups", ["race", "sync"]) == {
        "findings": [],
        "suppressed": 0,
        "left_out": 0,
        "not_checked": [],
        "summary": "nothing found",
    }


def test_lanes_of_one_warp_that_name_two_barriers_are_a_finding():
    found = report_of(IN_REGISTERS, "groups", ["sync"])["findings"]
    assert {each["kind"] for each in found} == {"sync"}
    assert "barrier" in found[0]["text"]
