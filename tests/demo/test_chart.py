"""The timeline chart: fixed width, one row a place, and each op at its place and length."""

from __future__ import annotations

from cudasync.demo.chart import chart
from cudasync.engine.trace import TraceEntry


def entry(name, timeline, start, end, kind="kernel"):
    return TraceEntry(name, timeline, kind, start, end, queued_us=start)


def test_nothing_ran_draws_nothing():
    assert chart([]) == []


def test_ops_stand_where_they_ran():
    lines = chart([entry("blur", "stream 1", 0, 50), entry("sobel", "stream 2", 50, 100)], 60)
    title, first, second, legend = lines
    assert title.startswith("device clock: 100 us")
    assert legend.split() == ["B", "blur", "S", "sobel"]
    row_1, row_2 = first.split()[-1], second.split()[-1]
    assert len(row_1) == len(row_2)
    half = len(row_1) // 2
    assert row_1.startswith("B" * (half - 1))
    assert row_1.endswith("." * (half - 1))
    assert row_2.startswith("." * (half - 1))
    assert row_2.endswith("S" * (half - 1))


def test_device_and_host_have_a_clock_each():
    lines = chart(
        [entry("blur", "stream 1", 5, 6), entry("encode", "worker 0", 9e6, 9.5e6, kind="host")]
    )
    titles = [line for line in lines if "clock" in line]
    assert [title.split(":")[0] for title in titles] == ["device clock", "wall clock"]
    assert "500 ms in all" in titles[1]


def test_what_is_of_one_clock_has_one_axis():
    entries = [entry("blur", "stream 1", 0, 50), entry("encode", "worker 0", 50, 100, kind="host")]
    title, first, second, _ = chart(entries, 60, clock="wall clock")
    assert title.startswith("wall clock: 100 us in all")
    half = len(first.split()[-1]) // 2
    assert first.split()[-1].endswith("." * (half - 1))
    assert second.split()[-1].startswith("." * (half - 1))


def test_no_line_is_wider_than_asked():
    entries = [entry(f"kernel number {n}", f"stream {n % 13}", n, n + 3) for n in range(90)]
    for width in (60, 100, 200):
        assert max(len(line) for line in chart(entries, width)) <= width


def test_rows_are_in_the_order_a_person_counts():
    entries = [entry("k", f"stream {n}", 0, 1) for n in (10, 9, 1)]
    rows = [line.split()[1] for line in chart(entries) if line.startswith("  stream")]
    assert rows == ["1", "9", "10"]


def test_an_op_of_no_length_shows_where_nothing_else_does():
    lines = chart([entry("tiny", "stream 1", 40, 40), entry("long", "stream 1", 60, 100)])
    assert "T" in lines[1].partition("%")[2]


def test_names_with_one_initial_get_different_letters():
    legend = chart([entry(name, "stream 1", 0, 1) for name in ("sobel", "sharp", "stretch")])[-1]
    letters = legend.split()[::2]
    assert len(set(letters)) == 3


def test_memory_ops_are_left_out():
    lines = chart([entry("allocate", "stream 1", 0, 9, "memory"), entry("k", "stream 2", 0, 9)])
    assert not [line for line in lines if "allocate" in line or "stream 1" in line]
