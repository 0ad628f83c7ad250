"use strict";
// The canvas: rows of bars, an axis for each clock. Only what can be seen is drawn.

const KINDS = {
  host: "#4477aa", kernel: "#228833", HtoD: "#ee7733", DtoH: "#aa3377", DtoD: "#ccaa33",
  allocate: "#66aacc", free: "#888888", wait: "#998877", annotation: "#555599",
};
const ROW = 20, HEAD = 34, NAMES = 190;

function said(us) {
  const size = Math.abs(us);
  if (size < 1e3) return `${Number(us.toPrecision(4))} us`;
  if (size < 1e6) return `${Number((us / 1e3).toPrecision(4))} ms`;
  return `${Number((us / 1e6).toPrecision(4))} s`;
}

class Tracks {
  constructor(canvas, data) {
    this.canvas = canvas;
    this.data = data;
    this.top = 0;
    this.selected = null;
    this.found = null;
    this.barOf = new Map();
    this.clocks = [];
    this.rows = data.tracks.map((track) => ({ ...track, bars: [], ends: [] }));
    for (const [track, start, duration, op, node] of data.bars) {
      const bar = { track, start, end: start + duration, op, node };
      this.rows[track].bars.push(bar);
      if (!node) this.barOf.set(op, bar);
    }
    for (const row of this.rows) {
      row.bars.sort((a, b) => a.start - b.start || a.end - b.end);
      // The latest end so far. It only grows, so bisection finds the first visible bar.
      let last = -Infinity;
      for (const bar of row.bars) row.ends.push((last = Math.max(last, bar.end)));
    }
    this.layOut();
    this.showAll();
  }

  layOut() {
    let y = 0;
    for (const name of new Set(this.rows.map((row) => row.clock))) {
      const clock = { name, y, begin: Infinity, end: -Infinity };
      y += HEAD;
      for (const row of this.rows.filter((each) => each.clock === name)) {
        row.y = y;
        row.axis = clock;
        y += ROW;
        for (const bar of row.bars) {
          clock.begin = Math.min(clock.begin, bar.start);
          clock.end = Math.max(clock.end, bar.end);
        }
      }
      clock.last = y;
      y += 8;
      this.clocks.push(clock);
    }
    this.height = y;
  }

  showAll() {
    for (const clock of this.clocks) {
      const span = Math.max(clock.end - clock.begin, 0.01);
      clock.from = clock.begin - span * 0.01;
      clock.to = clock.end + span * 0.01;
    }
    this.top = 0;
    this.drawSoon();
  }

  get width() { return this.canvas.clientWidth - NAMES; }
  x(clock, us) { return NAMES + ((us - clock.from) / (clock.to - clock.from)) * this.width; }
  us(clock, x) { return clock.from + ((x - NAMES) / this.width) * (clock.to - clock.from); }
  clockAt(y) {
    return this.clocks.find((each) => y + this.top < each.last + 8) || this.clocks.at(-1);
  }

  zoom(clock, x, factor) {
    const whole = Math.max(clock.end - clock.begin, 0.01);
    const at = this.us(clock, Math.max(x, NAMES));
    const span = clock.to - clock.from;
    const wanted = Math.min(Math.max(span * factor, 0.005), whole * 4);
    clock.from = at - ((at - clock.from) * wanted) / span;
    clock.to = clock.from + wanted;
    this.drawSoon();
  }

  move(clock, dx, dy) {
    const us = (dx / this.width) * (clock.to - clock.from);
    clock.from -= us;
    clock.to -= us;
    this.top = Math.max(0, Math.min(this.top - dy, this.height - this.canvas.clientHeight));
    this.drawSoon();
  }

  // Make the bar of an op visible, and at least a fortieth of the width long if it has a length.
  reveal(op) {
    const bar = this.barOf.get(op);
    if (!bar) return;
    const row = this.rows[bar.track], clock = row.axis, length = bar.end - bar.start;
    let span = clock.to - clock.from;
    if (length > 0) span = Math.min(Math.max(span, length * 1.2), length * 40);
    if (bar.start < clock.from || bar.end > clock.to || span !== clock.to - clock.from) {
      clock.from = (bar.start + bar.end - span) / 2;
      clock.to = clock.from + span;
    }
    const low = row.y - this.canvas.clientHeight + 2 * ROW;
    this.top = Math.max(0, Math.min(Math.max(this.top, low), row.axis.y, row.y - HEAD));
    this.drawSoon();
  }

  first(row, us) {
    let low = 0, high = row.ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.ends[middle] < us) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The bar under a point, or the nearest bar within three pixels: many bars are thinner.
  barAt(x, y) {
    const row = this.rows.find((each) => y + this.top >= each.y && y + this.top < each.y + ROW);
    if (!row || x < NAMES) return null;
    const at = this.us(row.axis, x), near = this.us(row.axis, x + 3) - at;
    let best = null, least = near;
    for (let i = this.first(row, at - near); i < row.bars.length; i++) {
      const bar = row.bars[i];
      if (bar.start > at + near) break;
      const away = Math.max(bar.start - at, at - bar.end, 0);
      if (away < least || (away === 0 && best === null)) [best, least] = [bar, away];
    }
    return best;
  }

