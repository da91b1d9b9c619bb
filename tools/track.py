#!/usr/bin/env python3
"""Sends the metrics and the configuration of a run to MLflow or Weights & Biases.

usage: track.py RUN --to mlflow|wandb [--follow]

RUN is the directory of a run. Numbers of metrics.jsonl keep their names; true and false become 1 and
0, text is left out. config.toml becomes the parameters. --follow waits for new lines until the run is
done or the program gets Ctrl-C.

The packages of the trackers send the data, and their own variables configure them: pip install mlflow
(MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME) or wandb (WANDB_PROJECT, WANDB_MODE=offline). Python 3.11.

RUN/mlflow.sent and RUN/wandb.sent hold the id of the tracker's run and a fingerprint of each line that
was sent. Started again, the program continues after the last of them. A resume of the run may cut
metrics.jsonl and compute steps again: equal steps are not sent twice. If they differ, the tracker
cannot replace its points, so the program sends the whole file to a new run of the tracker.
"""

import argparse
import array
import fcntl
import hashlib
import json
import os
import pathlib
import signal
import sys
import time
import tomllib
import uuid

POLL_SECONDS = 1
RETRY_SECONDS = 30
LINES_AT_ONCE = 20  # MLflow takes 1000 metrics a request, and a line has fewer than 50
READ_BYTES = 16 << 20


class Refused(Exception):
    """The program cannot work on this run. The text states the fix."""


class MLflow:
    ignores_repeats = True  # its database stores an equal metric of a step once

    def __init__(self):
        import mlflow
        from mlflow.entities import Metric, Param, RunTag
        self.Metric, self.Param, self.RunTag = Metric, Param, RunTag
        self.errors = (mlflow.exceptions.MlflowException,)
        self.client = mlflow.MlflowClient()

    def experiment(self):
        if "MLFLOW_EXPERIMENT_ID" in os.environ:
            return os.environ["MLFLOW_EXPERIMENT_ID"]
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "Default")
        found = self.client.get_experiment_by_name(name)
        return found.experiment_id if found else self.client.create_experiment(name)

    def create(self, run, first):
        made = self.client.create_run(self.experiment(), start_time=milliseconds(first), run_name=run.name,
                                      tags={"lockstep.run": str(run)})
        return made.info.run_id

    def open(self, run_id, run):
        self.run_id = run_id
        self.client.update_run(run_id, status="RUNNING")

    def configure(self, configuration):
        """MLflow does not change a parameter. The later value becomes a tag."""
        known = self.client.get_run(self.run_id).data.params
        values = flat(configuration)
        new = [self.Param(key, value) for key, value in values.items() if key not in known]
        changed = [self.RunTag(f"changed.{key}", value) for key, value in values.items()
                   if known.get(key, value) != value]
        for begin in range(0, len(new), 100):  # a request takes 100 parameters
            self.client.log_batch(self.run_id, params=new[begin:begin + 100])
        self.client.log_batch(self.run_id, tags=changed)

    def log(self, lines):
        self.client.log_batch(self.run_id, [
            self.Metric(key, float(value), milliseconds(line), line["step"])
            for line in lines for key, value in numbers(line).items()])

    def close(self, outcome, last):
        """A run that is not done stays in the state RUNNING."""
        status = {"done": "FINISHED", "replaced": "KILLED"}.get(outcome)
        if status:
            self.client.set_terminated(self.run_id, status, end_time=milliseconds(last))


class WandB:
    ignores_repeats = False

    def __init__(self):
        import wandb
        self.wandb, self.errors, self.run = wandb, (wandb.errors.Error,), None

    def create(self, run, first):
        return uuid.uuid4().hex[:8]

    def open(self, run_id, run):
        # The system metrics of W&B would be those of this host, not of the run's hosts.
        settings = self.wandb.Settings(console="off", x_disable_stats=True)
        self.run = self.wandb.init(id=run_id, resume="allow", name=run.name, settings=settings)

    def configure(self, configuration):
        self.run.config.update(configuration, allow_val_change=True)

    def log(self, lines):
        for line in lines:
            self.run.log(numbers(line), step=line["step"], commit=True)

    def close(self, outcome, last):
        self.run.finish(exit_code=1 if outcome == "replaced" else 0)


TRACKERS = {"mlflow": MLflow, "wandb": WandB}


def milliseconds(line):
    return int(line["time_seconds"] * 1000)


def numbers(line):
    return {key: value for key, value in line.items()
            if key != "step" and isinstance(value, (bool, int, float))}


def flat(table, front=""):
    """{"train": {"steps": 6}} -> {"train.steps": "6"}"""
    found = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= flat(value, f"{front}{key}.")
        else:
            found[front + key] = value if isinstance(value, str) else json.dumps(value)
    return found


def fingerprint(line):
    """Two computations of a step are equal if these numbers are."""
    text = json.dumps([line["step"], line.get("loss"), line.get("grad_norm")])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class Sent:
    """RUN/NAME.sent: the id of the tracker's run, then a fingerprint of each line, in order."""

    def __init__(self, path):
        self.file = open(path, "a+b")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused(f"{path}: another track.py is sending this run; stop it first") from error
        self.file.seek(0)
        text = self.file.read()
        whole = text[:text.rfind(b"\n") + 1]
        self.file.truncate(len(whole))  # a power failure may cut the last line
        run_id, *lines = whole.decode().splitlines() or [None]
        self.run_id = run_id
        try:
            self.fingerprints = array.array("Q", (int(line, 16) for line in lines))
        except (ValueError, OverflowError) as error:
            raise Refused(f"{path}: damaged; remove it to send the run to a new run of the tracker") from error

    def begin(self, run_id):
        self.run_id = run_id
        self.write(f"{run_id}\n")

    def forget(self):
        self.file.truncate(0)
        self.run_id, self.fingerprints = None, array.array("Q")

    def add(self, lines):
        added = [fingerprint(line) for line in lines]
        self.fingerprints.extend(added)
        self.write("".join(f"{one:016x}\n" for one in added))

    def write(self, text):
        self.file.write(text.encode())
        self.file.flush()
        os.fsync(self.file.fileno())


