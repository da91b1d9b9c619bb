#!/usr/bin/env python3
"""`lockstep watch` in a terminal that grows, shrinks and closes, for a run that starts, continues and is cut.

usage: watch_test.py LOCKSTEP
"""

import codecs
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import tiny_run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

LOCKSTEP = sys.argv[1]
PATIENCE = 60  # seconds
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


class Screen:
    """A terminal with the features that watch uses: its contents, and whether its modes are restored."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.lines, self.alternate, self.cursor, self.wraps = [""] * rows, False, True, True
        self.x = self.y = 0
        self.length = 0  # of the text in the row, beyond the edge too
        self.rest = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.seen = []  # the contents before each frame
        self.frames = 0  # since the last resize; a frame in progress then may have the previous size
        self.before = (columns, rows)

    def bounds(self):
        was = self.before if self.frames < 2 else (0, 0)
        return max(self.columns, was[0]), max(self.rows, was[1])

    def feed(self, data):
        text = self.rest + self.decoder.decode(data)
        self.rest = ""
        while text:
            escape = re.match(r"\x1b\[(\??)([0-9;]*)([A-Za-z])", text)
            if escape:
                self.obey(*escape.groups())
                text = text[escape.end():]
            elif text[0] == "\x1b":
                self.rest = text
                return
            else:
                self.put(text[0])
                text = text[1:]

    def obey(self, private, numbers, letter):
        if private:
            on = letter == "h"
            if numbers == "1049":
                self.alternate = on
            elif numbers == "25":
                self.cursor = on
            elif numbers == "7":
                self.wraps = on
            else:
                expect(False, f"an unknown mode {numbers}")
        elif letter == "H":
            self.x = self.y = self.length = 0
            self.frames += 1
            self.seen.append("\n".join(self.lines))
        elif letter == "K":
            self.lines[self.y] = self.lines[self.y][:self.x]
        elif letter == "J":
            self.lines[self.y] = self.lines[self.y][:self.x]
            for y in range(self.y + 1, self.rows):
                self.lines[y] = ""
        else:
            expect(letter == "m", f"an unknown sequence {letter}")

    def put(self, character):
        if character == "\r":
            self.x = self.length = 0
        elif character == "\n":
            expect(self.y + 1 < self.bounds()[1], "it scrolls")
            self.y = min(self.y + 1, self.rows - 1)
        else:
            line = self.lines[self.y].ljust(self.x)
            self.length += 1
            expect(self.length <= self.bounds()[0], f"a line is longer than {self.columns}: {line}")
            self.lines[self.y] = line[:self.x] + character + line[self.x + 1:]
            self.x = min(self.x + 1, self.columns - 1)  # the cursor stays on the last character

    def resize(self, columns, rows):
        self.before, self.frames = (self.columns, self.rows), 0
        self.columns, self.rows = columns, rows
        self.lines = [line[:columns] for line in (self.lines + [""] * rows)[:rows]]
        self.x, self.y = min(self.x, columns - 1), min(self.y, rows - 1)


class Watch:
    def __init__(self, run, columns=80, rows=24, typed=b"", **environment):
        self.screen = Screen(columns, rows)
        self.master, self.slave = pty.openpty()
        self.size(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        os.write(self.master, typed)  # before it starts

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [LOCKSTEP, "watch", str(run)], stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE,
            preexec_fn=own_terminal, env=dict(os.environ, **dict({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}, **environment)))

    def size(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        self.read(0.2)
        self.screen.resize(columns, rows)
        self.size(columns, rows)  # sends SIGWINCH

    def read(self, seconds):
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                return
            self.screen.feed(data)
            seconds = 0

    def text(self):
        return "\n".join(self.screen.lines)

    def until(self, what, condition):
        """Waits until the text of the screen satisfies the condition."""
        deadline = time.monotonic() + PATIENCE
        while not condition(self.text()):
            if time.monotonic() > deadline or self.process.poll() is not None:
                expect(False, f"never came: {what}; there is:\n{self.text()}")
                return False
            self.read(0.1)
        return True

    def ended(self, what, code):
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        self.read(0.1)
        if self.process.poll() is None:
            self.process.kill()
        got = self.process.wait()
        said = self.process.stderr.read().decode()
        self.process.stderr.close()
        expect(got == code, f"{what}: ended with {got}, expected {code}: {said}")
        screen = self.screen
        expect((screen.alternate, screen.cursor, screen.wraps) == (False, True, True), f"{what}: the screen is not as it was")
        expect(termios.tcgetattr(self.slave) == self.before, f"{what}: the terminal is not as it was")
        os.close(self.master)
        os.close(self.slave)


def line_of(step, loss, **more):
    return json.dumps(dict({"step": step, "loss": loss, "grad_norm": 0.5, "learning_rate": 1e-3, "step_seconds": 0.25,
                            "tokens_per_second": 4000.0, "mfu": 0.41, "mfu_square": None, "data_wait_seconds": 0,
                            "skipped": False, "tokens_seen": 1000 * step, "peak_bytes": 1 << 30, "products_seconds": 0.2,
                            "eta_seconds": 65.0, "time_seconds": time.time()}, **more)) + "\n"


def append(path, text):
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def has(*words):
    return lambda text: all(word in text for word in words)


def matches(*patterns):
    return lambda text: all(re.search(each, text) for each in patterns)


def row(label, *cells):
    """A pattern for a row of a table: a label and numbers."""
    return " +".join([pattern(label), *map(re.escape, cells)])


def follow(folder):
    """A run starts, grows, is cut and continues, while the window changes."""
    run = folder / "run"
    watch = Watch(run)
    watch.until("that it waits", has(says("watch.waits"), says("watch.no_metrics")))
    run.mkdir()
    metrics = run / "metrics.jsonl"
    (run / "config.toml").write_text("[train]\nsteps = 400\n")
    append(metrics, "".join(line_of(s, 5 - s / 100) for s in range(1, 101)))
    watch.until("the steps", matches(f"run  {pattern('step.of', step=100, steps=400)}  25.0%", pattern("watch.eta", time="1m"),
                                     row("label.loss", "4.0000"), "MFU +41.0%"))
    expect(re.search("[\u2801-\u28ff]", watch.text()), f"no curve:\n{watch.text()}")
    expect("\u2501" * 80 in watch.screen.lines, f"a row has lost its end:\n{watch.text()}")
    expect(any(re.fullmatch(" +1 +100", line) and len(line) == 80 for line in watch.screen.lines), f"the last step's number is cut:\n{watch.text()}")
    whole = line_of(101, 3.5, validation_loss=3.25)
    append(metrics, whole[:70])
    append(metrics, whole[70:])
    watch.until("one more", matches(pattern("step.of", step=101, steps=400),
                                      row("label.validation", says("watch.loss_at", loss="3.2500", step=101))))
    metrics.write_text("".join(line_of(s, 6.5) for s in range(1, 51)))  # a resume cuts it
    watch.until("that it was cut", matches(pattern("step.of", step=50, steps=400), row("label.loss", "6.5000")))
    expect("3.2500" not in watch.text(), f"a cut step is still shown:\n{watch.text()}")
    for columns, rows in [(120, 40), (40, 12), (20, 5), (3, 2), (1, 1), (80, 24)]:
        watch.resize(columns, rows)
        watch.until(f"a frame of {columns} x {rows}", lambda text: watch.screen.frames > 2 and text.startswith("run"[:columns]))
    watch.until("all of it again", has(says("step.of", step=50, steps=400), says("watch.rate")))
    (run / "plan.json").write_text(json.dumps({
        "format": "lockstep plan 1", "step_seconds": 0.2, "tokens_per_second": 5120, "mfu": 0.5, "mfu_square": None,
        "components": [{"name": "products", "seconds": 0.16}], "memory": [], "capacity_bytes": 1 << 30, "checkpoint_bytes": 1 << 20,
        "cluster": "one"}))
    watch.until("the plan", has(says("plan.beside", value="50.0%"), says("part.products"), "+25%"))
    (run / "plan.json").write_text("{")
    watch.until("that the plan is damaged", has("plan.json: "))
    append(metrics, line_of(51, 6, time_seconds=time.time() - 7200))
    watch.until("that nothing came for long", matches(pattern("watch.silent", time="2h0")))
    os.kill(watch.process.pid, signal.SIGTSTP)
    deadline = time.monotonic() + PATIENCE
    while pathlib.Path(f"/proc/{watch.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        if time.monotonic() > deadline:
            expect(False, "Ctrl-Z does not stop it")
            break
        watch.read(0.05)
    watch.read(0.1)
    expect(not watch.screen.alternate and watch.screen.cursor, "stopped, it keeps the screen")
    os.kill(watch.process.pid, signal.SIGCONT)
    watch.until("the screen again", lambda text: watch.screen.alternate and says("step.at", step=51) in text)
    os.write(watch.master, b"\x03")
    watch.ended("Ctrl-C", 130)


def ascii_alone(folder):
    """If the locale is not UTF-8, only ASCII is printed."""
    run = folder / "a caf\u00e9"
    run.mkdir()
    append(run / "metrics.jsonl", "".join(line_of(s, 5 - s / 100, **({"validation_loss": 4.5} if s % 25 == 0 else {})) for s in range(1, 101)))
    (run / "config.toml").write_text("[train]\nsteps = 400\n")
    watch = Watch(run, LC_ALL="C")
    step = says("step.of", step=100, steps=400)
    watch.until("the steps", has(f"a caf?  {step}", "*" * 20 + "-" * 60))
    watch.until("the loss", matches(row("label.loss", "4.0000")))
    curve = [line for line in watch.screen.lines if re.fullmatch(r"[ \d.]+[ *o]+", line)]
    expect("".join(curve).count("o") == 4, f"not a ring an evaluation:\n{watch.text()}")
    expect(watch.text().isascii(), f"not ASCII:\n{watch.text()}")
    os.write(watch.master, b"q")
    watch.ended("q", 0)
    watch = Watch(run, LC_ALL="xx_YY.UTF-8")  # this locale is not installed
    watch.until("the curve in dots", lambda text: re.search("[\u2801-\u28ff]", text))
    os.write(watch.master, b"q")
    watch.ended("q", 0)


def long_file(folder):
    """watch shows how much of a long file it has read, and a key ends it meanwhile."""
    run = folder / "long"
    run.mkdir()
    metrics = run / "metrics.jsonl"
    append(metrics, "".join(line_of(s, 3) for s in range(1, 11)))
    os.truncate(metrics, 130 << 20)  # a line of zeros that takes no disk space
    append(metrics, "\n" + line_of(11, 2.5))
    watch = Watch(run)
    watch.until("all of it", matches(pattern("step.at", step=11), row("label.loss", "2.5000")))
    shares = re.findall(pattern("watch.reading", percent=r"(\d+)"), "\n".join(watch.screen.seen))
    expect(shares == ["49", "98"], f"it shows {shares} percent")
    os.write(watch.master, b"q")
    watch.ended("q", 0)
    watch = Watch(run, typed=b"q")
    watch.ended("q while it reads", 0)
    expect("2.5000" not in "\n".join(watch.screen.seen) + watch.text(), "a key waits until all is read")


def endings(folder):
    run = folder / "run"
    for what, act, code in [("q", lambda w: os.write(w.master, b"q"), 0),
                            ("SIGTERM", lambda w: w.process.terminate(), 143),
                            ("SIGHUP", lambda w: w.process.send_signal(signal.SIGHUP), 129)]:
        watch = Watch(run, NO_COLOR="1")
        watch.until("a frame", has(says("step.at", step=51)))
        act(watch)
        watch.ended(what, code)
    watch = Watch(run)
    watch.until("a frame", has(says("step.at", step=51)))
    (run / "metrics.jsonl").rename(run / "aside")
    (run / "metrics.jsonl").mkdir()
    watch.ended("an error", 65)
    (run / "metrics.jsonl").rmdir()
    (run / "aside").rename(run / "metrics.jsonl")


def rolled_back(folder):
    """A run goes back to an earlier checkpoint while it is watched: the abandoned steps are gone."""
    tiny_run.pack(LOCKSTEP, folder)
    run = folder / "back"
    train = [LOCKSTEP, "train", str(tiny_run.configuration(folder, "llama3")), "--run", str(run), "--set", "checkpoint.every_steps=2",
             "--set", "schedule.kind=constant"]
    subprocess.run(train, check=True, capture_output=True, timeout=60)
    watch = Watch(run)
    watch.until("all steps", has(says("step.of", step=6, steps=6)))
    expect(says("watch.loss_at", loss=f"{tiny_run.metrics(run)[-1]['validation_loss']:.4f}", step=6) in watch.text(), f"no validation:\n{watch.text()}")
    subprocess.run([*train, "--set", "train.steps=5", "--from-step", "4"], check=True, capture_output=True, timeout=60)
    watch.until("that it went back", matches(pattern("step.of", step=5, steps=5), row("label.loss", f"{tiny_run.metrics(run)[-1]['loss']:.4f}")))
    expect(any(re.fullmatch(" +1 +5", line) for line in watch.screen.lines) and " at 6" not in watch.text(), f"abandoned steps:\n{watch.text()}")
    os.write(watch.master, b"q")
    watch.ended("q", 0)


def without_terminal(folder):
    done = subprocess.run([LOCKSTEP, "watch", str(folder / "run")], capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 0 and f"run: {says('step.of', step=51, steps=400)}" in done.stdout and "\x1b" not in done.stdout, f"plain: {done}")
    done = subprocess.run([LOCKSTEP, "watch", str(folder / "none")], capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 65 and says("watch.no_metrics") in done.stderr, f"none: {done}")
    odd = folder / "odd"
    odd.mkdir()
    append(odd / "metrics.jsonl", "junk\n")
    done = subprocess.run([LOCKSTEP, "watch", str(odd)], capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 65 and says("watch.left_out", count=1, line=1) in done.stderr, f"junk: {done}")
    (odd / "metrics.jsonl").write_text("".join(line_of(s, 3, data_wait_seconds=0.5 if s == 10 else 0) for s in range(1, 11)) + line_of(600, 3))
    append(odd / "ledger.jsonl", json.dumps({"event": "start", "time_seconds": time.time(), "step": 10, "ranks": 1, "hosts": ["a"]}) + "\n")
    done = subprocess.run([LOCKSTEP, "watch", str(odd)], capture_output=True, text=True, timeout=60, check=False)
    expect(says("watch.held_back", far=600, step=10) in done.stdout, f"held back: {done}")
    expect(re.search("odd: " + pattern("watch.start", step=10, time=r"\ds"), done.stdout), f"a start: {done}")
    expect(re.search("\n" + row("part.data", "50.0 ms", "20.0%"), done.stdout), f"waits that one step in ten has: {done}")


with tempfile.TemporaryDirectory() as name:
    follow(pathlib.Path(name))
    endings(pathlib.Path(name))
    ascii_alone(pathlib.Path(name))
    long_file(pathlib.Path(name))
    rolled_back(pathlib.Path(name))
    without_terminal(pathlib.Path(name))
print("failed" if failures else "ok")
sys.exit(1 if failures else 0)
