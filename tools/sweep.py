#!/usr/bin/env python3
"""Trains a configuration with several values of its keys, and compares the runs.

usage: sweep.py CONFIG.toml [--grid KEY=VALUES]... [--random KEY=RANGE]... [OPTIONS] [-- FLAGS]

  --grid optimizer.learning_rate=1e-3,3e-4       each value, combined with all values of other --grid keys
  --random optimizer.learning_rate=1e-4..1e-2    a number between the two; an integer if both are
  --random optimizer.learning_rate=log:1e-4..1e-2  the same, with an even distribution of the logarithm
  --random schedule.kind=cosine,wsd              one of the values

FLAGS are more flags of `lockstep train`. Each trial is a run, DIR/TRIAL, with its log in DIR/TRIAL.log.
At the end DIR/table.txt has the losses of all trials, and DIR/report.html their curves. A trial that
fails does not end the others. Ctrl-C stops all trials after a save. The same command resumes the sweep:
it skips trials that are done, and starts the others. More values add trials.

--slurm OPTIONS submits the trials as a job array with OPTIONS of sbatch (launch/cluster/train.sbatch).
The same command prints the table later, and submits again what has failed. Python 3.11.
"""

import argparse
import fcntl
import itertools
import json
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAIN_SBATCH = ROOT / "launch" / "cluster" / "train.sbatch"
MOST_RUNS = 16  # of a page of `lockstep report`
MOST_OF_NAME = 200  # characters of the directory of a trial
POLL_SECONDS = 0.2
VALUE = re.compile(r'\[[^\]]*\]|"[^"]*"|[^,]+')
RANGE = re.compile(r"(log:)?([-+.\deE]+?)\.\.([-+.\deE]+)")
SAFE = re.compile(r"[^\w.+=,-]+")


class Refused(Exception):
    """The sweep cannot start. The text states the fix."""


def key_and_text(argument):
    key, equals, text = argument.partition("=")
    if not equals or "." not in key or not text:
        raise Refused(f"{argument}: expected TABLE.KEY=VALUES")
    return key, text


def drawing(argument):
    """Returns the key, and a function that draws a value with a random.Random."""
    key, text = key_and_text(argument)
    match = RANGE.fullmatch(text)
    if not match:
        values = VALUE.findall(text)
        return key, lambda rng: rng.choice(values)
    try:
        low, high = (float(end) for end in match.groups()[1:])
    except ValueError as error:
        raise Refused(f"{argument}: expected KEY=LOW..HIGH, KEY=log:LOW..HIGH or KEY=A,B,C") from error
    logarithmic = match[1] is not None
    if not low < high or (logarithmic and low <= 0):
        raise Refused(f"{argument}: expected LOW < HIGH" + (", both above 0" if logarithmic else ""))
    integers = all(end.isdigit() for end in match.groups()[1:])

    def draw(rng):
        if integers and not logarithmic:
            return str(rng.randint(int(low), int(high)))
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if logarithmic else rng.uniform(low, high)
        return str(round(value)) if integers else f"{value:.4g}"
    return key, draw


def settings_of(options):
    """Returns the settings of each trial. The first N draws of a seed are the same for each --trials."""
    grid = [(key, VALUE.findall(text)) for key, text in map(key_and_text, options.grid)]
    draws = [drawing(argument) for argument in options.random]
    keys = [key for key, _ in [*grid, *draws, *map(key_and_text, set_by(options.flags))]]
    for key in keys:
        if keys.count(key) > 1:
            raise Refused(f"{key} is set twice; give it once in --grid, --random or --set")
    if not grid and not draws:
        raise Refused("nothing varies; pass --grid or --random")
    rng = random.Random(options.seed)
    drawn = [{key: draw(rng) for key, draw in draws} for _ in range(options.trials if draws else 1)]
    points = [dict(zip([key for key, _ in grid], values))
              for values in itertools.product(*(values for _, values in grid))]
    found = [{**point, **one} for one in drawn for point in points]
    return list({json.dumps(one): one for one in found}.values())


def set_by(flags):
    """Values of --set among flags of train."""
    following = [value for flag, value in zip(flags, flags[1:]) if flag == "--set"]
    return following + [flag[len("--set="):] for flag in flags if flag.startswith("--set=")]


def name_of(settings):
    """learning_rate=1e-3,seed=2; with tables where two keys have the same last part."""
    last = [key.split(".")[-1] for key in settings]
    parts = [(key if last.count(short) > 1 else short, value)
             for short, (key, value) in zip(last, settings.items())]
    return SAFE.sub("_", ",".join(f"{key}={value}" for key, value in parts))[:MOST_OF_NAME]


