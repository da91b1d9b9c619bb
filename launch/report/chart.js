// Charts over the steps of runs. All share one view (the visible part of the axis) and one cursor.

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// An element of HTML; text becomes text, never markup.
function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") element.style.cssText = value;
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

// A square in the colour of a run, striped if its lines are dashed.
function swatch(colour, dash) {
  return html("i", { class: dash ? "swatch dashed" : "swatch", style: `--colour: ${colour}` });
}

// The name of a run, or of a branch: the steps that a rollback of a run abandoned.
const nameOf = ({ name, branch }) => (branch ? [name && html("bdi", {}, name), name && ", ", branch] : html("bdi", {}, name));

const AXES = {
  step: { title: "step", text: whole, ticks: (low, high, most) => ticks(low, high, most).filter((t) => t === Math.round(t)), tick: tickText },
  tokens: { title: "tokens", text: (v) => count(v, 4), ticks, tick: tickText },
  seconds: { title: "time since the start", text: duration, ticks: timeTicks, tick: timeTick },
};

// View is the visible part of the axis of all charts. Its runs include branches.
class View {
  constructor(runs) {
    this.runs = runs;
    this.axis = "step";
    this.hidden = new Set();
    this.charts = [];
    this.listeners = [];
    this.all();
  }
  extent() {
    let low = Infinity, high = -Infinity;
    for (const run of this.runs) {
      if (this.hidden.has(run)) continue;
      const ends = this.axis === "step" ? [run.figures.first_step, run.figures.last_step] : run.points[this.axis];
      for (const x of ends) if (known(x)) low = Math.min(low, x), high = Math.max(high, x);
    }
    if (!(low <= high)) return [0, 1];
    if (low > 0 && low < 0.02 * high) low = 0;
    return low < high ? [low, high] : [low - 0.5, high + 0.5];
  }
  all() {
    [this.low, this.high] = this.extent();
    this.zoomed = false;
    this.draw();
  }
  show(low, high) {
    const [first, last] = this.extent(), least = (last - first) / 1e5;
    if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
    if (high - low >= last - first) return this.all();
    if (low < first) [low, high] = [first, first + high - low];
    if (high > last) [low, high] = [last - (high - low), last];
    [this.low, this.high, this.zoomed] = [low, high, true];
    this.draw();
  }
  // Zooms by `factor` around x; below 1: zooms in.
  zoom(factor, x = (this.low + this.high) / 2) {
    this.show(x - factor * (x - this.low), x + factor * (this.high - x));
  }
  pan(share) {
    const by = share * (this.high - this.low);
    this.show(this.low + by, this.high + by);
  }
  setAxis(axis) {
    this.axis = axis;
    this.all();
  }
  setHidden(run, hidden) {
    if (hidden) this.hidden.add(run);
    else this.hidden.delete(run);
    if (this.zoomed) this.draw();
    else this.all();
  }
  draw() {
    for (const chart of this.charts) chart.draw();
    for (const listener of this.listeners) listener();
  }
  point(x) {
    for (const chart of this.charts) chart.point(x);
  }
}

// The visible points of a curve, and one on each side, as { x, low, high, mean, gap } per column of
// about a pixel. gap: no line from the previous column.
function columnsOf(points, axis, metric, view, width) {
  const xs = points[axis], means = points[metric];
  const lows = points[metric + "_low"] ?? means, highs = points[metric + "_high"] ?? means;
  const columns = [], scale = width / (view.high - view.low);
  let first = xs.findIndex((x) => known(x) && x >= view.low), gap = false, column, last;
  if (first < 0) first = xs.length;
  for (let i = Math.max(0, first - 1); i < xs.length; ++i) {
    if (!known(xs[i])) continue;
    if (!known(means[i])) {
      gap = true;
      continue;
    }
    const at = Math.floor((xs[i] - view.low) * scale);
    if (column && at === last && !gap) {
      column.low = Math.min(column.low, lows[i]);
      column.high = Math.max(column.high, highs[i]);
      column.mean += (means[i] - column.mean) / ++column.count;
    } else {
      column = { x: xs[i], low: lows[i], high: highs[i], mean: means[i], count: 1, gap };
      columns.push(column);
      [last, gap] = [at, false];
    }
    if (xs[i] > view.high) break;
  }
  return columns;
}

