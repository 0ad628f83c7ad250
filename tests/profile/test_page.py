"""The page contains the profile's data, for any names, and a browser shows it."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest
from helpers.interfaces.browser import MISSING, browser, document

import cudasync as cs
from cudasync.profile.page import page as page_of
from cudasync.profile.record import Record
from cudasync.testing import HostLatch

HOSTILE = "<b>&amp;</script x></script><!--<script>document.title='taken'</script>\u2028\"'{}"

in_browser = pytest.mark.skipif(browser() is None, reason=MISSING)

# A user's actions as events: look at each place until the op is found, then click.
CLICKS = """<script>
const box = canvas.getBoundingClientRect(), wanted = WANTED;
const send = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind,
  { clientX: box.left + x, clientY: box.top + y, bubbles: true }));
const locate = () => {
  for (let y = 4; y < box.height; y += 8) for (let x = 0; x < box.width; x += 2) {
    send("mousemove", x, y);
    if (!tooltip.hidden && tooltip.textContent.startsWith(wanted)) return [x, y];
  }
  return null;
};
const first = locate();
if (first) {
  const [x, y] = first, clock = tracks.clockAt(y), shown = clock.to - clock.from;
  canvas.dispatchEvent(new WheelEvent("wheel",
    { clientX: box.left + x, clientY: box.top + y, deltaY: -200, cancelable: true }));
  document.body.dataset.zoomed = clock.to - clock.from < shown;
  const from = clock.from;
  send("pointerdown", x, y); send("pointermove", x + 40, y); send("pointerup", x + 40, y);
  document.body.dataset.moved = clock.from < from && tracks.selected === null;
  // At the edge of the profile it moves by less than the pointer.
  const [there, line] = locate() || first;
  send("pointerdown", there, line); send("pointerup", there, line);
}
document.body.dataset.clicked = tracks.selected !== null;
</script>"""


@pytest.fixture(scope="module")
def profiled():
    """A profile of a device and a chain over two workers, with hostile names; and its last op."""
    value = cs.Var(HOSTILE)
    with cs.profile() as profile, cs.Engine(workers=2) as engine:
        latch = HostLatch()
        engine.push(latch.wait, writes=value, name=HOSTILE)
        last = engine.push(lambda: sum(range(100_000)), reads=value, name="report")
        latch.release()
        (cs.array(np.ones(1000, np.float32), device=0) + 1).numpy()
    return profile, last


def data_of(text: str) -> dict:
    (found,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL
    )
    # The end of the data, or a comment in it, begins so for a browser.
    assert "<" not in found
    return json.loads(found)


def lines_of(shown: str) -> list[str]:
    """The chain of waits in the document."""
    (chain,) = re.findall(r'<ol id="why">(.*?)</ol>', shown, re.DOTALL)
    return [html.unescape(each) for each in re.findall(r"<a [^>]*>(.*?)</a>", chain, re.DOTALL)]


def test_the_page_has_every_op_and_why_it_waited(profiled, tmp_path):
    profile, last = profiled
    profile.html(tmp_path / "page.html")
    data = data_of((tmp_path / "page.html").read_text())
    assert [each["number"] for each in data["ops"]] == [each.number for each in profile.records]
    assert data["table"] == str(profile)
    at = next(i for i, each in enumerate(data["ops"]) if each["number"] == last.number)
    said = []
    while at is not None:
        said.append(data["ops"][at]["why"])
        at = data["ops"][at]["next"]
    assert said == str(profile.why(last)).split("\n")
    assert len(said) >= 2
    timed = {i for i, each in enumerate(profile.records) if each.has_times}
    assert {op for _, _, _, op, node in data["bars"] if not node} == timed
    copies = [each for each in data["ops"] if each["copy"]]
    assert [each["bytes"] for each in copies] == [4000, 4000]


def test_names_come_into_the_page_as_data_only(profiled, tmp_path):
    profile, _ = profiled
    profile.html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert any(each["name"] == HOSTILE for each in data_of(text)["ops"])
    assert "<b>" not in text
    assert "taken'</script>" not in text


def test_the_page_asks_nobody_for_anything(profiled, tmp_path):
    profile, _ = profiled
    profile.html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|\bsrc=|@import|url\(|<link", text)


def test_nodes_of_graphs_have_tracks_of_their_own(tmp_path):
    x = cs.array(np.ones(100, np.float32), device=0)
    with cs.graph() as recorded:
        y = x + 1
        z = y * 2
    executable = recorded.instantiate()
    with cs.profile(nodes=True) as profile:
        executable.launch()
        cs.waitall()
    profile.html(tmp_path / "page.html")
    data = data_of((tmp_path / "page.html").read_text())
    nodes = [each for each in data["bars"] if each[4]]
    assert [each[4] for each in nodes] == [
        node.name for r in profile.records for node in r.node_times
    ]
    assert all("nodes" in data["tracks"][each[0]]["name"] for each in nodes)
    assert len(nodes) == 2
    assert float(z.numpy()[0]) == 4.0


def test_an_empty_profile_is_a_page_too(tmp_path):
    with cs.profile() as profile:
        pass
    profile.html(tmp_path / "page.html")
    assert data_of((tmp_path / "page.html").read_text())["ops"] == []


@in_browser
def test_a_click_in_a_browser_tells_why_an_op_waited(profiled, tmp_path):
    profile, last = profiled
    page = tmp_path / "page.html"
    profile.html(page)
    clicks = CLICKS.replace("WANTED", json.dumps(f"report #{last.number}"))
    page.write_text(page.read_text().replace("</body>", f"{clicks}</body>"))
    shown = document(page)
    assert "<title>cudasync profile</title>" in shown
    for word in ("zoomed", "moved", "clicked"):
        assert f'data-{word}="true"' in shown
    assert lines_of(shown) == str(profile.why(last)).split("\n")


@in_browser
def test_an_op_and_a_search_in_the_address_are_shown(profiled, tmp_path):
    profile, last = profiled
    page = tmp_path / "page.html"
    profile.html(page)
    assert lines_of(document(page, f"#op={last.number}")) == str(profile.why(last)).split("\n")
    assert ">1 match</output>" in document(page, "#search=Report")


@in_browser
def test_of_very_many_ops_no_more_are_drawn_than_there_are_pixels(tmp_path):
    count = 20_000
    records = [Record(at, "tiny", "host", "here:1", 0.0) for at in range(count)]
    for at, record in enumerate(records):
        record.place, record.issued_us = f"worker {at % 2}", float(at)
        record.start_us, record.found_us = float(at), at + 0.9
        record.end_us = record.found_us
    counts = """<script>
    let bars = 0;
    const draw = tracks.drawBar.bind(tracks);
    tracks.drawBar = (...all) => { bars++; draw(...all); };
    tracks.draw();
    document.body.dataset.bars = `${bars} of ${data.bars.length}`;
    document.body.dataset.places = tracks.width * tracks.rows.length;
    </script>"""
    page = tmp_path / "page.html"
    page.write_text(page_of(records, "").replace("</body>", f"{counts}</body>"))
    shown = document(page)
    bars, of = map(int, re.search(r'data-bars="(\d+) of (\d+)"', shown).groups())
    assert of == count
    assert 0 < bars <= int(re.search(r'data-places="(\d+)"', shown)[1])
