#!/usr/bin/env python3
"""Storage fails while a run trains or a command writes; the directory of a run is removed, moved or replaced.
Checks the exit code, the message, and that files of other runs stay unchanged.

usage: storage_test.py LOCKSTEP [mpirun]
"""

import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import tiny_run
from mpirun_test import ENVIRONMENT

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

LOCKSTEP = sys.argv[1]
HAS_MPIRUN = sys.argv.pop() == "mpirun" and shutil.which("mpirun") is not None
PATIENCE = 400  # seconds; 3000 steps take 150 under AddressSanitizer


class Storage(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        tiny_run.pack(LOCKSTEP, self.folder)
        self.config = tiny_run.configuration(self.folder, "llama3")
        self.run_folder = self.folder / "run"

    def train(self, *settings, steps=1_000_000, every=20):
        command = [LOCKSTEP, "train", str(self.config), "--run", str(self.run_folder), "--device", "cpu"]
        for setting in (f"train.steps={steps}", f"checkpoint.every_steps={every}", "eval.every_steps=0",
                        *settings):
            command += ["--set", setting]
        return command

    def start(self, command):
        log = tempfile.TemporaryFile()
        self.addCleanup(log.close)
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   env=ENVIRONMENT)
        process.log = log
        self.addCleanup(process.kill)
        return process

    @staticmethod
    def said(process):
        process.log.seek(0)
        lines = process.log.read().decode().splitlines(keepends=True)
        return "".join(line for line in lines if not re.match(pattern("step.of"), line))

    def wait_for(self, condition, what, process):
        deadline = time.time() + PATIENCE
        while not condition():
            self.assertIsNone(process.poll(), self.said(process))
            self.assertLess(time.time(), deadline, what + self.said(process))
            time.sleep(0.02)

    def begin(self, command):
        """Starts a run and waits for its first save."""
        process = self.start(command)
        self.wait_for(lambda: list(self.run_folder.glob("checkpoints/step-????????")), "a save", process)
        return process

    def expect_end(self, process, code, *texts):
        self.assertEqual(process.wait(timeout=PATIENCE), code, self.said(process))
        for text in texts:
            self.assertIn(text, self.said(process))

    def limited(self, kilobytes, command):
        return self.start(["bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash", *command])

    def test_a_limit_of_file_sizes_is_an_error(self):
        small = self.limited(16, self.train(steps=30))
        self.expect_end(small, 74, says("train.not_saved", step=20),
                        f"File too large; {says('file.raise_limit')}")
        whole = self.start(self.train(steps=30))
        self.expect_end(whole, 0)
        model = str(self.run_folder)
        for command in (["data", "pack", str(self.folder / "text.txt"), "--tokenizer", "bytes", "--out",
                         str(self.folder / "again")],
                        ["checkpoint", "export", model, "--out", str(self.folder / "exported")],
                        ["report", model]):
            with self.subTest(command[0]):
                self.expect_end(self.limited(4, [LOCKSTEP, *command]), 74, "File too large")

    def test_logs_beyond_a_limit_of_file_sizes_lack_lines(self):
        # A checkpoint has at most 450 KiB; metrics.jsonl reaches 512 KiB before step 1000.
        run = self.limited(512, self.train(steps=1000, every=0))
        self.expect_end(run, 0, "metrics.jsonl: ", "File too large", says("train.log_holes"))

    def test_a_run_whose_directory_is_removed_aborts_at_the_next_save(self):
        run = self.begin(self.train())
        shutil.rmtree(self.run_folder, ignore_errors=True)
        shutil.rmtree(self.run_folder, ignore_errors=True)  # again, because a save may have been in progress
        self.expect_end(run, 65, says("train.run_gone"))
        self.assertFalse(self.run_folder.exists())

    def test_a_run_whose_directory_is_moved_names_the_new_path_and_resumes_after_it_is_moved_back(self):
        run = self.begin(self.train())
        moved = self.folder / "moved"
        self.run_folder.rename(moved)
        self.expect_end(run, 65, f"{moved}/lock")
        self.assertFalse(self.run_folder.exists())
        moved.rename(self.run_folder)
        again = self.start(self.train())
        self.wait_for(lambda: re.search(pattern("train.goes_on"), self.said(again)), "a resume", again)
        again.send_signal(signal.SIGTERM)
        self.expect_end(again, 75)

    def test_a_run_whose_directory_another_run_took_aborts_and_writes_nothing_there(self):
        first = self.begin(self.train())
        first.send_signal(signal.SIGSTOP)
        self.run_folder.rename(self.folder / "moved")
        second = self.start(self.train("train.seed=7", steps=3000, every=0))
        self.wait_for(lambda: tiny_run.metrics(self.run_folder), "steps of the second", second)
        first.send_signal(signal.SIGCONT)
        self.expect_end(first, 75)
        self.assertRegex(self.said(first), pattern("end.taken_over", epoch=1, pid=second.pid))
        self.expect_end(second, 0)
        steps = [step[0] for step in tiny_run.numbers(self.run_folder)]
        self.assertEqual(steps, list(range(1, 3001)))
        self.assertEqual([path.name for path in self.run_folder.glob("checkpoints/step-*")], ["step-00003000"])
        self.assertIn("lockstep_step{run=\"run\"} 3000\n", (self.run_folder / "metrics.prom").read_text())

    def test_a_log_that_is_removed_or_rotated_is_opened_again(self):
        run = self.begin(self.train("log.tensorboard=true"))
        rotated = self.run_folder / "metrics.jsonl.1"
        (self.run_folder / "metrics.jsonl").rename(rotated)
        next(self.run_folder.glob("events.*")).unlink()
        self.wait_for(lambda: tiny_run.metrics(self.run_folder) and
                      list(self.run_folder.glob("events.*")), "new logs", run)
        run.send_signal(signal.SIGTERM)
        self.expect_end(run, 75, *(says("train.log_gone", file=file)
                                   for file in ("metrics.jsonl", says("train.log_of_tensorboard"))))
        self.assertEqual(tiny_run.metrics(self.run_folder)[0]["step"] % 20, 1)

    @unittest.skipUnless(HAS_MPIRUN, "without mpirun")
    def test_all_ranks_abort_if_the_directory_is_removed_or_moved(self):
        for change, code, text in ((shutil.rmtree, 65, says("train.run_gone")),
                                   (lambda path: path.rename(self.folder / "moved"), 65, "moved/lock")):
            run = self.begin(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", *self.train()])
            try:
                change(self.run_folder)
            except OSError:
                shutil.rmtree(self.run_folder, ignore_errors=True)
            self.expect_end(run, code, text)
            self.assertFalse(self.run_folder.exists())

    @unittest.skipUnless(HAS_MPIRUN, "without mpirun")
    def test_all_ranks_end_after_too_many_failed_saves(self):
        ranks = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
        limit = ["bash", "-c", 'ulimit -f 16; exec "$@"', "bash"]  # of each rank
        run = self.start([*ranks, *limit, *self.train("checkpoint.most_failed=3")])
        self.expect_end(run, 74, says("train.not_saved", step=60), "checkpoint.most_failed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
