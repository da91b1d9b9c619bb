// The page: shows the block of data, section by section.

const report = JSON.parse(document.getElementById("data").textContent);
const COLOURS = 8, DASHES = ["", "7 4"];
const runs = report.runs.map((run, i) => ({
  ...run,
  colour: `var(--run-${i % COLOURS})`,
  dash: DASHES[Math.floor(i / COLOURS) % DASHES.length],
}));
const several = runs.length > 1;
// The branches of more runs would hide the curves.
const MOST_RUNS_WITH_BRANCHES = 4;
const branchesOf = (run) => (runs.length > MOST_RUNS_WITH_BRANCHES ? [] : run.branches).map((branch) => ({
  name: several ? run.name : undefined,
  branch: `before rollback ${branch.rollback} (steps ${whole(branch.first_step)} to ${whole(branch.last_step)})`,
  path: `${run.path}/metrics.before-${branch.rollback}.jsonl`,
  figures: branch,
  points: branch.points,
  evaluations: branch.evaluations,
  colour: `color-mix(in srgb, ${run.colour} 60%, var(--page))`,
  dash: "4 3",
}));
const curves = runs.flatMap((run) => [run, ...branchesOf(run)]);
const main = document.querySelector("main");

const named = (run) => [several ? swatch(run.colour, run.dash) : undefined, nameOf(run)];
const listed = (list) => list.flatMap((run, i) => (i === 0 ? [nameOf(run)] : [", ", nameOf(run)]));

function section(title, text, ...children) {
  const element = html("section", {}, html("h2", {}, title), text ? html("p", {}, text) : undefined, ...children);
  main.append(element);
  return element;
}

// rows: lists of cells; a cell is a text, an element, or { text, class }.
function table(head, rows, kind = "") {
  const cell = (tag, content, i) => {
    const is = content !== null && typeof content === "object" && !(content instanceof Node) && !Array.isArray(content);
    return html(tag, { class: is ? content.class : head[i]?.class, scope: tag === "th" ? "col" : undefined }, is ? content.text : content ?? "");
  };
  const row = (cells) => html("tr", { class: cells.class }, ...cells.map((content, i) => cell("td", content, i)));
  const top = head.some((h) => h.text) ? html("thead", {}, html("tr", {}, ...head.map((h, i) => cell("th", h, i)))) : undefined;
  return html("div", { class: `scroll ${kind}` }, html("table", {}, top, html("tbody", {}, ...rows.map(row))));
}
const number = (text) => ({ text, class: "number" });

// The key figures of a run, as [label, value, remark].
function figuresOf({ figures: f, goodput, plan }) {
  const planned = f.planned_steps, list = [];
  // "plan 48.3% (44.7% to 52.8% in 80% of similar runs)".
  const planText = (value, text, isTime) => {
    const [low, high] = plan.band ?? [];
    const range = isTime ? [value * low, value * high] : [value / high, value / low];
    return `plan ${text(value)}${known(low) ? ` (${range.map((end) => text(end)).join(" to ")} in 80% of similar runs)` : ""}`;
  };
  const add = (label, value, remark) => value !== DASH && list.push([label, value, remark]);
  const span = f.end_seconds - f.begin_seconds;
  add("steps", whole(f.last_step), known(planned) ? (f.last_step >= planned ? "all" : `of ${whole(planned)}, ${percent(f.last_step / planned)}`) : undefined);
  if (known(f.loss)) add("loss", significant(f.loss), "last step");
  else add("loss", "not finite", known(f.finite_loss) ? `last finite ${significant(f.finite_loss)} at step ${whole(f.finite_step)}` : "never finite");
  if (known(f.best_validation_loss))
    add("best validation loss", significant(f.best_validation_loss), `at step ${whole(f.best_step)}` +
      (f.last_validation_loss > f.best_validation_loss ? `; last ${significant(f.last_validation_loss)}` : ""));
  add("tokens", count(f.tokens_seen));
  add("tokens/s", count(f.tokens_per_second), known(plan?.tokens_per_second) ? planText(plan.tokens_per_second, count) : "median");
  add("MFU", percent(f.mfu), known(plan?.mfu) ? planText(plan.mfu, percent) : "median, causal attention");
  add("step time", seconds(f.step_seconds), known(plan?.step_seconds) ? planText(plan.step_seconds, seconds, true) : "median");
  add("memory", bytes(f.peak_bytes), known(plan?.capacity_bytes) ? `peak, of ${bytes(plan.capacity_bytes)}` : "peak");
  add("time", duration(span), "first to last line");
  if (goodput) add("goodput", percent(goodput.seconds.productive / goodput.wall_seconds), "of the time in productive steps");
  if (f.skipped > 0) add("skipped steps", whole(f.skipped), "no weight update");
  return list;
}