  drawSoon() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => { this.waits = false; this.draw(); });
  }

  draw() {
    const { canvas } = this, scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    this.colour = (name) => style.getPropertyValue(`--${name}`).trim();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = this.colour("paper");
    pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.save();
    pen.translate(0, -this.top);
    for (const clock of this.clocks) this.drawAxis(pen, clock, width);
    this.rows.forEach((row, at) => {
      if (row.y + ROW > this.top && row.y < this.top + height) this.drawRow(pen, row, at, width);
    });
    this.drawChain(pen);
    pen.restore();
  }

  drawAxis(pen, clock, width) {
    pen.fillStyle = this.colour("ink");
    pen.font = "bold 11px system-ui, sans-serif";
    pen.fillText(clock.name, 8, clock.y + HEAD / 2 + 4);
    pen.font = "11px system-ui, sans-serif";
    const least = ((clock.to - clock.from) / this.width) * 90;
    let step = 10 ** Math.floor(Math.log10(least));
    step *= [1, 2, 5, 10].find((times) => step * times >= least) || 10;
    for (let i = Math.ceil(clock.from / step); i * step < clock.to; i++) {
      const x = Math.round(this.x(clock, i * step)) + 0.5;
      pen.strokeStyle = this.colour("line");
      pen.beginPath();
      pen.moveTo(x, clock.y + HEAD - 6);
      pen.lineTo(x, clock.last);
      pen.stroke();
      pen.fillStyle = this.colour("faint");
      // toPrecision would drop digits for a small range far from zero.
      const unit = step >= 1e5 ? ["s", 1e6] : step >= 100 ? ["ms", 1e3] : ["us", 1];
      const digits = Math.max(0, -Math.floor(Math.log10(step / unit[1]) + 1e-9));
      pen.fillText(`${((i * step) / unit[1]).toFixed(digits)} ${unit[0]}`, x + 3, clock.y + HEAD - 12);
    }
  }

  drawRow(pen, row, at, width) {
    if (at % 2) {
      pen.globalAlpha = 0.6;
      pen.fillStyle = this.colour("band");
      pen.fillRect(0, row.y, width, ROW);
      pen.globalAlpha = 1;
    }
    pen.save();
    pen.beginPath();
    pen.rect(NAMES, row.y, width - NAMES, ROW);
    pen.clip();
    let drawn = -Infinity;
    for (let i = this.first(row, row.axis.from); i < row.bars.length; i++) {
      const bar = row.bars[i];
      if (bar.start > row.axis.to) break;
      const x = Math.max(this.x(row.axis, bar.start), NAMES - 5);
      const end = Math.min(this.x(row.axis, bar.end), width + 5);
      const isMarked = bar.op === this.selected || (this.found && this.found.has(bar.op));
      // More bars would not show in a full pixel.
      if (end < drawn && end - x < 1 && !isMarked) continue;
      drawn = Math.floor(end) + 1;
      this.drawBar(pen, row, bar, x, Math.max(end - x, 1));
    }
    pen.restore();
    pen.fillStyle = this.colour("ink");
    pen.save();
    pen.beginPath();
    pen.rect(0, row.y, NAMES - 6, ROW);
    pen.clip();
    pen.fillText(row.name, 16, row.y + ROW / 2);
    pen.restore();
  }

  drawBar(pen, row, bar, x, length) {
    const op = this.data.ops[bar.op], gap = length > 4 ? 0.5 : 0;
    pen.globalAlpha = this.found && !this.found.has(bar.op) ? 0.2 : bar.node ? 0.75 : 1;
    pen.fillStyle = KINDS[op.kind] || "#777777";
    pen.fillRect(x, row.y + 2, length - gap, ROW - 4);
    if (length > 24) {
      pen.save();
      pen.beginPath();
      pen.rect(x, row.y, length - 3, ROW);
      pen.clip();
      pen.fillStyle = "#ffffff";
      pen.fillText(bar.node || op.name, Math.max(x, NAMES) + 4, row.y + ROW / 2);
      pen.restore();
    }
    pen.globalAlpha = 1;
    if (bar.op === this.selected) {
      pen.strokeStyle = this.colour("accent");
      pen.lineWidth = 2;
      pen.strokeRect(x - 1, row.y + 1, length + 2, ROW - 2);
      pen.lineWidth = 1;
    }
  }

  // Lines from each op to the op that waited for it, from the selected op back to a push.
  drawChain(pen) {
    pen.save();
    pen.beginPath();
    pen.rect(NAMES, 0, this.width, this.height);
    pen.clip();
    pen.strokeStyle = this.colour("accent");
    const seen = new Set();
    for (let op = this.selected; op !== null && !seen.has(op); op = this.data.ops[op].next) {
      seen.add(op);
      const to = this.barOf.get(op), from = this.barOf.get(this.data.ops[op].next);
      // Two clocks have no common axis for a line.
      if (!to || !from || this.rows[to.track].axis !== this.rows[from.track].axis) continue;
      const clock = this.rows[to.track].axis;
      const x = this.x(clock, from.end), y = this.rows[from.track].y + ROW / 2;
      const atX = this.x(clock, to.start), atY = this.rows[to.track].y + ROW / 2;
      pen.beginPath();
      pen.moveTo(x, y);
      pen.bezierCurveTo(x + 20, y, atX - 20, atY, atX, atY);
      pen.lineTo(atX - 6, atY - 4);
      pen.moveTo(atX, atY);
      pen.lineTo(atX - 6, atY + 4);
      pen.stroke();
    }
    pen.restore();
  }
}
