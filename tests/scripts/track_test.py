#!/usr/bin/env python3
"""tools/track.py sends each step of a run to a tracker once, through restarts of both.

usage: track_test.py [--packages] [unittest's arguments]

Without --packages the trackers are stand-ins (trackers/), else the packages mlflow and wandb of this
Python: MLflow's own client reads its database, and W&B's own protocol buffers read its offline files.
"""

import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from wording import says  # noqa: E402

TOOLS = HERE.parents[1] / "tools"
PACKAGES = "--packages" in sys.argv
# Starts track.py with short waits.
START = "import sys, track; track.POLL_SECONDS = track.RETRY_SECONDS = 0.05; track.main()"
BLOCK = 32768  # of a .wandb file
PATIENCE = 60

# What a tracker has of one of its runs. rows: (step, metrics) in the order of sending.
Tracked = collections.namedtuple("Tracked", "name rows configuration status")


def line(step, loss=None, seconds=0.5):
    values = {"step": step, "loss": 6 - step / 100 if loss is None else loss, "grad_norm": 1.5, "loss_z": None,
              "step_seconds": seconds, "skipped": False, "time_seconds": 1790000000.25 + step, "gpu_slowed_by": "heat"}
    if step % 10 == 0:
        values["validation_loss"] = 5.5
    return json.dumps(values) + "\n"


def lines(first, last, **values):
    return "".join(line(step, **values) for step in range(first, last + 1))


class Scenarios:
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.run_directory = self.root / "tiny"
        self.run_directory.mkdir()
        self.metrics = self.run_directory / "metrics.jsonl"
        self.configure(steps=60)
        self.environment = {
            **os.environ, "PYTHONPATH": str(TOOLS) if PACKAGES else f"{HERE / 'trackers'}:{TOOLS}",
            "PYTHONDONTWRITEBYTECODE": "1", "TRACKER_LOG": str(self.root / "calls"),
            "MLFLOW_TRACKING_URI": f"sqlite:///{self.root}/mlflow.db", "WANDB_MODE": "offline",
            "WANDB_DIR": str(self.root), "WANDB_SILENT": "true"}
        os.environ["TRACKER_LOG"] = self.environment["TRACKER_LOG"]

    def configure(self, steps):
        (self.run_directory / "config.toml").write_text(
            f'[train]\nsteps = {steps}\n[data]\ntrain = ["a", "b"]\n')

    def is_done(self):
        (self.run_directory / "ledger.jsonl").write_text(
            '{"event": "start"}\n{"event": "end", "exit_code": 0, "why": "done"}\n')

    def start(self, *options, **variables):
        process = subprocess.Popen(
            [sys.executable, "-c", START, self.run_directory, "--to", self.tracker, *options],
            env={**self.environment, **variables}, cwd=self.root, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def send(self, *options, code=0, **variables):
        process = self.start(*options, **variables)
        out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, errors)
        return out + errors

    def wait_for_sent(self, count):
        sent = self.run_directory / f"{self.tracker}.sent"
        end = time.monotonic() + PATIENCE
        while not sent.exists() or sent.read_bytes().count(b"\n") < 1 + count:
            self.assertLess(time.monotonic(), end, sent)
            time.sleep(0.01)

    def append(self, text):
        with open(self.metrics, "a") as file:
            file.write(text)

    def cut(self, step):
        """What a resume from a step does."""
        os.truncate(self.metrics, len(lines(1, step)))

    def expect(self, tracked, steps, loss=None):
        """Each step is there once, with the metrics of its line."""
        self.assertEqual([step for step, _ in tracked.rows], steps)
        for step, row in tracked.rows:
            wanted = json.loads(line(step, loss))
            wanted = {key: value for key, value in wanted.items()
                      if key != "step" and value is not None and not isinstance(value, str)}
            self.assertEqual(row, wanted)

    def test_a_run_is_sent_once(self):
        self.append(lines(1, 50) + '{"step": 51')
        self.assertIn(says("track.sent", run=self.run_directory, steps=50, tracker=self.tracker), self.send())
        self.assertEqual(self.tracked()[0].status, self.running)
        self.cut(50)
        self.append(lines(51, 60))
        self.is_done()
        self.send()
        self.send("--follow")
        (tracked,) = self.tracked()
        self.expect(tracked, list(range(1, 61)))
        self.assertEqual(tracked.name, "tiny")
        self.assertEqual(tracked.status, self.finished)
        self.assertEqual(tracked.configuration["train.steps"], "60")
        self.assertEqual(tracked.configuration["data.train"], '["a", "b"]')

    def test_following_survives_resumes(self):
        process = self.start("--follow")
        self.append(lines(1, 30))
        self.wait_for_sent(30)
        self.append(line(31)[:20])
        time.sleep(0.2)
        self.append(line(31)[20:] + lines(32, 40))
        self.wait_for_sent(40)
        self.cut(20)
        self.append(lines(21, 35, seconds=0.75))  # the same results, in another time
        time.sleep(0.2)
        self.append(lines(36, 60, seconds=0.75))
        self.is_done()
        self.assertEqual(process.wait(PATIENCE), 0)
        (tracked,) = self.tracked()
        self.assertEqual([step for step, _ in tracked.rows], list(range(1, 61)))
        self.assertEqual([row["step_seconds"] for _, row in tracked.rows], [0.5] * 40 + [0.75] * 20)
        self.assertEqual(tracked.status, self.finished)

    def test_other_results_go_to_a_new_run(self):
        self.append(lines(1, 50))
        process = self.start("--follow")
        self.wait_for_sent(50)
        text = self.metrics.read_text()
        self.metrics.write_text("".join(text.splitlines(keepends=True)[:30]) + lines(31, 60, loss=9.0))
        self.is_done()
        errors = process.communicate(timeout=PATIENCE)[1]
        self.assertIn(says("track.again", step=31), errors)
        self.send()
        old, new = sorted(self.tracked(), key=lambda tracked: len(tracked.rows))
        self.expect(old, list(range(1, 51)))
        self.assertEqual((old.status, new.status), (self.replaced, self.finished))
        self.assertEqual([(step, row["loss"]) for step, row in new.rows],
                         [(step, 6 - step / 100) for step in range(1, 31)] + [(step, 9.0) for step in range(31, 61)])

    def test_a_new_configuration_is_sent(self):
        self.append(lines(1, 5))
        process = self.start("--follow")
        self.wait_for_sent(5)
        self.configure(steps=70)
        self.append(lines(6, 8))
        self.wait_for_sent(8)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 143)
        (tracked,) = self.tracked()
        self.assertEqual(tracked.configuration[self.changed], "70")
        self.assertEqual(tracked.status, self.running)

    def test_a_killed_bridge_sends_no_step_twice(self):
        self.append(lines(1, 100))
        if PACKAGES:
            process = self.start()
            self.wait_for_sent(20)
            process.kill()
            process.wait()
        else:
            self.send(code=9, TRACKER_DIES_AFTER=self.dies_after)
        self.append(lines(101, 110))
        self.send()
        (tracked,) = self.tracked()
        steps = [step for step, _ in tracked.rows]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(steps[-1], 110)
        if self.loses_nothing:
            self.expect(tracked, list(range(1, 111)))

    def test_only_one_bridge_sends_a_run(self):
        self.append(lines(1, 5))
        self.start("--follow")
        self.wait_for_sent(5)
        self.assertIn(says("track.another"), self.send(code=1))