// How the last start of a run ended, from its ledger.
function stateOf({ goodput }) {
  const start = goodput?.starts.at(-1);
  if (!start) return { value: DASH };
  if (!known(start.exit_code)) return { value: "no end recorded" };
  return start.exit_code === 0 ? { value: "ended" } : { value: "stopped", remark: start.why || `exit code ${start.exit_code}` };
}

// One row per run. A remark that all runs share is shown in the header.
function comparison() {
  const lists = runs.map((run) => new Map(figuresOf(run).map(([label, value, remark]) => [label, { value, remark }])));
  const labels = [...new Set(lists.flatMap((list) => [...list.keys()]))];
  const small = (text) => (text ? html("small", {}, text) : undefined);
  const shared = (label) => {
    const remarks = new Set(lists.filter((list) => list.has(label)).map((list) => list.get(label).remark));
    return remarks.size === 1 ? [...remarks][0] : undefined;
  };
  const cell = ({ value, remark } = { value: DASH }, of) => ({ text: [value, small(remark === of ? undefined : remark)], class: "number" });
  return table([{ text: "run" }, { text: "state" }, ...labels.map((label) => ({ text: [label, small(shared(label))], class: "number" }))],
    runs.map((run, i) => [{ text: named(run), class: "name" }, { ...cell(stateOf(run)), class: "state" }, ...labels.map((label) => cell(lists[i].get(label), shared(label)))]), "comparison");
}

function header() {
  document.querySelector("h1").replaceChildren(several ? `${runs.length} runs compared` : nameOf(runs[0]));
  const lead = document.querySelector(".lead");
  lead.replaceChildren(...(several ? listed(runs)
    : [html("bdi", {}, runs[0].path), ` ${DOT} ${moment(runs[0].figures.begin_seconds)} to ${moment(runs[0].figures.end_seconds)}`]));
  if (!several) {
    main.append(html("dl", { class: "figures" }, ...figuresOf(runs[0]).map(([label, value, remark]) =>
      html("div", {}, html("dt", {}, label), html("dd", {}, value, remark ? html("small", {}, remark) : undefined)))));
    return;
  }
  main.append(html("section", { class: "first" }, comparison()));
}

function notes() {
  const all = [...report.notes, ...runs.flatMap((run) => run.notes.map((note) => (several ? [nameOf(run), `: ${note}`] : note)))];
  if (all.length > 0)
    main.append(html("div", { class: "notes" }, html("b", {}, "Omitted data"), html("ul", {}, ...all.map((note) => html("li", {}, note)))));
}