def write(path, text):
    """Writes a temporary file, and renames it to `path` when it is on disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


class Trial:
    def __init__(self, sweep, settings):
        self.settings, self.name = settings, name_of(settings)
        self.run, self.log = sweep / self.name, sweep / f"{self.name}.log"

    def flags(self):
        return ["--run", str(self.run)] + [word for key, value in self.settings.items()
                                           for word in ("--set", f"{key}={value}")]

    def state(self):
        """By the last line of the run's ledger."""
        last = (json_lines(self.run / "ledger.jsonl") or [{"event": "none"}])[-1]
        if last["event"] == "none":
            return "not started"
        if last["event"] != "end":
            return "started"
        return "done" if last["why"] == "done" else f"exit code {last['exit_code']}"


def json_lines(path):
    """The whole lines of a file that a run writes, without damaged ones."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


class Sweep:
    """DIR/sweep.json has the trials, in the order in which they were added, and the flags of train."""

    def __init__(self, options):
        self.path, self.flags = options.out.resolve(), options.flags
        self.lockstep = options.lockstep
        self.base = self.path / "base.toml"
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock = open(self.path / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused(f"{options.out}: another sweep.py runs in this directory; "
                          "wait for it, or pass another --out") from error
        wanted = settings_of(options)
        before = self.begun(options)
        added = [settings for settings in wanted if settings not in before]
        missing = [settings for settings in before if settings not in wanted]
        if missing:
            raise Refused(f"{options.out}: {len(missing)} of its trials are not in this command, first "
                          f"{name_of(missing[0])}; keep the old values and add new ones, or pass another --out")
        self.trials = [Trial(self.path, settings) for settings in before + added]
        names = [trial.name for trial in self.trials]
        for name in names:
            if names.count(name) > 1:
                raise Refused(f"two trials have the directory {name}: names are cut at {MOST_OF_NAME} characters, "
                              "and special characters become _; use other values")
        self.check(options.config, added)
        write(self.base, options.config.read_text(encoding="utf-8"))
        write(self.path / "sweep.json",
              json.dumps({"flags": self.flags, "trials": [trial.settings for trial in self.trials]}, indent=2) + "\n")

    def begun(self, options):
        """Returns the settings of trials of an earlier command in the directory."""
        file = self.path / "sweep.json"
        if not file.exists():
            return []
        before = json.loads(file.read_text(encoding="utf-8"))
        if before["flags"] != self.flags:
            raise Refused(f"{options.out} began with other flags of train: {shlex.join(before['flags'])}; "
                          "pass the same ones, or another --out")
        if self.base.read_bytes() != options.config.read_bytes():
            raise Refused(f"{options.config} differs from {options.out}/base.toml, with which the sweep began; "
                          "pass another --out")
        return before["trials"]

    def check(self, config, added):
        """Reports a wrong key or value before the first trial starts."""
        fixed = [word for text in set_by(self.flags) for word in ("--set", text)]
        for settings in added:
            words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            done = subprocess.run([self.lockstep, "config", config, *fixed, *words], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
            if done.returncode != 0:
                raise Refused(done.stderr.strip())

    def command(self, trial):
        return [self.lockstep, "train", str(self.base), *self.flags, *trial.flags()]


class Local:
    """Starts trials on this host, several at a time, each with its share of CPU cores and one GPU."""

    def __init__(self, sweep, parallel, gpus):
        self.sweep, self.gpus = sweep, gpus
        cores = sorted(os.sched_getaffinity(0))
        for found, kind in (cores, "CPU cores"), (gpus, "GPUs"):
            if parallel > len(found) > 0:
                raise Refused(f"--parallel {parallel}: expected at most {len(found)}, the number of {kind} here")
        self.shares = [cores[slot * len(cores) // parallel:(slot + 1) * len(cores) // parallel]
                       for slot in range(parallel)]
        self.running, self.codes, self.signal = {}, {}, None

    def stop(self, number, _):
        self.signal = number
        for process, _ in self.running.values():
            process.terminate()  # the trial saves and exits

    def train(self, trials):
        """Returns exit codes by name."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.stop)
        waiting = list(trials)
        while self.running or (waiting and self.signal is None):
            for slot in range(len(self.shares)):
                if waiting and slot not in self.running and self.signal is None:
                    self.start(slot, waiting.pop(0))
            time.sleep(POLL_SECONDS)
            for slot, (process, trial) in list(self.running.items()):
                if process.poll() is not None:
                    del self.running[slot]
                    if self.must_go_on(trial, process.returncode):
                        self.start(slot, trial)
                    else:
                        self.ended(trial, process.returncode)
        return self.codes

    def must_go_on(self, trial, code):
        """Whether a trial ended because its next phase needs another start."""
        said = trial.log.read_text(errors="replace").splitlines()[-5:]
        return code == 75 and self.signal is None and any("the next phase begins" in line for line in said)

    def start(self, slot, trial):
        environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": self.gpus[slot]} if self.gpus else {})}
        print(f"{trial.name}: training; its log is {os.path.relpath(trial.log)}", flush=True)
        with open(trial.log, "ab") as log:
            # A session of its own: Ctrl-C reaches sweep.py alone, which passes it on once.
            process = subprocess.Popen(self.sweep.command(trial), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=environment, start_new_session=True,
                                       preexec_fn=lambda: os.sched_setaffinity(0, self.shares[slot]))
        self.running[slot] = process, trial
        if self.signal is not None:  # it came meanwhile
            process.terminate()

    def ended(self, trial, code):
        self.codes[trial.name] = code if code >= 0 else 128 - code
        if code == 0:
            print(f"{trial.name}: done", flush=True)
            return
        last = (trial.log.read_text(errors="replace").strip().splitlines() or [""])[-1]
        print(f"{trial.name}: exit code {self.codes[trial.name]}: {last}", flush=True)


