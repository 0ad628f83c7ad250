// The panel beside the tracks. It shows names as text, never as HTML.

const MOST = 200;

function element(kind, text, ...children) {
  const made = document.createElement(kind);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

class Details {
  constructor(panel, data, select) {
    this.panel = panel;
    this.data = data;
    this.select = select;
    this.after = new Map();
    data.ops.forEach((op, at) => {
      for (const [on, hazard, over] of op.before) {
        if (!this.after.has(on)) this.after.set(on, []);
        this.after.get(on).push([at, hazard, over]);
      }
    });
    this.showTable();
  }

  showTable() {
    this.panel.className = "wide";
    const hint = "Click an op, or search for one. This panel then shows why the op waited.";
    this.panel.replaceChildren(element("p", hint), element("pre", this.data.table));
  }

  show(at) {
    const op = this.data.ops[at];
    this.panel.className = "";
    // An annotation waits for nothing.
    const why = [element("h3", "why the op started when it did"), this.chain(at)];
    this.panel.replaceChildren(
      element("h2", op.kind === "annotation" ? op.name : `${op.name} #${op.number}`),
      this.facts(op),
      ...(op.kind === "annotation" ? [] : why),
      ...this.list("depends on", op.before.map((each) => this.related(...each))),
      ...this.list("ops that depend on it", (this.after.get(at) || []).map((each) => this.related(...each))),
      ...this.list("reads", op.reads),
      ...this.list("writes", op.writes),
      ...this.list("nodes", op.nodes),
    );
    this.panel.scrollTop = 0;
  }

  facts(op) {
    const made = element("dl");
    const fact = (name, value) => made.append(element("dt", name), element("dd", value));
    fact("kind", op.kind);
    if (op.kind === "annotation") fact("entered at", op.site);
    else {
      fact("pushed at", op.site);
      fact("pushed", `${said(op.queued)}, wall clock`);
    }
    if (op.start === null) {
      fact("times", "none: the op failed, did not run, or its end was not seen");
      return made;
    }
    fact("ran on", op.place);
    fact("started", `${said(op.start)}, ${op.clock}`);
    fact("duration", said(op.duration));
    if (op.bytes) fact("bytes", op.bytes.toLocaleString("en"));
    if (op.copy && op.duration > 0) {
      fact("bandwidth", `${(op.bytes / op.duration / 1e3).toPrecision(3)} GB/s`);
    }
    return made;
  }

  // The reasons of `p.why(op)`, an item for each.
  chain(at) {
    const made = element("ol");
    made.id = "why";
    const seen = new Set();
    for (let op = at; op !== null && !seen.has(op) && seen.size < MOST; op = this.data.ops[op].next) {
      seen.add(op);
      made.append(element("li", "", this.link(op, this.data.ops[op].why)));
    }
    return made;
  }

  related(at, hazard, over) {
    const op = this.data.ops[at];
    return this.link(at, `${op.name} #${op.number}: ${hazard} over ${over}`);
  }

  link(at, text) {
    const made = element("a", text);
    made.href = `#op=${this.data.ops[at].number}`;
    made.onclick = (event) => {
      event.preventDefault();
      this.select(at);
    };
    return made;
  }

  list(title, items) {
    if (!items.length) return [];
    const made = element("ul");
    for (const item of items.slice(0, MOST)) made.append(element("li", "", item));
    if (items.length > MOST) made.append(element("li", `and ${items.length - MOST} more`));
    return [element("h3", title), made];
  }
}