function toolbar(view) {
  const choice = (label, ...buttons) => html("span", { class: "choice", role: "group", "aria-label": label }, ...buttons);
  const button = (text, label, act) => {
    const element = html("button", { type: "button", title: label, "aria-label": label }, text);
    element.addEventListener("click", act);
    return element;
  };
  const axes = Object.entries({ step: "steps", tokens: "tokens", seconds: "time" })
    .filter(([axis]) => runs.some((run) => run.points[axis].some(known)))
    .map(([axis, text]) => Object.assign(button(text, `over ${text}`, () => view.setAxis(axis)), { axis }));
  const zoom = [button(MINUS, "zoom out", () => view.zoom(2)), button("+", "zoom in", () => view.zoom(0.5)), button("all", "show all steps", () => view.all())];
  const legend = html("div", { class: "legend" }, ...(curves.length > 1 ? curves : []).map((run) => {
    const box = html("input", { type: "checkbox", class: run.dash ? "dashed" : undefined, checked: true, style: `--colour: ${run.colour}` });
    box.addEventListener("change", () => view.setHidden(run, !box.checked));
    return html("label", { title: run.path }, box, html("span", {}, nameOf(run)));
  }));
  const update = () => {
    for (const element of axes) element.setAttribute("aria-pressed", element.axis === view.axis);
    zoom[0].disabled = zoom[2].disabled = !view.zoomed;
  };
  view.listeners.push(update);
  update();
  return html("div", { class: "toolbar" }, legend, choice("horizontal axis", ...axes), choice("zoom", ...zoom));
}

function charts() {
  const view = new View(curves);
  const keys = [["+", MINUS, "zoom"], ["\u2190", "\u2192", "read values"], ["0", "all"]].flatMap((list) =>
    [...list.slice(0, -1).flatMap((key) => [html("kbd", {}, key), " "]), `${list.at(-1)}; `]);
  const help = html("p", { class: "caption help" }, html("span", { class: "keyboard" },
    "Drag over a chart to zoom in, double-click to show all. Keys in a chart: ", ...keys, html("kbd", {}, "shift"), " and an arrow: pan."),
  html("span", { class: "touch" }, "Touch a chart to read values, spread two fingers to zoom in."));
  const has = (metric) => runs.some((run) => run.points[metric].some(known));
  const band = (joined) => (joined ? "band: minimum to maximum; line: moving median" : "thin: each step; thick: moving median");
  const most = Math.max(...runs.map((run) => run.figures.peak_bytes).filter(known)), unit = 1024 ** Math.max(0, Math.floor(Math.log2(most) / 10));
  const validation = runs.some((run) => run.evaluations.step.length > 0);
  const wanted = [
    { title: "Loss", note: ({ few, joined }) => has("loss") ? `nats per token${validation ? `; ${few ? "rings" : "dotted"}: validation` : ""}; ${band(joined)}` : "no step has a finite loss", metric: "loss", dots: validation ? "validation_loss" : undefined, text: (v) => significant(v, 5), height: 340, wide: true },
    { title: "Learning rate", metric: "learning_rate", text: (v) => significant(v, 4), plain: true, fromZero: true },
    { title: "Gradient norm", note: "before clipping", metric: "grad_norm", text: (v) => significant(v, 4) },
    { title: "Throughput", note: "tokens/s", metric: "tokens_per_second", text: (v) => count(v, 4), fromZero: true },
    { title: "Memory", note: `peak, ${bytes(unit).slice(2)}`, metric: "peak_bytes", text: bytes, tick: (v, all) => tickText(v / unit, all.map((t) => t / unit)), unit, fromZero: true },
    { title: "MFU", note: "causal attention", metric: "mfu", text: (v) => percent(v), tick: (v, all) => `${tickText(100 * v, all.map((t) => 100 * t))}%`, fromZero: true },
  ].filter(({ metric }) => metric === "loss" || has(metric));
  const made = wanted.map((options) => {
    const chart = new Chart(view, options);
    if (options.wide) chart.figure.className = "wide";
    return chart.figure;
  });
  if (made.length % 2 === 0 && made.length > 1) made[made.length - 1].className = "wide";
  main.append(html("div", {}, toolbar(view), help, html("div", { class: "charts" }, ...made)));
}