class Lines:
    """Reads metrics.jsonl while a run appends to it, and begins again if a resume cut it."""

    def __init__(self, path):
        self.path = path
        self.last = None  # the newest line of a step
        self.rewind()

    def rewind(self):
        self.end, self.newest, self.step, self.count = 0, b"", 0, 0

    def read(self):
        """Returns (number of lines before it, line) for each complete new line."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.end - len(self.newest))
            if file.read(len(self.newest)) != self.newest:
                self.rewind()
            file.seek(self.end)
            data = file.read(READ_BYTES)
        data = data[:data.rfind(b"\n") + 1]
        self.end += len(data)
        found = []
        for self.newest in data.splitlines(keepends=True):
            line = parsed(self.newest)
            if line and line["step"] > self.step:
                found.append((self.count, line))
                self.last, self.step, self.count = line, line["step"], self.count + 1
        return found


def parsed(text):
    """Returns None for a line that is not one of a step."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    right = isinstance(line, dict) and type(line.get("step")) is int
    return line if right and isinstance(line.get("time_seconds"), (int, float)) else None


def is_done(run):
    """The last line of the ledger is the end of a run that did all its steps."""
    try:
        last = json.loads((run / "ledger.jsonl").read_bytes().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return False
    return last.get("event") == "end" and last.get("why") == "done"


class Bridge:
    def __init__(self, run, name):
        self.run, self.tracker = run, TRACKERS[name]()
        self.sent = Sent(run / f"{name}.sent")
        self.lines = Lines(run / "metrics.jsonl")
        self.is_open, self.configured = False, None

    def send_new_lines(self):
        """Returns whether the file had new lines."""
        found, new = self.lines.read(), []
        for count, line in found:
            if count >= len(self.sent.fingerprints):
                new.append(line)
            elif fingerprint(line) != self.sent.fingerprints[count]:
                self.replace(line)
                return True
        if new or self.is_open:
            self.open(new)
        for begin in range(0, len(new), LINES_AT_ONCE):
            self.send(new[begin:begin + LINES_AT_ONCE])
        return bool(found)

    def open(self, new):
        """Opens the tracker's run, and sends the configuration if a start of the run wrote it."""
        path = self.run / "config.toml"
        written = path.stat().st_mtime_ns
        if self.is_open and written == self.configured:
            return
        configuration = tomllib.loads(path.read_text(encoding="utf-8"))
        if self.sent.run_id is None:
            self.sent.begin(self.tracker.create(self.run, new[0]))
        if not self.is_open:
            self.tracker.open(self.sent.run_id, self.run)
        self.is_open = True
        self.tracker.configure(configuration)
        self.configured = written

    def send(self, lines):
        """If the program is killed here, MLflow gets lines again and ignores them; W&B lacks them."""
        if self.tracker.ignores_repeats:
            self.tracker.log(lines)
        self.sent.add(lines)
        if not self.tracker.ignores_repeats:
            self.tracker.log(lines)

    def replace(self, line):
        print(f"track.py: {self.run}: step {line['step']} was computed again, with another result; "
              "the whole run is sent to a new run of the tracker", file=sys.stderr)
        if not self.is_open:
            self.tracker.open(self.sent.run_id, self.run)
        self.is_open = True
        self.close("replaced")
        self.sent.forget()
        self.lines.rewind()

    def close(self, outcome):
        if self.is_open:
            self.tracker.close(outcome, self.lines.last)
        self.is_open = False


def send(bridge):
    """Sends the lines that are there. Returns whether the run is done."""
    done = is_done(bridge.run)
    while bridge.send_new_lines():
        pass
    return done


def follow(bridge):
    """Sends lines until the run is done. A tracker that fails is tried again."""
    while True:
        seconds = POLL_SECONDS
        try:
            if send(bridge):
                return
        except bridge.tracker.errors as error:
            bridge.lines.rewind()
            seconds = RETRY_SECONDS
            print(f"track.py: {error}; the next try is in {seconds} s", file=sys.stderr)
        time.sleep(seconds)


def transfer(bridge, following):
    outcome = "interrupted"
    try:
        if following:
            follow(bridge)
            outcome = "done"
        elif send(bridge):
            outcome = "done"
        if bridge.sent.run_id is None:
            raise Refused(f"{bridge.lines.path}: no step yet; pass --follow to wait for the run")
    except bridge.tracker.errors as error:
        raise Refused(f"the tracker failed: {error}; rerun the same command") from error
    finally:
        bridge.close(outcome)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, metavar="RUN", help="directory of the run")
    parser.add_argument("--to", required=True, choices=TRACKERS, help="the tracker")
    parser.add_argument("--follow", action="store_true", help="wait for new lines until the run is done")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    run = options.run.resolve()
    try:
        if not run.is_dir():
            raise Refused(f"{options.run}: no such directory; RUN is the directory of a run (train --run RUN)")
        bridge = Bridge(run, options.to)
        transfer(bridge, options.follow)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except ModuleNotFoundError as error:
        sys.exit(f"track.py: {error}; run `pip install {options.to}`")
    except (Refused, OSError) as error:
        sys.exit(f"track.py: {error}")
    print(f"{options.run}: {len(bridge.sent.fingerprints)} steps are in {options.to}, "
          f"run {bridge.sent.run_id}")


if __name__ == "__main__":
    main()