// Replaces each mean by the median of `half` columns on each side, which removes spikes.
function smoothed(columns, half) {
  return columns.map((column, i) => {
    const reach = Math.min(half, i, columns.length - 1 - i);
    const around = columns.slice(i - reach, i + reach + 1).map((c) => c.mean).sort((a, b) => a - b);
    return { ...column, mean: around[reach] };
  });
}

// The range of an axis: all values except for a steep fall at the start (the first fiftieth) and
// outliers.
function rangeOf(groups, fromZero) {
  const lows = [], highs = [];
  for (const columns of groups) {
    const skip = columns.length > 100 ? Math.floor(columns.length / 50) : 0;
    for (const column of columns.slice(skip)) lows.push(column.low), highs.push(column.high);
  }
  if (lows.length === 0) return [0, 1];
  lows.sort((a, b) => a - b);
  highs.sort((a, b) => a - b);
  const most = lows.length - 1, cut = Math.floor(most / 100);
  let low = lows[cut], high = highs[most - cut];
  const reach = 1.5 * (high - low) || Math.abs(high) || 1;
  low = lows.find((value) => value >= low - reach);
  high = highs.findLast((value) => value <= high + reach);
  if (fromZero && low > 0) low = 0;
  if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
  const margin = 0.04 * (high - low);
  return [fromZero && low === 0 ? 0 : low - margin, high + margin];
}

class Chart {
  // metric: a curve of run.points; dots: a metric of run.evaluations drawn in the same chart.
  // note: a text, or a function of { few, joined }: few dots, and points of a curve joined in a band.
  // unit: ticks are round multiples of it.
  constructor(view, { title, note, metric, dots, text, tick, unit = 1, fromZero, plain, height = 200 }) {
    Object.assign(this, { view, title, note, metric, dots, text, tick: tick ?? tickText, unit, fromZero, plain, height });
    this.svg = svg("svg", { tabindex: 0, role: "img", "aria-label": `${title} by step` });
    this.tooltip = html("div", { class: "tooltip", role: "status", hidden: true });
    this.caption = html("span", {}, typeof note === "string" ? note : "");
    this.figure = html("figure", {}, html("figcaption", {}, html("b", {}, title), this.caption),
      html("div", { class: "plot" }, this.svg, this.tooltip));
    view.charts.push(this);
    this.pointers = new Map();
    this.listen();
    new ResizeObserver(() => this.svg.parentElement.clientWidth !== this.plot?.width && this.draw()).observe(this.svg.parentElement);
  }

  draw() {
    const width = this.svg.parentElement.clientWidth;
    if (width === 0) return;
    const { view, height } = this;
    const plot = (this.plot = { left: 52, right: width - 8, top: 8, bottom: height - 24, width });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    const runs = this.shown();
    const span = plot.right - plot.left;
    const curves = runs.map((run) => columnsOf(run.points, view.axis, this.metric, view, span));
    const dots = this.dots ? runs.map((run) => columnsOf(run.evaluations, view.axis, this.dots, view, span)) : [];
    const few = dots.every((columns) => columns.length <= 80);
    const joined = curves.some((columns, i) => !runs[i].branch && columns.some((c) => c.low !== c.high));
    if (typeof this.note === "function") this.caption.textContent = this.note({ few, joined });
    const inside = (columns) => columns.filter((c) => c.x >= view.low && c.x <= view.high);
    // A branch that diverged may leave the axis, which is that of the runs.
    const isOfAxis = (_, i) => !runs[i].branch || runs.every((run) => run.branch);
    [this.low, this.high] = rangeOf([...curves.filter(isOfAxis), ...dots.filter(isOfAxis)].map(inside), this.fromZero);
    const x = (this.x = (v) => plot.left + ((v - view.low) / (view.high - view.low)) * span);
    const far = 4 * height;
    const y = (this.y = (v) => Math.max(-far, Math.min(far, plot.bottom - ((v - this.low) / (this.high - this.low)) * (plot.bottom - plot.top))));
    const clip = (this.clip ??= `clip-${view.charts.indexOf(this)}`);
    const under = svg("g"), body = svg("g", { "clip-path": `url(#${clip})` }, under), layer = (run) => (run.branch ? under : body);
    this.overlay = svg("g");
    this.svg.replaceChildren(
      svg("clipPath", { id: clip }, svg("rect", { x: plot.left - 4, y: plot.top - 4, width: span + 8, height: plot.bottom - plot.top + 8 })),
      ...this.axes(plot, width), body, this.overlay);
    runs.forEach((run, i) => this.drawCurve(layer(run), run, curves[i], x, y));
    runs.forEach((run, i) => dots[i] && this.drawDots(layer(run), run, dots[i], x, y, few));
    this.drawCut(curves.flatMap(inside), plot);
    this.tooltip.hidden = true;
  }