// Two bars: plan above, measurement below.
function bars(planned, measured, most, colour) {
  const element = svg("svg", { viewBox: "0 0 100 18", preserveAspectRatio: "none", "aria-hidden": "true" });
  const width = (value) => Math.max(0, Math.min(100, (100 * value) / most));
  if (known(planned)) element.append(svg("rect", { x: 0, y: 2, width: width(planned), height: 6, fill: "var(--faint)", opacity: 0.55 }));
  if (known(measured)) element.append(svg("rect", { x: 0, y: known(planned) ? 9 : 5, width: width(measured), height: known(planned) ? 7 : 8, fill: colour }));
  return element;
}

function difference(planned, measured) {
  if (!known(planned) || !known(measured) || planned === 0) return { text: DASH, class: "number" };
  const ratio = measured / planned - 1;
  const text = `${ratio < 0 ? MINUS : "+"}${Math.abs(100 * ratio) >= 1000 ? count(Math.abs(100 * ratio), 2) : Math.abs(100 * ratio).toFixed(Math.abs(ratio) < 0.0995 ? 1 : 0)}%`;
  return { text, class: ratio > 0.1 ? "number slower" : "number" };
}

// Names as in plans and logs (core/component.cpp); other parts keep their names of the data.
const PART_NAMES = { products: "matmuls", memory_bound: "memory-bound", communication_tensor: "communication, tensor",
  communication_shard: "communication, shard", communication_replicate: "communication, replicate",
  communication_ranks: "communication, all ranks", communication_host: "communication, host" };

function stepParts() {
  const shown = runs.filter((run) => run.parts.length > 0);
  if (shown.length === 0) return;
  const plans = shown.some((run) => run.plan), corrected = shown.some((run) => known(run.plan?.corrected_step_seconds));
  const blocks = shown.flatMap((run) => {
    const total = { name: "whole step", planned: run.plan?.step_seconds, corrected: run.plan?.corrected_step_seconds, measured: run.figures.step_seconds };
    const most = Math.max(...run.parts.flatMap((part) => [part.planned, part.measured]).filter(known));
    const saves = run.checkpoints && { ...run.checkpoints, name: "+ checkpoints" };
    const rows = [...run.parts, total, ...(saves ? [saves] : [])].map((part) => {
      const cells = [{ text: PART_NAMES[part.name] ?? part.name, class: "name" },
        { text: part === total || part === saves ? "" : bars(part.planned, part.measured, most, run.colour), class: "bars" },
        ...(plans ? [seconds(part.planned)] : []), ...(corrected ? [seconds(part.corrected)] : []), seconds(part.measured),
        plans ? difference(part.planned, part.measured) : part === saves ? "" : percent(part.measured / total.measured)];
      return Object.assign(cells, part === total ? { class: "total" } : {});
    });
    const head = [{ text: "" }, { text: "", class: "bars" }, ...(plans ? [number("plan")] : []), ...(corrected ? [number("corrected")] : []), number("measured"), number(plans ? "difference" : "share")];
    return [several ? html("h3", {}, ...named(run).filter(Boolean)) : undefined,
      plans && run.plan?.cluster ? html("p", { class: "caption" }, `Planned for ${run.plan.cluster}.`) : undefined,
      Object.assign(table(head, rows, "parts"), { style: `--numbers: ${head.length - 2}` })];
  });
  const text = "Measured: the median of steps; for waits for data and for checkpoints (not part of a step), the mean of all steps. " + (plans ? "Grey: the plan; corrected: the plan corrected by earlier runs." : "The run directory has no plan.json to compare with.");
  section(plans ? "Plan and measurement" : "Time of a step", corrected || !plans ? text : text.replace("; corrected: the plan corrected by earlier runs", ""), ...blocks.filter(Boolean));
}