def gpus_of(flags):
    """Returns the values of CUDA_VISIBLE_DEVICES for one GPU each."""
    device = [value for flag, value in zip(flags, flags[1:]) if flag == "--device"]
    if device == ["cpu"] or "--device=cpu" in flags:
        return []
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [word for word in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if word]
    return [str(number) for number, _ in enumerate(pathlib.Path("/proc/driver/nvidia/gpus").glob("*"))]


def array_script(sweep):
    """A batch script whose task N trains the trial N, by the rules of train.sbatch."""
    directives = [line for line in TRAIN_SBATCH.read_text().splitlines()
                  if line.startswith("#SBATCH") and "--output" not in line and "--job-name" not in line]
    cases = [f"  {number}) log={shlex.quote(str(trial.log))} trial=({shlex.join(trial.flags())}) ;;"
             for number, trial in enumerate(sweep.trials)]
    command = shlex.join([sweep.lockstep, "train", str(sweep.base), *sweep.flags])
    return "\n".join(["#!/usr/bin/env bash", "# tools/sweep.py wrote this script.", *directives,
                      "case $SLURM_ARRAY_TASK_ID in", *cases, "esac",
                      f'exec bash {shlex.quote(str(TRAIN_SBATCH))} {command} "${{trial[@]}}" >>"$log" 2>&1', ""])


def submit(sweep, left, options):
    """Submits a job array of the trials, except if the array before it still has tasks."""
    record = sweep.path / "slurm_job"
    if record.exists():
        number = record.read_text().strip()
        queue = subprocess.run(["squeue", "--noheader", f"--jobs={number}"], capture_output=True, text=True)
        if queue.stdout.strip():
            print(f"the job array {number} still runs; the same command shows its table later")
            return
    if not left:
        return
    script = sweep.path / "array.sh"
    write(script, array_script(sweep))
    tasks = ",".join(str(sweep.trials.index(trial)) for trial in left)
    limit = f"%{options.parallel}" if options.parallel else ""
    done = subprocess.run(["sbatch", "--parsable", f"--array={tasks}{limit}", f"--job-name={sweep.path.name}",
                           f"--output={sweep.path}/slurm.log", *shlex.split(options.slurm), script],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"sbatch failed: {done.stderr.strip()}")
    number = done.stdout.strip().split(";")[0]
    write(record, f"{number}\n")
    print(f"submitted {len(left)} trials as the job array {number}; the same command shows their table later")


def row_of(trial, codes):
    """Returns the values of a row of the table, and what it is sorted by."""
    lines = json_lines(trial.run / "metrics.jsonl")
    evaluated = [(line["validation_loss"], line["step"]) for line in lines if line.get("validation_loss") is not None]
    best = min(evaluated, default=(None, None))
    last = evaluated[-1][0] if evaluated else None
    loss = lines[-1]["loss"] if lines else None
    rates = [line["tokens_per_second"] for line in lines if line.get("tokens_per_second")]
    code = codes.get(trial.name)
    state = f"exit code {code}" if code else trial.state()
    row = [trial.name, state, lines[-1]["step"] if lines else None, number(last), number(best[0]), best[1],
           number(loss), f"{statistics.median(rates):.0f}" if rates else None]
    missing = math.inf
    return (missing if best[0] is None else best[0], missing if loss is None else loss), row