class Refusals(unittest.TestCase):
    def refused(self, run, *options, python=("-c", START)):
        environment = {**os.environ, "PYTHONPATH": f"{HERE / 'trackers'}:{TOOLS}", "TRACKER_LOG": os.devnull}
        done = subprocess.run([sys.executable, "-B", *python, run, "--to", "mlflow", *options], env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        return done.stderr

    def test_unusable_runs(self):
        with tempfile.TemporaryDirectory() as directory:
            run = pathlib.Path(directory)
            self.assertIn(says("track.no_directory"), self.refused(run / "none"))
            self.assertIn(says("track.no_step"), self.refused(run))
            (run / "mlflow.sent").write_text("run0\nnumber\n")
            self.assertIn(says("track.damaged"), self.refused(run))

    def test_a_missing_package(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertIn("pip install mlflow", self.refused(directory, python=("-I", "-S", TOOLS / "track.py")))


class MLflow(Scenarios, unittest.TestCase):
    tracker, running, finished, replaced = "mlflow", "RUNNING", "FINISHED", "KILLED"
    changed, loses_nothing, dies_after = "changed.train.steps", True, "2"

    @classmethod
    def setUpClass(cls):
        """Makes an empty database once, because that takes seconds."""
        if not PACKAGES:
            return
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.database = pathlib.Path(directory.name) / "mlflow.db"
        subprocess.run([sys.executable, "-c", "import mlflow; mlflow.MlflowClient().search_experiments()"], check=True,
                       env={**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{cls.database}"}, capture_output=True)

    def setUp(self):
        super().setUp()
        if PACKAGES:
            shutil.copy(self.database, self.root)

    def tracked(self):
        return (self.tracked_by_mlflow if PACKAGES else self.tracked_by_stand_in)()

    def tracked_by_mlflow(self):
        import mlflow
        client = mlflow.MlflowClient(self.environment["MLFLOW_TRACKING_URI"])
        found = []
        for run in client.search_runs(["0"]):
            rows = collections.defaultdict(list)
            for key in run.data.metrics:
                for metric in client.get_metric_history(run.info.run_id, key):
                    self.assertEqual(metric.timestamp, 1790000000250 + 1000 * metric.step)
                    rows[metric.step].append((key, metric.value))
            self.assertTrue(all(len(dict(row)) == len(row) for row in rows.values()), rows)
            found.append(Tracked(run.info.run_name, [(step, dict(rows[step])) for step in sorted(rows)],
                                 run.data.params | run.data.tags, run.info.status))
        return found

    def tracked_by_stand_in(self):
        calls = [json.loads(text) for text in (self.root / "calls").read_text().splitlines()]
        found = []
        for name, run in [(call["name"], call["run"]) for call in calls if call["call"] == "create"]:
            own = [call for call in calls if call["run"] == run]
            logged = [call for call in own if call["call"] == "log"]
            rows = collections.defaultdict(dict)
            # MLflow's database stores equal metrics once.
            for key, value, _, step in dict.fromkeys(tuple(metric) for call in logged for metric in call["metrics"]):
                self.assertNotIn(key, rows[step])
                rows[step][key] = value
            configuration = dict(pair for call in logged for pair in [*call["params"], *call["tags"]])
            status = [call["status"] for call in own if call["call"] == "status"][-1]
            found.append(Tracked(name, list(rows.items()), configuration, status))
        return found

    @unittest.skipIf(PACKAGES, "a stand-in fails")
    def test_a_tracker_that_fails_is_tried_again(self):
        fails = self.root / "fails"
        fails.touch()
        self.append(lines(1, 50))
        self.is_done()
        self.assertIn(says("track.tracker_fails"), self.send(code=1, TRACKER_FAILS=str(fails)))
        fails.touch()
        self.assertIn(says("track.next_try"), self.send("--follow", TRACKER_FAILS=str(fails)))
        (tracked,) = self.tracked()
        self.expect(tracked, list(range(1, 51)))


class WandB(Scenarios, unittest.TestCase):
    tracker, finished, replaced = "wandb", 0, 1
    running = 0  # finish() is called at each end of the bridge
    changed, loses_nothing, dies_after = "train.steps", False, "50"

    def tracked(self):
        return (self.tracked_in_files if PACKAGES else self.tracked_by_stand_in)()

    def tracked_in_files(self):
        found = {}
        for path in sorted(self.root.glob("wandb/offline-run-*/*.wandb")):
            for record in records(path):
                kind = record.WhichOneof("record_type")
                if kind == "run":
                    run = found.setdefault(record.run.run_id, [record.run.display_name, [], {}, None])
                elif kind == "config":
                    run[2] |= flat({item.key or ".".join(item.nested_key): json.loads(item.value_json)
                                    for item in record.config.update})
                elif kind == "history":
                    row = {item.key or item.nested_key[0]: json.loads(item.value_json)
                           for item in record.history.item}
                    run[1].append((row["_step"], {key: row[key] for key in row if key[0] != "_"}))
                elif kind == "exit":
                    run[3] = record.exit.exit_code
        return [Tracked(*run) for run in found.values()]

    def tracked_by_stand_in(self):
        found = {}
        for text in (self.root / "calls").read_text().splitlines():
            call = json.loads(text)
            if call["call"] == "init":
                run = found.setdefault(call["run"], [call["name"], [], {}, None])
            elif call["call"] == "config":
                run[2] |= flat(call["values"])
            elif call["call"] == "row":
                run[1].append((call["step"], call["row"]))
            else:
                run[3] = call["exit_code"]
        return [Tracked(*run) for run in found.values()]


def flat(configuration):
    return {f"{table}.{key}": value if isinstance(value, str) else json.dumps(value)
            for table, values in configuration.items() if isinstance(values, dict) for key, value in values.items()}


def records(path):
    """The records of a .wandb file, a log of LevelDB after seven bytes. A killed writer leaves half a record."""
    from wandb.proto import wandb_internal_pb2
    data = path.read_bytes()
    begin, text = 7, b""
    while begin + 7 <= len(data):
        if BLOCK - begin % BLOCK < 7:
            begin += BLOCK - begin % BLOCK
            continue
        size, kind = int.from_bytes(data[begin + 4:begin + 6], "little"), data[begin + 6]
        text += data[begin + 7:begin + 7 + size]
        begin += 7 + size
        if kind in (1, 4) and begin <= len(data):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(text)
            yield record
            text = b""


if __name__ == "__main__":
    unittest.main(argv=[argument for argument in sys.argv if argument != "--packages"])