function memory() {
  const shown = runs.filter((run) => run.plan?.memory.length > 0);
  if (shown.length === 0) return;
  const blocks = shown.flatMap((run) => {
    const { memory: parts, capacity_bytes: capacity } = run.plan, peak = run.figures.peak_bytes;
    const sum = parts.reduce((all, part) => all + part.bytes, 0);
    const most = 1.02 * Math.max(...[sum, capacity, peak].filter(known));
    if (most === 0) return [];
    const at = (value) => (1000 * value) / most;
    const strip = svg("svg", { class: "strip", viewBox: "0 0 1000 34", preserveAspectRatio: "none", role: "img", "aria-label": `planned ${bytes(sum)}, peak ${bytes(peak)}` });
    let x = 0;
    parts.forEach((part, i) => {
      strip.append(svg("rect", { x: at(x), y: 4, width: Math.max(0, at(part.bytes) - 1.5), height: 26, fill: `var(--run-${i % COLOURS})`, opacity: 0.8 }, svg("title", {}, `${part.name}: ${bytes(part.bytes)}`)));
      x += part.bytes;
    });
    const mark = (value, colour) => known(value) && strip.append(svg("rect", { x: at(value) - 1.5, y: 0, width: 3, height: 34, fill: colour }));
    mark(capacity, "var(--faint)");
    mark(peak, "var(--ink)");
    const key = (colour, text, value) => html("span", {}, swatch(colour), text, html("b", {}, bytes(value)));
    return [several ? html("h3", {}, ...named(run).filter(Boolean)) : undefined, strip,
      html("div", { class: "keys" }, ...parts.map((part, i) => key(`var(--run-${i % COLOURS})`, part.name.replaceAll("_", " "), part.bytes)),
        key("transparent", "planned total", sum), known(peak) ? key("var(--ink)", "measured peak", peak) : "", known(capacity) ? key("var(--faint)", "capacity", capacity) : "")];
  });
  if (blocks.length > 0) section("Planned memory", "The parts of the plan; the dark mark is the measured peak.", ...blocks.filter(Boolean));
}

const KIND_NAMES = { productive: "productive steps", replayed: "replayed steps", data: "waiting for data", checkpoint: "waiting for checkpoints",
  evaluation: "evaluation", restart: "starting", idle: "not running" };

function goodput() {
  const shown = runs.filter((run) => run.goodput?.wall_seconds > 0);
  if (shown.length === 0) return;
  const blocks = shown.flatMap((run) => {
    const { seconds: spent, starts, wall_seconds: wall } = run.goodput, begin = starts[0].begin;
    const kinds = Object.keys(KIND_NAMES).filter((kind) => spent[kind] > 0);
    const share = svg("svg", { class: "strip", viewBox: "0 0 1000 34", preserveAspectRatio: "none", role: "img", "aria-label": `productive ${percent(spent.productive / wall)}` });
    let x = 0;
    for (const kind of kinds) {
      const width = (1000 * spent[kind]) / wall;
      share.append(svg("rect", { x, y: 0, width: Math.max(width - 1, 0.6), height: 34, fill: `var(--${kind})` }, svg("title", {}, `${KIND_NAMES[kind]}: ${duration(spent[kind])}`)));
      x += width;
    }
    const keys = html("div", { class: "keys" }, ...kinds.map((kind) => html("span", {}, swatch(`var(--${kind})`), KIND_NAMES[kind], html("b", {}, `${percent(spent[kind] / wall)} ${DOT} ${duration(spent[kind])}`))));
    return [several ? html("h3", {}, ...named(run).filter(Boolean)) : undefined, share, keys, timeline(starts, begin, wall),
      starts.length > 1 || !several ? startsTable(starts, begin) : undefined, starts.length > 1 ? restartsTable(run.goodput, begin) : undefined];
  });
  section("Goodput", "How the time from the first start to the last line was spent, and below its timeline.", ...blocks.filter(Boolean)).classList.add("long");
}

const stepsOf = (start) => (start.last_step > start.from_step ? `${whole(start.from_step + 1)} ${DASH} ${whole(start.last_step)}` : "none recorded");