def number(value):
    return None if value is None else f"{value:.4f}"


def table(sweep, codes):
    """Returns the trials, best first, and the table."""
    rows = sorted(((*row_of(trial, codes), trial) for trial in sweep.trials), key=lambda row: row[0])
    head = ["trial", "state", "step", "validation loss", "best", "at step", "loss", "tokens/s"]
    cells = [head] + [["" if cell is None else str(cell) for cell in row] for _, row, _ in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    text = "".join("  ".join(cell.ljust(width) if column < 2 else cell.rjust(width)
                             for column, (cell, width) in enumerate(zip(row, widths))).rstrip() + "\n"
                   for row in cells)
    return [trial for _, _, trial in rows], text


def finish(sweep, codes):
    """Prints the table and writes the page. Returns whether all trials are done."""
    ranked, text = table(sweep, codes)
    print(text, end="")
    write(sweep.path / "table.txt", text)
    runs = [trial.run for trial in ranked if json_lines(trial.run / "metrics.jsonl")][:MOST_RUNS]
    page = sweep.path / "report.html"
    if runs:
        done = subprocess.run([sweep.lockstep, "report", *runs, "--out", page], capture_output=True, text=True)
        print(f"the curves of {len(runs)} trials are in {os.path.relpath(page)}" if done.returncode == 0 else done.stderr.strip())
    return all(trial.state() == "done" for trial in sweep.trials)


def read_options():
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path, metavar="CONFIG.toml")
    parser.add_argument("--grid", action="append", default=[], metavar="KEY=VALUES")
    parser.add_argument("--random", action="append", default=[], metavar="KEY=RANGE")
    parser.add_argument("--trials", type=int, default=10, metavar="N", help="number of random draws (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the draws (default 1)")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="directory of the sweep (default: runs/NAME_sweep for NAME.toml)")
    parser.add_argument("--parallel", type=int, metavar="N",
                        help="number of trials at a time (default: 1; with --slurm: no limit)")
    parser.add_argument("--slurm", metavar="OPTIONS", help='submit a job array, e.g. "--nodes=1 --ntasks-per-node=8"')
    parser.add_argument("--lockstep", default=shutil.which("lockstep") or str(ROOT / "build" / "cpu" / "lockstep"),
                        metavar="PROGRAM",
                        help="the program lockstep (default: the one in PATH, otherwise build/cpu/lockstep)")
    options = parser.parse_args(words[:cut])
    options.flags = words[cut + 1:]
    options.out = options.out or pathlib.Path("runs") / f"{options.config.stem}_sweep"
    return options


def check_options(options):
    if any(flag == "--run" or flag.startswith("--run=") for flag in options.flags):
        raise Refused("--run: the sweep names the directory of each run; pass --out DIR")
    if options.trials < 1 or (options.parallel is not None and options.parallel < 1):
        raise Refused("--trials and --parallel: expected at least 1")
    preset = ROOT / "configs" / f"{options.config}.toml"
    if not options.config.is_file() and preset.is_file():
        options.config = preset
    if not options.config.is_file():
        raise Refused(f"{options.config}: no such file; expected a configuration")
    if shutil.which(options.lockstep) is None:
        raise Refused(f"{options.lockstep}: no such program; pass --lockstep PROGRAM")
    options.lockstep = str(pathlib.Path(shutil.which(options.lockstep)).resolve())


def main():
    options = read_options()
    try:
        check_options(options)
        sweep = Sweep(options)
        left = [trial for trial in sweep.trials if trial.state() != "done"]
        print(f"{options.out}: {len(sweep.trials)} trials, {len(sweep.trials) - len(left)} of them done", flush=True)
        codes, stopped = {}, None
        if options.slurm is not None:
            submit(sweep, left, options)
        elif left:
            local = Local(sweep, options.parallel or 1, gpus_of(options.flags) if options.parallel else [])
            codes, stopped = local.train(left), local.signal
        all_done = finish(sweep, codes)
    except (Refused, OSError) as error:
        sys.exit(f"sweep.py: {error}")
    if stopped is not None:
        print("stopped; the same command resumes the sweep")
        sys.exit(128 + stopped)
    sys.exit(0 if all_done or options.slurm is not None else 1)


if __name__ == "__main__":
    main()
