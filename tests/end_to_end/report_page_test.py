#!/usr/bin/env python3
"""The page of `lockstep report` in a browser has no network requests and no console output. In light, in dark and on
a phone nothing is cut. Mouse, touch and keys zoom.

usage: report_page_test.py LOCKSTEP [PICTURES]

PICTURES: a directory for screenshots. Exit 77 (skipped) without Chromium.
"""

import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import chromium

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

LOCKSTEP = sys.argv[1]
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


EVIL = "<img src=x onerror=alert(1)></script><b>"


def make_run(run, steps, seed, evil=False, evaluations=40, finite=1.0):
    """Writes the files of a run with `steps` steps, a spike, a stop, and a plan. finite: the share of steps with a loss."""
    rng = random.Random(seed)
    run.mkdir(parents=True)
    time = begin = 1.79e9
    hosts = ["gpu-a", EVIL if evil else "gpu-b", *(f"gpu-{i}" for i in range(2, 64))]
    ledger = [{"event": "start", "time_seconds": begin, "step": 0, "ranks": 512, "hosts": hosts}]
    time += 40
    with open(run / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            seconds = 0.4 * (1 + abs(rng.gauss(0, 0.01)))
            time += seconds
            line = {"step": step, "loss": 2.9 - seed / 20 + 8 * math.exp(-step / (0.012 * steps)) + math.exp(-4 * step / steps) + rng.gauss(0, 0.03),
                    "grad_norm": 0.3 + abs(rng.gauss(0, 0.05)), "learning_rate": 1e-3 * min(1, 50 * step / steps) * (1.05 - step / steps),
                    "step_seconds": seconds, "tokens_per_second": 65536 / seconds, "mfu": 0.18 / seconds,
                    "tokens_seen": 65536 * step, "peak_bytes": 61203283968, "products_seconds": 0.72 * seconds,
                    "attention_seconds": 0.1 * seconds, "optimizer_seconds": 0.03 * seconds,
                    "checkpoint_seconds": 4 if step % 100 == 0 else 0, "time_seconds": time}
            if step == steps * 2 // 3:
                line["loss"] = 1e30 if evil else 9.5
            if step == steps // 2:
                line["loss"] = None
            if step > finite * steps:
                line["loss"] = None
            elif step % max(steps // evaluations, 1) == 0:
                line["validation_loss"] = 2.95 - seed / 20 + math.exp(-4 * step / steps)
            file.write(json.dumps(line) + "\n")
            if step in (steps // 4, steps // 2, steps):
                ledger.append({"event": "steps", "time_seconds": time, "first": 1 if step == steps // 4 else step // 2 + 1, "last": step,
                               "step_seconds": (time - begin) / 3, "data_seconds": 1, "checkpoint_seconds": 5, "evaluation_seconds": 9})
            if step == steps // 2:
                time += 0.05 * steps
                ledger.append({"event": "start", "time_seconds": time, "step": steps * 3 // 8, "ranks": 8, "hosts": ["gpu-a"]})
                time += 60
    (run / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ledger))
    (run / "config.toml").write_text(f'[train]\nsteps = {steps}  # --set\nseed = {seed}  # --set\nbatch_tokens = 65536  # default\n')
    (run / "plan.json").write_text(json.dumps({
        "format": "lockstep plan 1", "step_seconds": 0.37, "tokens_per_second": 177000, "mfu": 0.49, "mfu_square": 0.52, "band": {"low": 0.9, "high": 1.1},
        "components": [{"name": "products", "seconds": 0.28}, {"name": EVIL if evil else "attention", "seconds": 0.03}],
        "memory": [{"name": "weights", "bytes": 30_000_000_000}, {"name": "activations", "bytes": 25_000_000_000}],
        "capacity_bytes": 85_000_000_000, "checkpoint_bytes": 17_000_000_000, "cluster": EVIL if evil else "8 GPUs"}))


def make_unequal(folder):
    """A run that ended, one that stopped, one without a configuration, and one without steps."""
    for seed, (name, steps) in enumerate({"whole": 500, "half": 400, "bare": 500, "empty": 1}.items()):
        make_run(folder / name, steps, seed)
    end = {"event": "end", "time_seconds": 1.79e9 + 9999, "step": 500, "exit_code": 0, "why": "done"}
    with open(folder / "whole" / "ledger.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(end) + "\n")
    with open(folder / "half" / "ledger.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(dict(end, step=400, exit_code=1, why="out of memory")) + "\n")
    config = folder / "half" / "config.toml"
    config.write_text(config.read_text().replace("steps = 400", "steps = 500").replace("65536", "32768"))
    (folder / "bare" / "config.toml").unlink()
    (folder / "empty" / "metrics.jsonl").write_text("")


def go_back(run, step):
    """Moves the lines after `step` to metrics.before-1.jsonl, with a loss that diverged, and writes other lines again."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    abandoned = [json.loads(line) for line in lines[step:]]
    (run / "metrics.before-1.jsonl").write_text("".join(json.dumps(dict(m, loss=5 + i / 10)) + "\n" for i, m in enumerate(abandoned)))
    (run / "metrics.jsonl").write_text("".join(lines[:step] + lines[step:-len(abandoned) // 2]))


def make_stuck(run):
    """A start without steps, an empty plan, and lines without a peak."""
    make_run(run, 10, 1)
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps(dict(plan, memory=[{"name": "weights", "bytes": 0}], capacity_bytes=0)))
    (run / "metrics.jsonl").write_text(re.sub(r'"peak_bytes": \d+, ', "", (run / "metrics.jsonl").read_text()))
    (run / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [
        {"event": "start", "time_seconds": 1.79e9, "step": 0, "ranks": 1, "hosts": ["a"]},
        {"event": "steps", "time_seconds": 1.79e9 + 20, "first": 1, "last": 10, "step_seconds": 9, "data_seconds": 0, "checkpoint_seconds": 0, "evaluation_seconds": 0},
        {"event": "start", "time_seconds": 1.79e9 + 30, "step": 10, "ranks": 1, "hosts": ["a"]}]))


# Ticks of axes of any range that have equal labels.
SAME_TICKS = """(() => {
  const same = [];
  let state = 7;
  const draw = () => (state = (state * 16807) % 2147483647) / 2147483647;
  for (let i = 0; i < 20000; ++i) {
    const span = 10 ** (13 * draw() - 4), low = draw() < 0.3 ? 0 : span * 10 ** (4 * draw() - 1), most = 2 + Math.floor(10 * draw());
    const y = (low, high, most) => ticks(low, high, most);
    for (const [axis, text] of [[y, tickText], ...Object.values(AXES).map((axis) => [axis.ticks, axis.tick])]) {
      const values = axis(low, low + span, most), texts = values.map((v) => text(v, values));
      if (new Set(texts).size < texts.length || /NaN|undefined/.test(texts)) same.push(texts.join(" | "));
    }
  }
  return same;
})()"""
TEXTS = """[timeTick(90, [0, 30, 60, 90]), timeTick(3720, [3660, 3720, 7200]), timeTick(9000, [5400, 7200, 9000]), timeTick(90061, [90061]),
  duration(99.6), duration(59), duration(3599.6), duration(7320), duration(100000), tickText(1500, [1500]), tickText(0.25, [0.25])].join(" | ")"""
TEXTS_EXPECTED = "90 s | 1 h 02 min | 2 h 30 min | 25:01:01 | 1 min 40 s | 59 s | 1 h 00 min | 2 h 02 min | 1 d 4 h | 1.5k | 0.25"


def check_numbers(page):
    same = page.run(SAME_TICKS)
    expect(same == [], f"{len(same)} axes have the same label twice: {same[:5]}")
    expect(page.run(TEXTS) == TEXTS_EXPECTED, f"numbers are {page.run(TEXTS)!r}")


def button(name):
    """The element with this phrase as its title."""
    return f"document.querySelector('.choice button[title=\"{says(name)}\"]')"


TOOLTIP = "[...document.querySelectorAll('.tooltip')].filter(t => !t.hidden).map(t => t.innerText).join()"


def check_lost(page):
    """At steps where a run has no loss, its last loss is not shown."""
    x, y, width, _ = page.run(BOX % 0)
    for at, there in ((0.2, True), (0.5, False)):
        page.mouse("mouseMoved", x + at * width, y + 70)
        page.settle()
        said = page.run(TOOLTIP)
        expect("whole\t" in said and ("lost\t" in said) == there, f"at {at} the tooltip says {said!r}")


def check_ended(page):
    """After its end a run has no value; the tooltip has the step of the cursor."""
    x, y, width, _ = page.run(BOX % 0)
    page.mouse("mouseMoved", x + 0.5 * width, y + 70)
    page.settle()
    said = page.run(TOOLTIP)
    step = int(re.match(pattern("step.at", step=r"([\d,]+)"), said)[1].replace(",", ""))
    expect(9000 < step < 11000 and "run\t" in said and "short" not in said, f"in the middle the tooltip says {said!r}")


def check_words(page, folder):
    def text_of(one):
        page.open(folder / f"{one}.html")
        return page.run("document.body.innerText")

    text = text_of("often")
    expect(says("report.dotted") in text and says("report.rings") not in text, "200 evaluations are no rings")
    dashes = page.run("[...document.querySelectorAll('path.validation')].map(p => p.getAttribute('stroke-dasharray')).join()")
    expect(dashes == "0.1 4", f"validation is drawn {dashes!r}")
    expect(says("report.band") in text and says("report.each_step") not in text, "where steps share a pixel none is drawn by itself")
    for _ in range(3):
        page.run(f"{button('report.zoom_in')}.click()")
    text = page.run("document.body.innerText")
    expect(says("report.each_step") in text and says("report.band") not in text, "looked at closely each step is drawn")
    title = says("report.memory")
    memory = page.run(f"[...document.querySelectorAll('figure')].filter(f => f.innerText.startsWith('{title}')).map(f => f.innerText).join()")
    expect(re.search(rf"{re.escape(title)}\s+{pattern('report.peak')}[^a-zA-Z]*\b40\b", memory), f"memory without a plan: {memory!r}")
    expect(says("report.planned_memory") not in text, "memory of no plan")
    expect(f"\n{says('part.products')}\t" in text, f"parts are not called as in plans: {text[-2500:]}")
    text = text_of("run")
    expect(says("report.rings") in text and says("report.dotted") not in text, "40 evaluations are rings")
    expect(says("report.planned_memory") in text, "memory of a plan")
    expect("plan 49% (44.5% to 54.4% in 80% of similar runs)" in text, f"the range of the plan's MFU: {text[:900]}")
    expect("plan 370 ms (333 ms to 407 ms in 80% of similar runs)" in text, f"the range of the plan's step: {text[:900]}")
    expect(re.search(rf"{pattern('report.whole_step')}[^\n]*\n[^\n]*{pattern('report.for_checkpoints')}", text), "checkpoints do not stand below the step")
    starts = page.run("document.querySelector('.starts').textContent")
    expect(says("report.more_hosts", hosts="gpu-a, gpu-b, gpu-2, gpu-3", count=60) in starts, f"hosts of a start: {starts!r}")
    text = text_of("nowhere")
    not_finite = rf"{pattern('label.loss')}\s+{pattern('report.not_finite')}\s+"
    expect(re.search(not_finite + pattern("report.at_no_step"), text) and says("report.no_finite_loss") in text, f"no loss: {text[:600]}")
    text = text_of("diverged")
    expect(re.search(not_finite + pattern("report.last_finite", loss=r"2\.\d+", step=r"450\b"), text), f"a loss that ended: {text[:600]}")
    text = text_of("several")
    expect(says("report.best").upper() in text.upper() and says("report.no_end") in text
           and says("report.of_steps", steps="20,000") not in text, f"the comparison: {text[:900]}")
    text = text_of("unequal")
    differ = f"{says('report.values_differ', count=2, all=3)}. {says('report.unknown_configuration', run='bare')}"
    expect(says("report.values_differ", count=3, all=3) not in text and differ in text, f"configurations: {text[-1500:]}")
    expect(all(part in text for part in (
        says("report.left_out"), f"{says('report.of_steps', steps=500)}, 80%", says("report.ended"), says("report.stopped"),
        "out of memory")), f"states: {text[:1500]}")
    heads = page.run("[...document.querySelectorAll('section.long th')].map(h => h.textContent).join()")
    key = says("report.key")
    expect(heads.endswith(f"{key},whole,half,{key},whole,half"), f"configurations are of {heads}")
    text = text_of("stuck")
    expect(says("report.planned_memory") not in text, "a plan of no memory is shown")
    expect(says("report.no_steps") in text and "11 \u2013 10" not in text, f"starts: {text[-2500:]}")


def check_many(page, phone):
    """With ten runs the legend is small, the tooltip is not cut, and later runs are striped."""
    high = page.run("document.querySelector('.toolbar').offsetHeight / innerHeight")
    expect(high < 0.2, f"the legend covers {100 * high:.0f} % of the screen")
    striped = page.run("[...document.querySelectorAll('.legend input')].map(i => getComputedStyle(i).backgroundImage != 'none' ? 's' : '-').join('')")
    expect(striped == "--------ss", f"striped in the legend: {striped}")
    page.run("document.querySelector('.plot svg').scrollIntoView({block: 'center'})")
    x, y, width, height = page.run(BOX % 0)
    if phone:
        page.touch("touchStart", (x + 0.5 * width, y + 90))
        page.touch("touchEnd")
    else:
        page.mouse("mouseMoved", x + 0.5 * width, y + 90)
    page.settle()
    striped = page.run("document.querySelectorAll('.tooltip .swatch.dashed').length")
    expect(striped == 4, f"{striped} stripes in the tooltip")
    names = page.run("['h1', '.lead', '.legend label', 'td.name', '.tooltip td'].map(s => document.querySelectorAll(s + ' bdi').length).join()")
    expect(names == "0,10,10,10,10", f"names that may be written from right to left: {names}")
    cut = page.run("(() => { const t = [...document.querySelectorAll('.tooltip')].find(t => !t.hidden), b = t.getBoundingClientRect();"
                   "return [...t.querySelectorAll('td:last-child, td:last-child *')].filter(e => e.getBoundingClientRect().right > Math.min(b.right, innerWidth)).length; })()")
    expect(cut == 0, f"{cut} numbers of the tooltip are cut")
    if phone:
        top = page.run("[...document.querySelectorAll('.tooltip')].find(t => !t.hidden).getBoundingClientRect().y")
        expect(top >= y + height - 1, "the tooltip covers the chart")
        check_phone_table(page)


# Names of runs that their legend, tooltip or cell does not show in full.
CUT_NAMES = """[...document.querySelectorAll('bdi')].filter(b => { const e = b.closest('span, td, th, h3') ?? b.parentElement, s = getComputedStyle(e);
  return s.overflowX != 'visible' && e.scrollWidth > e.clientWidth; }).map(b => b.textContent)"""


def check_phone_table(page):
    """The table of runs is wider than the screen: it scrolls in its own box, and a shadow at its edge shows it."""
    names = page.run(CUT_NAMES)
    expect(names == [], f"names are cut: {names}")
    width, all_of_it, overflow, left = page.run("(() => { const s = document.querySelector('.comparison'), first = s.querySelector('td');"
                                               "s.scrollIntoView(); s.scrollLeft = 100;"
                                               "return [s.clientWidth, s.scrollWidth, getComputedStyle(s).overflowX, first.getBoundingClientRect().x - s.getBoundingClientRect().x]; })()")
    expect(all_of_it > width and overflow == "auto", f"the table of {all_of_it} in {width} pixels: {overflow}")
    expect(abs(left) < 1, "the names scroll along")
    expect(page.run("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen")

    def edge(scrolled):
        """Pixels of the box's right edge, above the heads."""
        x, y = page.run(f"(() => {{ const s = document.querySelector('.comparison'); s.scrollLeft = {scrolled};"
                        "const b = s.getBoundingClientRect(); return [b.right + scrollX, b.y + scrollY]; })()")
        page.settle()
        clip = {"x": x - 8, "y": y + 2, "width": 8, "height": 4, "scale": 1}
        return page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]

    expect(edge(0) != edge(1e6), "nothing shows that the table goes on")


# The position of a chart, and the visible part of its axis.
BOX = "(() => { const b = document.querySelectorAll('.plot svg')[%d].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
TICKS = "[...document.querySelector('.plot svg').querySelectorAll('text')].map(t => t.textContent).join(' ')"
ZOOMED = f"!{button('report.zoom_out')}.disabled"
PATHS = "document.querySelectorAll('.plot svg path.curve[stroke=\"var(--run-0)\"]').length"


def check_still(page, where):
    if page.run("innerWidth") >= 1200:
        cut = page.run("[...document.querySelectorAll('.comparison')].map(e => e.scrollWidth - e.clientWidth).filter(e => e > 0).join()")
        expect(cut == "", f"{where}: the table of figures is {cut} pixels too wide")
    expect(page.said == [], f"{where}: the console says {page.said}")
    expect(all(url.startswith("file:") for url in page.requests) and len(page.requests) == 1, f"{where}: asks for {page.requests}")
    wide = page.run("document.documentElement.scrollWidth - innerWidth")
    expect(wide <= 0, f"{where}: {wide} pixels too wide")
    bad = page.run("[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some(a => /NaN|Infinity|undefined/.test(a.value))).length")
    expect(bad == 0, f"{where}: {bad} elements without a place")
    text = page.run("document.body.innerText")
    expect("NaN" not in text and "undefined" not in text and "[object" not in text, f"{where}: it shows NaN or the like")
    expect(page.run("document.querySelectorAll('main img').length") == 0, f"{where}: text of a file became an element")
    small = page.run("[...document.querySelectorAll('.plot svg text')].filter(t => { const b = t.getBoundingClientRect(); return b.x < -1 || b.right > innerWidth + 1; }).length")
    expect(small == 0, f"{where}: {small} labels are cut")


def check_mouse(page):
    x, y, width, _ = page.run(BOX % 0)
    before, paths = page.run(TICKS), page.run(PATHS)
    expect(not page.run(ZOOMED) and paths > 0, "it begins with all steps")
    page.drag(x + 0.5 * width, y + 60, x + 0.6 * width, y + 80)
    page.settle()
    expect(page.run(ZOOMED) and page.run(TICKS) != before, "a drag does not look closer")
    page.mouse("mouseMoved", x + 0.5 * width, y + 70)
    page.settle()
    tooltip = page.run("[...document.querySelectorAll('.tooltip')].filter(t => !t.hidden).map(t => t.textContent).join()")
    expect(re.search(pattern("step.at"), tooltip) and says("report.title_of_loss") in tooltip, f"the tooltip says {tooltip!r}")
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, x + 0.5 * width, y + 70, button="left", clickCount=1)
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, x + 0.5 * width, y + 70, button="left", clickCount=2)
    page.settle()
    expect(page.run(TICKS) == before, "a double click does not show all")
    page.run(f"{button('report.zoom_in')}.click()")
    expect(page.run(ZOOMED), "the button does not look closer")
    page.run(f"{button('report.zoom_out')}.click()")
    for axis in ("report.over_time", "report.over_tokens", "report.over_steps"):
        page.run(f"{button(axis)}.click()")
        page.settle()
        check_still(page, says(axis))


def check_keys(page):
    page.run("document.querySelector('.plot svg').focus()")
    before = page.run(TICKS)
    for key in ("ArrowRight", "ArrowRight", "+", "+"):
        page.key(key)
    page.settle()
    near = page.run(TICKS)
    expect(near != before and page.run(ZOOMED), "+ does not look closer")
    expect(page.run("!document.querySelector('.tooltip').hidden"), "keys show no values")
    page.key("ArrowLeft", shift=True)
    page.settle()
    expect(page.run(TICKS) != near, "shift and an arrow do not move")
    page.key("0")
    page.settle()
    expect(page.run(TICKS) == before, "0 does not show all")


def check_fingers(page):
    page.run("document.querySelector('.plot svg').scrollIntoView({block: 'center'})")
    x, y, width, _ = page.run(BOX % 0)
    before = page.run(TICKS)
    page.touch("touchStart", (x + 0.5 * width, y + 90))
    page.settle()
    expect(page.run("!document.querySelector('.tooltip').hidden"), "a touch shows no values")
    page.touch("touchEnd")
    page.touch("touchStart", (x + 0.45 * width, y + 90), (x + 0.55 * width, y + 90))
    for i in range(1, 6):
        page.touch("touchMove", (x + (0.45 - 0.05 * i) * width, y + 90), (x + (0.55 + 0.05 * i) * width, y + 90))
    page.touch("touchEnd")
    page.settle()
    expect(page.run(ZOOMED) and page.run(TICKS) != before, "spreading two fingers does not look closer")


def check_legend(page):
    paths = page.run(PATHS)
    page.run("document.querySelector('.legend input').click()")
    page.settle()
    expect(paths > 0 and page.run(PATHS) == 0, "a run that is switched off stays")
    page.run("document.querySelector('.legend input').click()")
    page.settle()
    expect(page.run(PATHS) == paths, "a run that is switched on again does not come back")


# Colours of the drawn branches, and the labels of the vertical axis of the loss.
DASHED = "[...new Set([...document.querySelectorAll('.plot svg path.curve[stroke-dasharray=\"4 3\"]')].map(p => p.getAttribute('stroke')))].join()"
HEIGHTS = "[...document.querySelector('.plot svg').querySelectorAll('text[x=\"44\"]')].map(t => t.textContent).join()"


def check_branches(page, folder):
    """A branch is pale and dashed, has a value under the cursor, and is hidden by its box. Many runs show none."""
    page.open(folder / "back.html")
    name = says("report.branch", rollback=1, first=301, last=500)
    labels = page.run("[...document.querySelectorAll('.legend label')].map(l => l.textContent).join('|')")
    expect(labels == f"back|{name}", f"the legend says {labels!r}")
    expect(page.run(DASHED) == "color-mix(in srgb, var(--run-0) 60%, var(--page))", f"branches are {page.run(DASHED)!r}")
    expect(page.run("document.querySelectorAll('.plot svg path.curve[stroke-dasharray=\"4 3\"]').length") == 3, "three curves have a branch")
    colour = page.run("getComputedStyle(document.querySelectorAll('.legend input')[1]).getPropertyValue('--colour')")
    drawn = page.run("getComputedStyle(document.querySelector('.plot svg path.curve[stroke-dasharray=\"4 3\"]')).stroke")
    expect(colour and drawn.startswith("color("), f"a branch is drawn in {drawn!r}")
    heights, steps = page.run(HEIGHTS), page.run(TICKS)
    x, y, width, _ = page.run(BOX % 0)
    for at, there in ((0.3, False), (0.7, True), (0.98, True)):
        page.mouse("mouseMoved", x + 52 + at * (width - 60), y + 70)
        page.settle()
        said = page.run(TOOLTIP)
        expect((name in said) == there and ("back\t" in said) == (at < 0.9), f"at {at} the tooltip says {said!r}")
    page.run("document.querySelectorAll('.legend input')[1].click()")
    page.settle()
    expect(page.run(DASHED) == "" and page.run(TICKS) != steps, "a branch that is switched off stays")
    expect(page.run(HEIGHTS) == heights, "a branch that diverged changes the axis of the run")
    page.run("document.querySelectorAll('.legend input').forEach(i => i.click())")  # the branch alone
    page.settle()
    expect(page.run(DASHED) != "" and page.run(HEIGHTS) != heights, "without the run, the axis is not that of the branch")
    page.open(folder / "backs.html")
    labels = page.run("[...document.querySelectorAll('.legend label')].map(l => l.textContent).join('|')")
    expect(labels == f"short|back|back, {name}", f"the legend of two runs says {labels!r}")
    page.open(folder / "many.html")
    expect(page.run(DASHED) == "", "ten runs have branches")


def main():
    if chromium.find() is None:
        print("skipped: chromium is not installed (Debian package chromium)")
        sys.exit(77)
    pictures = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_run(folder / "run", 20000, 1)
        make_run(folder / "short", 3, 2)
        make_run(folder / "one", 1, 2)
        make_run(folder / ("evil <b>" + EVIL.replace("/", "|")), 900, 3, evil=True)
        evil = next(folder.glob("evil*"))
        make_run(folder / "often", 3000, 1, evaluations=200)
        (folder / "often" / "plan.json").unlink()
        make_run(folder / "nowhere", 30, 1, finite=0)
        make_run(folder / "diverged", 500, 1, finite=0.9)
        make_run(folder / "lost", 500, 1, finite=0.3)
        make_unequal(folder)
        make_stuck(folder / "stuck")
        make_run(folder / "back", 500, 1)
        go_back(folder / "back", 300)
        many = [f"a run whose name is long, and that is number {i}" for i in range(10)]
        for i, one in enumerate(many):
            make_run(folder / one, 400, i)
        go_back(folder / many[0], 300)
        pages = {"often": ["often"], "nowhere": ["nowhere"], "diverged": ["diverged"], "unequal": ["whole", "half", "bare", "empty"], "lost": ["whole", "lost"], "stuck": ["stuck"], "many": many, "back": ["back"], "backs": ["short", "back"],
                 "run": ["run"], "short": ["short"], "one": ["one"], "evil": [evil.name], "several": ["run", "short", evil.name]}
        for page, runs in pages.items():
            subprocess.run([LOCKSTEP, "report", *[str(folder / run) for run in runs], "--out", str(folder / f"{page}.html")],
                           check=True, capture_output=True)
        for dark, phone in ((False, False), (True, False), (False, True)):
            mode = "phone" if phone else "dark" if dark else "light"
            with chromium.Page(390 if phone else 1200, 844 if phone else 900, dark, phone) as page:
                colours = []
                for one in pages:
                    page.requests.clear()
                    page.open(folder / f"{one}.html")
                    check_still(page, f"{one}, {mode}")
                    colours.append(page.run("getComputedStyle(document.body).backgroundColor"))
                    expect(page.run("document.querySelectorAll('h2').length") >= 4, f"{one}: sections are missing")
                    if pictures:
                        page.picture(pictures / f"{one}-{mode}.png")
                brightness = sum(map(int, colours[0][4:-1].split(","))) / 3
                expect((brightness < 80) == dark, f"{mode}: the page is {colours[0]}")
                page.requests.clear()
                page.open(folder / "run.html")
                if phone:
                    check_fingers(page)
                else:
                    check_mouse(page)
                    check_keys(page)
                    page.requests.clear()
                    page.open(folder / "several.html")
                    check_legend(page)
                    check_numbers(page)
                    check_ended(page)
                    page.open(folder / "lost.html")
                    check_lost(page)
                    check_words(page, folder)
                    check_branches(page, folder)
                page.open(folder / "many.html")
                check_many(page, phone)
                expect(page.said == [], f"{mode}: in the end the console says {page.said}")
    print("failed" if failures else "ok")
    sys.exit(1 if failures else 0)


main()