function timeline(starts, begin, wall) {
  const plot = html("div", { class: "plot" });
  const draw = () => {
    const width = plot.clientWidth;
    if (width === 0) return;
    const strip = svg("svg", { viewBox: `0 0 ${width} 54`, height: 54, role: "img", "aria-label": `${starts.length} starts` });
    strip.style.cursor = "default";
    const at = (moment) => (width * (moment - begin)) / wall;
    const bar = (from, to, kind, text) => to > from && strip.append(svg("rect", { x: at(from), y: 6, width: Math.max(at(to) - at(from), 0.7), height: 22, fill: `var(--${kind})` }, svg("title", {}, text)));
    strip.append(svg("rect", { x: 0, y: 16, width, height: 2, fill: "var(--idle)" }));
    starts.forEach((start, i) => {
      const text = `start ${i + 1}: steps ${stepsOf(start)}, ${duration(start.end - start.begin)}`;
      bar(start.begin, start.first_step, "restart", `${text}; starting`);
      bar(start.first_step, start.replayed_from, "productive", text);
      bar(start.replayed_from, start.end, "replayed", `${text}; replayed by a later start`);
    });
    const times = timeTicks(0, wall, Math.max(2, Math.floor(width / 120)));
    for (const value of times) {
      const x = at(begin + value);
      strip.append(svg("path", { class: "grid", d: `M${Math.round(x) + 0.5},30v5` }),
        svg("text", { x, y: 49, "text-anchor": x < 14 ? "start" : x > width - 20 ? "end" : "middle" }, timeTick(value, times)));
    }
    plot.replaceChildren(strip);
  };
  new ResizeObserver(draw).observe(plot);
  return plot;
}

const MOST_STARTS = 100;
// The first and the last starts of a run, each with its index.
const firstAndLast = (starts) => starts.map((start, i) => [start, i]).filter(([, i]) => i < MOST_STARTS / 2 || i >= starts.length - MOST_STARTS / 2);
const ended = (starts, i) => starts[i].why || (known(starts[i].exit_code) ? `exit code ${starts[i].exit_code}` : i + 1 < starts.length ? "killed" : "no end recorded");

function startsTable(starts, begin) {
  const shown = firstAndLast(starts);
  const rows = shown.map(([start, i]) => [number(i + 1), number(duration(start.begin - begin)), number(stepsOf(start)),
    number(duration(start.end - start.begin)), number(start.ranks ?? DASH), { text: start.hosts.slice(0, 4).join(", ") + (start.host_count > 4 ? `, ${start.host_count - 4} more` : "") }, { text: ended(starts, i) }]);
  const body = table([number("start"), number("began after"), number("steps"), number("duration"), number("ranks"), { text: "hosts" }, { text: "ended" }], rows, "starts");
  return html("details", { open: starts.length > 1 && starts.length <= 12 }, html("summary", {}, starts.length === 1 ? "The start" : `All ${starts.length} starts` + (shown.length < starts.length ? `: the first and the last ${MOST_STARTS / 2}` : "")), body);
}

// One row for each restart: why the start before it ended, and the time until its first step. The last row has the sums.
function restartsTable({ starts, phases: sums }, begin) {
  const columns = Object.keys(sums);
  const times = (phases) => [...columns.map((phase) => number(seconds(phases[phase]))), number(seconds(Object.values(phases).reduce((all, one) => all + one, 0)))];
  const rows = firstAndLast(starts).filter(([, i]) => i > 0).map(([start, i]) => [number(i + 1), number(duration(start.begin - begin)), number(whole(start.from_step)),
    { text: ended(starts, i - 1) }, number(seconds(start.replays_seconds)), ...times(start.phases)]);
  const all = Object.assign(["", "", "", { text: "all restarts" }, number(seconds(starts.reduce((sum, start) => sum + start.replays_seconds, 0))), ...times(sums)], { class: "total" });
  const head = [number("start"), number("began after"), number("from step"), { text: "previous start ended" }, number("replayed"), ...columns.map((phase) => number(phase)), number("total")];
  return html("details", { open: starts.length <= 12 }, html("summary", {}, "Restarts"), table(head, [...rows, all], "starts restarts"));
}