  // The runs and branches that this chart shows.
  shown() {
    return this.view.runs.filter((run) => !this.view.hidden.has(run) && run.points[this.metric]);
  }

  axes(plot, width) {
    const parts = [], { view, unit } = this, axis = AXES[view.axis];
    const rows = ticks(this.low / unit, this.high / unit, Math.max(3, Math.floor(this.height / 38))).map((v) => v * unit);
    for (const value of rows) {
      const at = Math.round(this.y(value)) + 0.5;
      if (at < plot.top - 2 || at > plot.bottom + 1) continue;
      parts.push(svg("path", { class: "grid", d: `M${plot.left},${at}H${plot.right}` }),
        svg("text", { x: plot.left - 8, y: at + 4, "text-anchor": "end" }, this.tick(value, rows)));
    }
    const columns = axis.ticks(view.low, view.high, Math.max(2, Math.floor(width / 90)));
    for (const value of columns) {
      const at = this.x(value), text = axis.tick(value, columns);
      const anchor = at > plot.right - 14 ? "end" : at < plot.left + 14 ? "start" : "middle";
      parts.push(svg("path", { class: "grid", d: `M${Math.round(at) + 0.5},${plot.bottom}v4` }),
        svg("text", { x: at, y: plot.bottom + 18, "text-anchor": anchor }, text));
    }
    return parts;
  }

  drawCurve(body, run, columns, x, y) {
    if (columns.length === 0) return;
    const line = (list) => list.map((c, i) => `${i === 0 || c.gap ? "M" : "L"}${x(c.x).toFixed(1)},${y(c.mean).toFixed(1)}${c.gap ? "h0" : ""}`).join("");
    const dash = run.dash ? { "stroke-dasharray": run.dash } : {};
    const stroke = (d, more) => body.append(svg("path", { class: "curve", d, stroke: run.colour, ...more }));
    if (columns.length === 1) {
      body.append(svg("circle", { cx: x(columns[0].x), cy: y(columns[0].mean), r: 3, fill: run.colour }));
      return;
    }
    if (run.branch) return stroke(line(smoothed(columns, Math.floor(columns.length / 100))), { "stroke-width": 1.25, ...dash });
    if (this.plain) return stroke(line(columns), { "stroke-width": 2, ...dash });
    if (columns.some((c) => c.low !== c.high)) {
      const top = columns.map((c) => `${x(c.x).toFixed(1)},${y(c.high).toFixed(1)}`);
      const bottom = columns.map((c) => `${x(c.x).toFixed(1)},${y(c.low).toFixed(1)}`).reverse();
      body.append(svg("path", { d: `M${top.join("L")}L${bottom.join("L")}Z`, fill: run.colour, opacity: 0.2 }));
    }
    const half = Math.floor(columns.length / 100);
    if (half > 0) stroke(line(columns), { "stroke-width": 1, opacity: 0.32 });
    stroke(line(smoothed(columns, half)), { "stroke-width": 2, ...dash });
  }

  // Draws few points as rings joined by dots, and many as dots only.
  drawDots(body, run, columns, x, y, few) {
    const { view } = this;
    if (columns.length > 1)
      body.append(svg("path", { class: "curve validation", stroke: run.colour, "stroke-width": few ? 1 : 2, opacity: few ? 0.55 : 1, "stroke-dasharray": few ? "1 3" : "0.1 4",
        d: "M" + columns.map((c) => `${x(c.x).toFixed(1)},${y(c.mean).toFixed(1)}`).join("L") }));
    if (few)
      for (const c of columns) body.append(svg("circle", { class: "marker", cx: x(c.x), cy: y(c.mean), r: view.runs.length > 1 ? 2.8 : 3.6, stroke: run.colour }));
  }

