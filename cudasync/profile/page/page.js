// Mouse, keys and search. `#op=NUMBER` in the address selects an op, `#search=WORDS` searches.

const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const canvas = by("tracks"), tooltip = by("tooltip"), search = by("search");
const tracks = new Tracks(canvas, data);
const details = new Details(by("details"), data, select);
let found = [], at = -1;

function select(op) {
  tracks.selected = op;
  if (op === null) details.showTable();
  else details.show(op);
  // The panel may have changed the width.
  if (op !== null) tracks.reveal(op);
  tracks.drawSoon();
}

function find(words) {
  const wanted = words.trim().toLowerCase();
  found = [];
  at = -1;
  if (wanted) {
    data.ops.forEach((op, index) => {
      const text = [op.name, `#${op.number}`, op.kind, op.site, op.place, ...op.nodes, ...op.reads,
        ...op.writes].join("\n").toLowerCase();
      if (text.includes(wanted)) found.push(index);
    });
  }
  tracks.found = wanted ? new Set(found) : null;
  by("count").textContent = wanted ? `${found.length} ${found.length === 1 ? "match" : "matches"}` : "";
  tracks.drawSoon();
}

function step(by_) {
  if (!found.length) return;
  at = at < 0 && by_ < 0 ? found.length - 1 : (at + by_ + found.length) % found.length;
  by("count").textContent = `${at + 1} of ${found.length}`;
  select(found[at]);
}

function point(event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function tell(event) {
  const bar = tracks.barAt(...point(event));
  tooltip.hidden = !bar;
  if (!bar) return;
  const op = data.ops[bar.op], start = said(bar.start), took = said(bar.end - bar.start);
  const name = bar.node ? `${bar.node}, of ${op.name} #${op.number}` : `${op.name} #${op.number}`;
  tooltip.textContent = `${name}\n${op.kind}, started at ${start}, took ${took}\n${op.why}`;
  const { width, height } = tooltip.getBoundingClientRect();
  tooltip.style.left = `${Math.max(0, Math.min(event.clientX + 12, innerWidth - width - 4))}px`;
  const below = event.clientY + 16 + height < innerHeight;
  tooltip.style.top = `${below ? event.clientY + 16 : event.clientY - height - 8}px`;
}

let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  const [x, y] = point(event);
  drag = { x, y, clock: tracks.clockAt(y), moved: 0 };
  tooltip.hidden = true;
});
window.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const [x, y] = point(event);
  drag.moved += Math.abs(x - drag.x) + Math.abs(y - drag.y);
  if (drag.clock) tracks.move(drag.clock, x - drag.x, y - drag.y);
  [drag.x, drag.y] = [x, y];
});
window.addEventListener("pointerup", (event) => {
  // The pointer may move a little during a click.
  const isClick = drag && drag.moved < 5;
  drag = null;
  if (!isClick) return;
  const bar = tracks.barAt(...point(event));
  select(bar ? bar.op : null);
});
window.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("mousemove", (event) => { if (!drag) tell(event); });
canvas.addEventListener("mouseleave", () => { tooltip.hidden = true; });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const [x, y] = point(event), clock = tracks.clockAt(y);
  if (!clock) return;
  // Some mice count in lines or pages, which are larger than pixels.
  const unit = [1, 30, 300][event.deltaMode];
  if (x < NAMES) tracks.move(clock, 0, -event.deltaY * unit);
  else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    tracks.move(clock, -(event.deltaX || event.deltaY) * unit, 0);
  } else tracks.zoom(clock, x, Math.exp(event.deltaY * unit * 0.0015));
  tell(event);
}, { passive: false });

search.addEventListener("input", () => find(search.value));
by("previous").onclick = () => step(-1);
by("following").onclick = () => step(1);
by("whole").onclick = () => tracks.showAll();
by("text").onclick = () => select(null);
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    search.value = "";
    find("");
    select(null);
    canvas.focus();
  } else if (event.key === "Enter" && document.activeElement === search) {
    step(event.shiftKey ? -1 : 1);
  } else if (document.activeElement !== search && !event.ctrlKey && !event.metaKey) key(event);
});

function key(event) {
  const middle = NAMES + tracks.width / 2, shown = tracks.clocks;
  const each = (act) => { shown.forEach(act); event.preventDefault(); };
  if (event.key === "/") { search.focus(); event.preventDefault(); }
  else if (event.key === "0") tracks.showAll();
  else if (event.key === "+" || event.key === "w") each((clock) => tracks.zoom(clock, middle, 0.7));
  else if (event.key === "-" || event.key === "s") each((clock) => tracks.zoom(clock, middle, 1.4));
  else if (event.key === "ArrowLeft" || event.key === "a") each((clock) => tracks.move(clock, 90, 0));
  else if (event.key === "ArrowRight" || event.key === "d") each((clock) => tracks.move(clock, -90, 0));
  else if (event.key === "ArrowUp" && shown.length) tracks.move(shown[0], 0, 2 * ROW);
  else if (event.key === "ArrowDown" && shown.length) tracks.move(shown[0], 0, -2 * ROW);
}

new ResizeObserver(() => tracks.drawSoon()).observe(canvas);
for (const kind of new Set(data.ops.map((op) => op.kind))) {
  const mark = element("i");
  mark.style.background = KINDS[kind] || "#777777";
  const entry = element("span", "", mark, kind);
  entry.className = "kind";
  by("legend").append(entry);
}

function follow() {
  const [name, value] = decodeURIComponent(location.hash.slice(1)).split(/=(.*)/s);
  if (name === "search") find((search.value = value));
  if (name === "op") {
    const index = data.ops.findIndex((op) => op.number === Number(value));
    if (index >= 0) select(index);
  }
}
window.addEventListener("hashchange", follow);
follow();