function configuration() {
  const shown = runs.filter((run) => run.configuration.length > 0);
  if (shown.length === 0) return;
  const all = (count, ...table) => html("details", {}, html("summary", {}, `All ${count} values`), ...table);
  if (!several) {
    const rows = (list) => list.map(([key, value, origin]) => Object.assign([{ text: key, class: "key" }, { text: value, class: "value" }, { text: origin, class: "origin" }], origin.startsWith("default") ? { class: "dim" } : {}));
    const chosen = runs[0].configuration.filter(([, , origin]) => !origin.startsWith("default"));
    const head = [{ text: "key" }, { text: "value" }, { text: "origin", class: "origin" }];
    section("Configuration", "Values that were set; all others have their defaults.", table(head, rows(chosen)),
      all(runs[0].configuration.length, table(head, rows(runs[0].configuration)))).classList.add("long");
    return;
  }
  const maps = shown.map((run) => new Map(run.configuration));
  const keys = [...new Set(maps.flatMap((map) => [...map.keys()]))];
  const different = keys.filter((key) => new Set(maps.map((map) => map.get(key))).size > 1);
  const head = () => [{ text: "key" }, ...shown.map((run) => ({ text: named(run) }))];  // made twice: an element has one place
  const row = (key) => [{ text: key, class: "key" }, ...maps.map((map) => ({ text: map.get(key) ?? DASH, class: "value" }))];
  const without = runs.filter((run) => !shown.includes(run));
  const text = shown.length === 1 ? "" : different.length > 0 ? `${different.length} of ${keys.length} values differ.` : `All ${keys.length} values are equal.`;
  section("Configuration", [text, ...(without.length > 0 ? [" No configuration found for ", ...listed(without), "."] : [])],
    different.length > 0 ? table(head(), different.map(row)) : undefined, all(keys.length, table(head(), keys.map(row)))).classList.add("long");
}

function environment() {
  const maps = runs.map((run) => {
    const start = run.goodput?.starts.at(-1), facts = new Map(run.environment);
    if (start?.ranks) facts.set("ranks", whole(start.ranks));
    if (start?.hosts.length > 0) facts.set("hosts", start.hosts.join(", ") + (start.host_count > start.hosts.length ? `, ${start.host_count - start.hosts.length} more` : ""));
    return facts;
  });
  const facts = [...new Set(maps.flatMap((map) => [...map.keys()]))];
  if (facts.length === 0) return;
  section("Environment", "From the newest checkpoint and the last start.", table([{ text: several ? "fact" : "" }, ...runs.map((run) => ({ text: several ? named(run) : "" }))],
    facts.map((fact) => [{ text: fact, class: "name" }, ...maps.map((map) => ({ text: map.get(fact) ?? DASH, class: "value" }))])));
}

function foot() {
  const most = Math.max(...curves.map(({ points }) => points.lines_each));
  const text = most === 1 ? "Curves show every step." :
    `Curves of long runs are reduced: each point has the mean, minimum and maximum of ${curves.length > 1 ? `up to ${whole(most)}` : whole(most)} steps, so that no spike is lost.`;
  document.querySelector("footer").append(html("p", {}, text),
    html("p", {}, `Outliers and the first steep fall of a curve may lie outside an axis; a label then shows how far. Medians cover all steps, with a precision of 0.1%.`),
    html("p", {}, `Made by ${report.version}, ${moment(report.made_seconds)}.`));
}

header();
notes();
charts();
stepParts();
memory();
goodput();
configuration();
environment();
foot();
