#!/usr/bin/env python3
"""The page of `lockstep report` in a browser: nothing is asked of the network or said to the console, in light
and dark and on a phone nothing is cut, and mouse, fingers and keys look closer.

usage: report_page_test.py LOCKSTEP [PICTURES]

PICTURES: a directory for screenshots. Exit 77 (skipped) without Chromium.
"""

import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

import chromium

LOCKSTEP = sys.argv[1]
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


EVIL = "<img src=x onerror=alert(1)></script><b>"


def make_run(run, steps, seed, evil=False):
    """What a run of so many steps leaves, with a spike, a stop, and a plan."""
    rng = random.Random(seed)
    run.mkdir(parents=True)
    time = begin = 1.79e9
    ledger = [{"event": "start", "time_seconds": begin, "step": 0, "ranks": 8, "hosts": ["gpu-a", EVIL if evil else "gpu-b"]}]
    time += 40
    with open(run / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            seconds = 0.4 * (1 + abs(rng.gauss(0, 0.01)))
            time += seconds
            line = {"step": step, "loss": 2.9 - seed / 20 + 8 * math.exp(-step / (0.012 * steps)) + math.exp(-4 * step / steps) + rng.gauss(0, 0.03),
                    "grad_norm": 0.3 + abs(rng.gauss(0, 0.05)), "learning_rate": 1e-3 * min(1, 50 * step / steps) * (1.05 - step / steps),
                    "step_seconds": seconds, "tokens_per_second": 65536 / seconds, "mfu": 0.18 / seconds,
                    "tokens_seen": 65536 * step, "peak_bytes": 61203283968, "products_seconds": 0.72 * seconds,
                    "attention_seconds": 0.1 * seconds, "optimizer_seconds": 0.03 * seconds, "time_seconds": time}
            if step == steps * 2 // 3:
                line["loss"] = 1e30 if evil else 9.5
            if step == steps // 2:
                line["loss"] = None
            if step % max(steps // 40, 1) == 0:
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
        "format": "lockstep plan 1", "step_seconds": 0.37, "tokens_per_second": 177000, "mfu": 0.49, "mfu_square": 0.52,
        "components": [{"name": "products", "seconds": 0.28}, {"name": EVIL if evil else "attention", "seconds": 0.03}],
        "memory": [{"name": "weights", "bytes": 30_000_000_000}, {"name": "activations", "bytes": 25_000_000_000}],
        "capacity_bytes": 85_000_000_000, "checkpoint_bytes": 17_000_000_000, "cluster": EVIL if evil else "8 GPUs"}))


# Where a chart is, and what part of the axis is seen.
BOX = "(() => { const b = document.querySelectorAll('.plot svg')[%d].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
TICKS = "[...document.querySelector('.plot svg').querySelectorAll('text')].map(t => t.textContent).join(' ')"
ZOOMED = "!document.querySelector('.choice button[title=\"show all steps\"]').disabled"
PATHS = "document.querySelectorAll('.plot svg path.curve[stroke=\"var(--run-0)\"]').length"


def check_still(page, where):
    expect(page.said == [], f"{where}: the console says {page.said}")
    expect(all(url.startswith("file:") for url in page.requests) and len(page.requests) == 1, f"{where}: asks for {page.requests}")
    wide = page.run("document.documentElement.scrollWidth - innerWidth")
    expect(wide <= 0, f"{where}: {wide} pixels too wide")
    bad = page.run("[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some(a => /NaN|Infinity|undefined/.test(a.value))).length")
    expect(bad == 0, f"{where}: {bad} elements without a place")
    text = page.run("document.body.innerText")
    expect("NaN" not in text and "undefined" not in text and "[object" not in text, f"{where}: it says NaN or the like")
    expect(page.run("document.querySelectorAll('main img').length") == 0, f"{where}: what a file says became an element")
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
    expect("step" in tooltip and "Loss" in tooltip, f"the tooltip says {tooltip!r}")
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, x + 0.5 * width, y + 70, button="left", clickCount=1)
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, x + 0.5 * width, y + 70, button="left", clickCount=2)
    page.settle()
    expect(page.run(TICKS) == before, "a double click does not show all")
    page.run("document.querySelector('.choice button[title=\"zoom in\"]').click()")
    expect(page.run(ZOOMED), "the button does not look closer")
    page.run("document.querySelector('.choice button[title=\"show all steps\"]').click()")
    for axis in ("time", "tokens", "steps"):
        page.run(f"document.querySelector('.choice button[title=\"over {axis}\"]').click()")
        page.settle()
        check_still(page, f"over {axis}")


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
        pages = {"run": ["run"], "short": ["short"], "one": ["one"], "evil": [evil.name], "several": ["run", "short", evil.name]}
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
                expect(page.said == [], f"{mode}: in the end the console says {page.said}")
    print("failed" if failures else "ok")
    sys.exit(1 if failures else 0)


main()
