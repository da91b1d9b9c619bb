#!/usr/bin/env python3
"""tools/sweep.py trains each trial to its end, through failures, Ctrl-C and restarts.

usage: sweep_test.py LOCKSTEP
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

import tiny_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]
sys.dont_write_bytecode = True
from wording import says  # noqa: E402

import sweep  # noqa: E402

LOCKSTEP = os.path.abspath(sys.argv.pop(1))
SWEEP = ROOT / "tools" / "sweep.py"
PARALLEL = ["--parallel", str(min(2, len(os.sched_getaffinity(0))))]
RATES = ["--grid", "optimizer.learning_rate=1e-2,1e-4"]
PATIENCE = 120


class Sweeps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.root = pathlib.Path(directory.name)
        tiny_run.pack(LOCKSTEP, cls.root)
        cls.config = tiny_run.configuration(cls.root, "llama3")

    def command(self, out, *options, lockstep=LOCKSTEP):
        return [sys.executable, "-B", SWEEP, self.config, "--out", self.root / out, "--lockstep", lockstep, *options]

    def sweep(self, code, out, *options, **named):
        done = subprocess.run(self.command(out, *options, **named), capture_output=True, text=True, cwd=self.root,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_failed_trial_ends_no_other_and_is_tried_again(self):
        options = [*RATES, "--grid", f"data.train={self.root}/data/train,later", *PARALLEL, "--", "--device", "cpu"]
        said = self.sweep(1, "grid", *options)
        # The place of a wrong dataset is in the log of its trial.
        self.assertEqual(said.count("exit code 65: lockstep: later: "), 2, said)
        rates = {"1e-2": [], "1e-4": []}
        table = (self.root / "grid/table.txt").read_text().splitlines()
        for row in table[1:3]:
            name, state, step, last, best, best_step, loss, _ = row.split()
            metrics = tiny_run.metrics(self.root / "grid" / name)
            losses = [line["validation_loss"] for line in metrics if "validation_loss" in line]
            self.assertEqual((state, step, best_step), ("done", "6", "6"))
            self.assertEqual([last, best, loss], [f"{value:.4f}" for value in
                                                  (losses[-1], min(losses), metrics[-1]["loss"])])
            rates[name.split(",")[0].split("=")[1]] = float(best)
        self.assertLess(rates["1e-2"], rates["1e-4"])  # and it is first
        self.assertIn("learning_rate=1e-2", table[1])
        self.assertTrue(all("exit code 65" in row for row in table[3:5]), table)

        (self.root / "later").symlink_to(self.root / "data/train")
        done_before = {path: path.stat().st_mtime_ns for path in self.root.glob("grid/*data_train.log")}
        self.assertEqual(len(done_before), 2)
        said = self.sweep(0, "grid", *options)
        self.assertIn(says("sweep.begins", trials=4, done=2), said)
        self.assertEqual({path: path.stat().st_mtime_ns for path in done_before}, done_before)
        page = (self.root / "grid/report.html").read_text()
        data = json.loads(page.split('id="data">')[1].split("</script>")[0])
        self.assertEqual(sorted(run["name"] for run in data["runs"]),
                         sorted(path.stem for path in self.root.glob("grid/learning_rate*.log")))

    def stop_after(self, steps, process, runs):
        end = time.monotonic() + PATIENCE
        while any(len(tiny_run.metrics(run)) < steps for run in runs):
            self.assertLess(time.monotonic(), end)
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=PATIENCE)[0]
        self.assertEqual(process.returncode, 130, said)
        return said

    def test_ctrl_c_saves_and_the_same_command_resumes(self):
        options = ["--grid", "train.seed=1,2,3", *PARALLEL, "--", "--set", "train.steps=1000000", "--device=cpu"]
        runs = [self.root / "stopped" / f"seed={seed}" for seed in (1, 2)][:int(PARALLEL[1])]
        saved = 0
        for _ in range(2):
            process = subprocess.Popen(self.command("stopped", *options), stdout=subprocess.PIPE, text=True,
                                       cwd=self.root)
            resumed = saved
            said = self.stop_after(saved + 3, process, runs)
            saved = int((runs[0] / "saved_step.txt").read_text())
            self.assertEqual([line["step"] for line in tiny_run.metrics(runs[0])], list(range(1, saved + 1)))
            self.assertIn(says("sweep.resumes"), said)
            self.assertFalse((self.root / "stopped/seed=3").exists())
        self.assertIn(says("train.goes_on", step=resumed), (self.root / "stopped/seed=1.log").read_text())

    def test_a_sweep_that_differs_is_refused(self):
        options = [*RATES, "--", "--set", "train.steps=2"]
        self.sweep(0, "same", *options)
        self.assertIn(says("sweep.other_trials", count=1, first="learning_rate=1e-4"),
                      self.sweep(1, "same", "--grid", "optimizer.learning_rate=1e-2", *options[2:]))
        self.assertIn(says("sweep.other_flags"), self.sweep(1, "same", *RATES))
        text = self.config.read_text()
        self.addCleanup(self.config.write_text, text)
        self.config.write_text(text + "# changed\n")
        self.assertIn(says("sweep.other_configuration"), self.sweep(1, "same", *options))
        self.config.write_text(text)
        said = self.sweep(0, "same", "--grid", "optimizer.learning_rate=1e-2,1e-4,1e-3", *options[2:])
        self.assertIn(says("sweep.begins", trials=3, done=2), said)

    def test_wrong_commands_start_nothing(self):
        for phrase, options in (
                (says("option.did_you_mean", name="optimizer.learning_rate"), ["--grid", "optimizer.learning_rat=1"]),
                (says("sweep.twice"), [*RATES, "--", "--set", "optimizer.learning_rate=1"]),
                (says("sweep.nothing"), []),
                ("LOW < HIGH", ["--random", "optimizer.learning_rate=log:0..1"]),
                ("TABLE.KEY=VALUES", ["--grid", "optimizer.learning_rate"]),
                (says("sweep.run"), [*RATES, "--", "--run", "x"]),
                ("at least 1", [*RATES, "--trials", "0"]),
                (says("sweep.parallel", most=len(os.sched_getaffinity(0)), kind="CPU cores"),
                 [*RATES, "--parallel", "10000", "--", "--device", "cpu"])):
            self.assertIn(phrase, self.sweep(1, "wrong", *options))
        self.assertEqual(list(self.root.glob("wrong/*/metrics.jsonl")), [])

    def test_trials_share_the_host(self):
        program = self.root / "program"
        program.write_text('#!/bin/sh\n[ "$1" = config ] && exit\nshift 3\n'  # train CONFIG --run RUN
                           'echo "$CUDA_VISIBLE_DEVICES $(taskset -cp $$ | sed "s/.*: //")" >"$1.share"\nsleep 0.5\n')
        program.chmod(0o755)
        os.environ["CUDA_VISIBLE_DEVICES"] = "4,7"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        self.sweep(1, "shares", *RATES, *PARALLEL, lockstep=program)
        shares = [path.read_text().split() for path in self.root.glob("shares/*.share")]
        if PARALLEL[1] == "2":
            self.assertEqual(sorted(gpu for gpu, _ in shares), ["4", "7"])
            self.assertEqual(len({cores for _, cores in shares}), 2)
        os.environ["CUDA_VISIBLE_DEVICES"] = "4"
        if PARALLEL[1] == "2":
            self.assertIn(says("sweep.parallel", most=1, kind="GPUs"), self.sweep(1, "shares", *RATES, *PARALLEL, lockstep=program))


class Draws(unittest.TestCase):
    def settings(self, trials, *draws):
        return sweep.settings_of(types.SimpleNamespace(grid=[], random=draws, flags=[], seed=1, trials=trials))

    def test_draws_are_within_their_range(self):
        drawn = self.settings(400, "optimizer.learning_rate=log:1e-4..1e-2", "model.layers=2..4",
                              "optimizer.beta2=0.9..0.99", "data.train=[a,b],../c")
        rates = sorted(float(one["optimizer.learning_rate"]) for one in drawn)
        self.assertGreaterEqual(rates[0], 1e-4)
        self.assertLessEqual(rates[-1], 1e-2)
        self.assertTrue(5e-4 < rates[200] < 2e-3, rates[200])  # the median of an even logarithm is 1e-3
        self.assertEqual({one["model.layers"] for one in drawn}, {"2", "3", "4"})
        self.assertTrue(all(0.9 <= float(one["optimizer.beta2"]) <= 0.99 for one in drawn))
        self.assertEqual({one["data.train"] for one in drawn}, {"[a,b]", "../c"})

    def test_more_trials_keep_the_first(self):
        draws = ["optimizer.learning_rate=log:1e-4..1e-2", "train.seed=1..1000000"]
        self.assertEqual(self.settings(9, *draws)[:4], self.settings(4, *draws))

    def test_equal_draws_are_one_trial(self):
        self.assertEqual(len(self.settings(50, "model.layers=2..4")), 3)

    def test_names_of_trials(self):
        self.assertEqual(sweep.name_of({"train.seed": "1", "optimizer.learning_rate": "1e-3"}),
                         "seed=1,learning_rate=1e-3")
        self.assertEqual(sweep.name_of({"train.seed": "1", "data.seed": "2"}), "train.seed=1,data.seed=2")
        self.assertNotIn("/", sweep.name_of({"data.train": "a/b"}))


if __name__ == "__main__":
    unittest.main()
