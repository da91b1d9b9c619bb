#!/usr/bin/env python3
"""A run trains, stops, resumes and goes back. Its report has the numbers of metrics.jsonl, and two runs are compared.

usage: report_test.py LOCKSTEP
"""

import html.parser
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

import tiny_run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import says  # noqa: E402

LOCKSTEP = sys.argv[1]
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, code=0):
    done = subprocess.run([LOCKSTEP, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    expect(done.returncode == code, f"{arguments}: {done.returncode}, expected {code}: {done.stderr[-500:]}")
    return done.stdout + done.stderr


class Page(html.parser.HTMLParser):
    """The contents of a page: its tags, their links, and the block of data."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.links, self.inside, self.text = [], [], None, {}
        self.feed(path.read_text())
        self.data = json.loads(self.text["data"])

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.links += [attributes[name] for name in ("src", "href", "srcset", "action") if name in attributes]
        self.inside = attributes.get("id", tag)

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.text[self.inside] = self.text.get(self.inside, "") + data


def same(a, b):
    """True if the numbers are equal to six digits, as in the page."""
    return a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-5))


def check_data(data, lines):
    points, evaluations = data["points"], data["evaluations"]
    expect(points["step"] == [m["step"] for m in lines], f"steps {points['step']}")
    for metric in ("loss", "grad_norm", "learning_rate", "tokens_per_second", "mfu"):
        expect(all(same(a, m[metric]) for a, m in zip(points[metric], lines)), f"{metric} {points[metric]}")
    expect(points["tokens"] == [m["tokens_seen"] for m in lines], f"tokens {points['tokens']}")
    validated = [m for m in lines if "validation_loss" in m]
    expect(evaluations["step"] == [m["step"] for m in validated], f"evaluations {evaluations['step']}")
    expect(all(same(a, m["validation_loss"]) for a, m in zip(evaluations["validation_loss"], validated)), "validation")
    figures = data["figures"]
    best = min(validated, key=lambda m: m["validation_loss"])
    expect(figures["best_step"] == best["step"] and figures["last_step"] == lines[-1]["step"], f"figures {figures}")
    expect(figures["peak_bytes"] == float(f"{max(m['peak_bytes'] for m in lines):.5e}"), f"figures {figures}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_run.pack(LOCKSTEP, folder)
        config = tiny_run.configuration(folder, "llama3")
        a, b = folder / "a", folder / "b"
        run("train", config, "--run", a)
        run("train", config, "--run", a, "--set", "train.steps=9", "--extend")  # resumes
        run("train", config, "--run", b, "--set", "optimizer.learning_rate=0.01")

        said = run("report", a)
        expect("report.html" in said and says("log.warning") not in said, said)
        page = Page(a / "report.html")
        expect(page.links == [], f"refers to {page.links}")
        expect(page.tags.count("script") == 2 and "noscript" in page.tags, f"tags {page.tags}")
        expect(page.text["title"] == says("report.title", run="a"), page.text["title"])
        one = page.data["runs"][0]
        lines = tiny_run.metrics(a)
        expect(len(lines) == 9 and one["figures"]["planned_steps"] == 9, f"{len(lines)} lines, {one['figures']}")
        check_data(one, lines)
        configuration = {key: value for key, value, _ in one["configuration"]}
        expect(configuration["train.batch_tokens"] == "512" and configuration["model.head_size"] == "8", "configuration")
        expect(dict(one["environment"]).get("device") == "cpu", f"environment {one['environment']}")
        parts = [part["name"] for part in one["parts"]]
        expect(parts[:2] == ["products", "attention"], f"parts {parts}")

        run("report", a, b, "--out", folder / "both.html")
        both = Page(folder / "both.html").data["runs"]
        expect([r["name"] for r in both] == ["a", "b"], "two runs")
        check_data(both[1], tiny_run.metrics(b))
        rates = [dict((k, v) for k, v, _ in r["configuration"])["optimizer.learning_rate"] for r in both]
        expect(rates[0] != rates[1], f"learning rates {rates}")

        back = ("train", config, "--run", b, "--set", "optimizer.learning_rate=0.01", "--set", "checkpoint.every_steps=2")
        run(*back, "--set", "train.steps=9", "--extend")
        abandoned = [m for m in tiny_run.metrics(b) if m["step"] > 8]
        run(*back, "--set", "train.steps=9", "--from-step", 8)
        run("report", b)
        rolled_back = Page(b / "report.html").data["runs"][0]
        check_data(rolled_back, tiny_run.metrics(b))
        branch, = rolled_back["branches"]
        expect(branch["points"]["step"] == [9] and same(branch["points"]["loss"][0], abandoned[0]["loss"]), f"branch {branch}")
        facts = dict(rolled_back["environment"])
        expect(facts.get("rollbacks") == "1: to step 8" and facts.get("extensions") == "1: after step 6", f"facts {facts}")

        run("report", folder / "nowhere", code=65)
        run("report", a, b, code=64)
        run("report", code=64)
        run("report", a, "--out", folder, code=64)
        run("report", a, "--out", "/proc/report.html", code=65)
        run("report", a, b, "--out", folder / "both.html")  # again
        for file in (a / "metrics.jsonl", config):
            before = file.read_bytes()
            said = run("report", a, "--out", file, code=64)
            expect(str(file) in said and file.read_bytes() == before, f"{file}: {said}")
        damage(a / "metrics.jsonl", a, lines)
    print("failed" if failures else "ok")
    sys.exit(1 if failures else 0)


def damage(path, directory, lines):
    """For any bytes in the file, the report has a valid exit code and shows the undamaged lines."""
    good = path.read_bytes()
    rng = random.Random(7)
    for round_ in range(40):
        text = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            kind = rng.randrange(4)
            if kind == 0:
                text[at] = rng.randrange(256)
            elif kind == 1:
                del text[at:at + rng.randrange(1, 50)]
            elif kind == 2:
                text[at:at] = rng.choice([b"\n", b"1e999", b"9" * 400, b"{", b"\0\0", b'"loss":1,', b"NaN", b"\xff"])
            else:
                del text[at:]
        path.write_bytes(text)
        done = subprocess.run([LOCKSTEP, "report", str(directory)], capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode in (0, 65), f"round {round_}: {done.returncode}: {done.stderr[-300:]}")
        if done.returncode == 0:
            shown = Page(directory / "report.html").data["runs"][0]
            whole = set(good.split(b"\n")) & set(bytes(text).split(b"\n")[:-1])
            expect(len(shown["points"]["step"]) + 4 >= len(whole) - 1, f"round {round_}: {shown['notes']}")
            if bytes(text) != good and len(shown["points"]["step"]) < len(lines):
                expect(shown["notes"] or len(text) < len(good), f"round {round_}: there is no note")
    path.write_bytes(good)


main()