  // Labels values above or below the axis.
  drawCut(columns, plot) {
    const above = columns.filter((c) => c.high > this.high), below = columns.filter((c) => c.low < this.low);
    const say = (text, y) => this.svg.append(svg("text", { class: "cut", x: plot.left + 26, y }, text));
    if (above.length) say(`\u2191 up to ${this.text(Math.max(...above.map((c) => c.high)))}`, plot.top + 11);
    if (below.length) say(`\u2193 down to ${this.text(Math.min(...below.map((c) => c.low)))}`, plot.bottom - 6);
  }

  // Moves the cursor to x of the axis; undefined: no cursor.
  point(x) {
    this.cursor = x;
    if (!this.overlay) return;
    this.overlay.replaceChildren();
    this.tooltip.hidden = true;
    if (x === undefined || x < this.view.low || x > this.view.high) return;
    const at = Math.round(this.x(x)) + 0.5;
    this.overlay.append(svg("path", { class: "cursor", d: `M${at},${this.plot.top}V${this.plot.bottom}` }));
    for (const { run, points, i, metric } of this.values(x)) {
      const y = this.y(points[metric][i]);
      if (y >= this.plot.top - 2 && y <= this.plot.bottom + 2)
        this.overlay.append(svg("circle", { cx: this.x(points[this.view.axis][i]), cy: y, r: 3.5, fill: run.colour }));
    }
  }

  // Three pixels in units of the axis.
  get slack() {
    return (3 * (this.view.high - this.view.low)) / (this.plot.right - this.plot.left);
  }

  // True if a run covers x of the axis, within a point or three pixels.
  reaches(run, x) {
    const xs = run.points[this.view.axis].filter(known), last = xs.length - 1;
    const point = last > 0 && run.points.lines_each > 1 ? (xs[last] - xs[0]) / last : 0;
    const slack = Math.max(point, this.slack);
    return last >= 0 && x >= xs[0] - slack && x <= xs[last] + slack;
  }

  // The points nearest to x of each run. With several runs, curves without a value at x are omitted.
  values(x) {
    const found = [], several = this.view.runs.length > 1;
    const away = (points, i) => Math.abs(points[this.view.axis][i] - x);
    for (const run of this.shown()) {
      if (several && !this.reaches(run, x)) continue;
      for (const [points, metric] of [[run.points, this.metric], ...(this.dots ? [[run.evaluations, this.dots]] : [])]) {
        const xs = points[this.view.axis], i = nearest(xs, points[metric], x);
        if (i < 0) continue;
        const isGone = several && points === run.points && away(points, i) > Math.max(away(points, nearest(xs, xs, x)), this.slack);
        if (!isGone) found.push({ run, points, metric, i });
      }
    }
    return found;
  }

  showTooltip(x) {
    const rows = this.values(x), { view } = this;
    if (rows.length === 0) return;
    const several = view.runs.length > 1;
    const where = several ? x : rows[0].points[view.axis][rows[0].i];
    const lines = rows.map(({ run, points, metric, i }) => {
      const each = points.lines_each > 1 ? [points[metric + "_low"], points[metric + "_high"]] : undefined;
      const name = metric === this.metric ? (several ? nameOf(run) : this.title) : several ? "validation" : "validation loss";
      const far = metric === this.dots ? ` (${AXES[view.axis].title === "step" ? "step " : ""}${AXES[view.axis].text(points[view.axis][i])})` : "";
      return html("tr", {}, html("td", {}, swatch(run.colour, run.dash), name, far),
        html("td", {}, html("b", {}, this.text(points[metric][i])), each && each[0]
          ? html("span", { class: "range" }, ` ${this.text(each[0][i])} ${DASH} ${this.text(each[1][i])}`) : ""));
    });
    const each = Math.max(...rows.map(({ run }) => run.points.lines_each));
    const head = `${view.axis === "step" ? "step " : ""}${AXES[view.axis].text(where)}${each > 1 ? ` ${DOT} ${several ? "up to " : ""}${whole(each)} steps` : ""}`;
    this.tooltip.replaceChildren(html("div", {}, head), html("table", {}, ...lines));
    this.tooltip.hidden = false;
    const at = this.x(x), size = this.tooltip.offsetWidth;
    this.tooltip.style.left = `${at + 14 + size > this.plot.width ? Math.max(0, at - 14 - size) : at + 14}px`;
  }

  listen() {
    const { view } = this, target = this.svg;
    const place = (event) => event.clientX - target.getBoundingClientRect().left;
    const value = (pixel) => view.low + ((pixel - this.plot.left) / (this.plot.right - this.plot.left)) * (view.high - view.low);
    const clamped = (pixel) => Math.max(this.plot.left, Math.min(this.plot.right, pixel));
    const look = (pixel) => {
      view.point(value(clamped(pixel)));
      this.showTooltip(value(clamped(pixel)));
    };
    target.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      target.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, place(event));
      this.drag = event.pointerType === "mouse" ? { from: clamped(place(event)) } : undefined;
      if (this.pointers.size === 2) this.pinch = [...this.pointers.values()].map(value);
      if (event.pointerType !== "mouse") look(place(event));
    });
    target.addEventListener("pointermove", (event) => {
      if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, place(event));
      if (this.pinch && this.pointers.size === 2) return this.movePinch();
      look(place(event));
      if (!this.drag) return;
      const [a, b] = [this.drag.from, clamped(place(event))].sort((p, q) => p - q);
      if (b - a > 4) {
        this.tooltip.hidden = true;
        this.overlay.append(svg("rect", { class: "selection", x: a, y: this.plot.top, width: b - a, height: this.plot.bottom - this.plot.top }));
      }
    });
    const up = (event) => {
      const drag = this.drag;
      this.pointers.delete(event.pointerId);
      this.drag = this.pinch = undefined;
      if (!drag || event.type === "pointercancel") return;
      const [a, b] = [drag.from, clamped(place(event))].sort((p, q) => p - q);
      if (b - a > 4) view.show(value(a), value(b));
    };
    target.addEventListener("pointerup", up);
    target.addEventListener("pointercancel", up);
    target.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse" && !this.drag) view.point(undefined), (this.tooltip.hidden = true);
    });
    target.addEventListener("blur", () => view.point(undefined));
    target.addEventListener("dblclick", () => view.all());
    target.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;  // the page scrolls
      event.preventDefault();
      view.zoom(Math.exp(event.deltaY / 200), value(clamped(place(event))));
    }, { passive: false });
    target.addEventListener("keydown", (event) => this.key(event));
  }

  // Keeps the points under two fingers in place.
  movePinch() {
    const [p, q] = [...this.pointers.values()], [a, b] = this.pinch;
    if (Math.abs(p - q) < 8) return;
    const scale = (b - a) / (q - p), low = a - (p - this.plot.left) * scale;
    if (scale > 0) this.view.show(low, low + (this.plot.right - this.plot.left) * scale);
  }

  key(event) {
    const { view } = this, middle = (view.low + view.high) / 2;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.cursor !== undefined && this.cursor >= view.low && this.cursor <= view.high ? this.cursor : middle;
    const look = (x) => {
      view.point(x);
      this.showTooltip(x);
    };
    const move = (sign) => look(Math.max(view.low, Math.min(view.high, at + (sign * (view.high - view.low)) / 50)));
    const act = {
      ArrowLeft: () => (event.shiftKey ? view.pan(-0.25) : move(-1)),
      ArrowRight: () => (event.shiftKey ? view.pan(0.25) : move(1)),
      Home: () => look(view.low),
      End: () => look(view.high),
      "+": () => (view.zoom(0.5, at), look(at)),
      "=": () => (view.zoom(0.5, at), look(at)),
      "-": () => (view.zoom(2, at), look(at)),
      "0": () => view.all(),
      Escape: () => view.all(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

// Index of the point with a value that is nearest to x; -1: none.
function nearest(xs, values, x) {
  let best = -1, distance = Infinity;
  for (let i = 0; i < xs.length; ++i)
    if (known(xs[i]) && known(values[i]) && Math.abs(xs[i] - x) < distance) [best, distance] = [i, Math.abs(xs[i] - x)];
  return best;
}
