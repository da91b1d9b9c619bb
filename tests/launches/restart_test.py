#!/usr/bin/env python3
"""Which ends of a run train.sbatch and restart.sh answer by another start, how many, and after which
wait. The launcher, scontrol and sleep are stand-ins: tests/launches/slurm_test.py has a real Slurm.

usage: restart_test.py
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import says  # noqa: E402

CLUSTER = pathlib.Path(__file__).resolve().parents[2] / "launch" / "cluster"

# Takes the first line of `starts`, "CODE ACT...", and ends with CODE. ACTs: save a step, remove the run.
COMMAND = """#!/usr/bin/env bash
trap '' USR1
read -r code acts <starts; sed -i 1d starts; echo "start $*" >>calls
mkdir -p run/checkpoints; touch run/lock
for act in $acts; do
  case $act in
    save) n=$(ls run/checkpoints | wc -l); step=$(printf step-%08d $((n + 1)))
          mkdir run/checkpoints/$step; echo $((n + 1)) >run/saved_step.txt; echo "05:31:26 SAVED 1 s" >&2 ;;
    remove) rm -r run ;;
    die) kill -KILL $PPID; exit ;;  # as the script does with its node
    stopped) kill -USR1 $PPID; /bin/sleep 0.2 ;;  # as a save takes a while
  esac
done
exit "$code"
""".replace("SAVED", says("train.saved", step="$((n + 1))"))
STAND_IN = """#!/usr/bin/env bash
echo "${0##*/} $*" >>calls
[[ $0 != *sleep ]] || /bin/sleep 0.2
"""

# Starts, each "CODE ACT...": what the launcher sees of them, in order; the exit code; how many of them
# are begun (None: all); minutes that are waited for storage.
CASES = {
    "done": (["0 save"], 0, None, []),
    "died after a save, again and again": (["137 save"] * 5 + ["0"], 0, None, []),
    "died before the first save, once": (["137 save", "75", "0"], 0, None, []),
    "died before any save, twice": (["137", "143", "75 save", "1", "75", "0"], 0, None, []),
    "three starts in a row save nothing": (["75 save", "137", "75", "1", "0"], 1, 4, []),
    "usage": (["64", "0"], 64, 1, []),
    "damaged": (["137 save", "65 save", "0"], 65, 2, []),
    "refused": (["77", "0"], 77, 1, []),
    "configuration": (["75", "78", "0"], 78, 2, []),
    "storage, for a while": (["74 save", "74", "74", "0 save"], 0, None, [1, 2, 4]),
    "storage, for good": (["74", "74", "74", "0"], 74, 3, [2, 4]),
    "the run is removed": (["75 save", "75 save remove", "0"], 65, 2, []),
    "the run is removed in the first start": (["137 save remove", "0"], 65, 1, []),
    "the run is removed, which it reports": (["75 save", "65 remove", "0"], 65, 2, []),
}


class Restart(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name, text in (("srun", COMMAND), ("command", COMMAND), ("scontrol", STAND_IN),
                           ("sleep", STAND_IN)):
            path = self.folder / name
            path.write_text(text)
            path.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                            "SLURM_JOB_ID": "7"}

    def start(self, command, restarts):
        with open(self.folder / "log", "a") as log:
            return subprocess.run([str(part) for part in command], cwd=self.folder, stdout=log, stderr=log,
                                  env={**self.environment, "SLURM_RESTART_COUNT": str(restarts)},
                                  timeout=60).returncode

    def calls(self, name):
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(name)]

    def by_slurm(self):
        """The exit code of the last start, and the minutes that scontrol was told to wait."""
        code, restarts = None, 0
        while code is None or len(self.calls("scontrol requeue 7")) > restarts:
            restarts = len(self.calls("scontrol requeue 7"))
            code = self.start(["bash", CLUSTER / "train.sbatch", "train", "--run", "run"], restarts)
        told = [re.fullmatch(r"scontrol update JobId=7 StartTime=now\+(\d+)minutes", line)
                for line in self.calls("scontrol update")]
        return code, [int(match[1]) / 5 for match in told]

    def by_loop(self):
        (self.folder / "state").mkdir(exist_ok=True)
        code = self.start([CLUSTER / "restart.sh", "state", "./command", "--run=run"], 0)
        waits = [int(line.split()[1]) for line in self.calls("sleep")]
        return code, [seconds / 150 for seconds in waits if seconds > 1]

    def check(self, launch, waits_for_all_without_save):
        for name, (starts, code, begun, waits) in CASES.items():
            with self.subTest(name):
                for left in ("calls", "log"):
                    (self.folder / left).unlink(missing_ok=True)
                for left in ("run", "state"):
                    shutil.rmtree(self.folder / left, ignore_errors=True)
                (self.folder / "starts").write_text("".join(start + "\n" for start in starts))
                ended, waited = launch()
                log = (self.folder / "log").read_text()
                self.assertEqual(ended, code, log)
                self.assertEqual(len(self.calls("start")), begun or len(starts), log)
                if waits or not waits_for_all_without_save:
                    self.assertEqual(waited, waits, log)

    def test_slurm(self):
        self.check(self.by_slurm, False)

    def test_loop(self):
        self.check(self.by_loop, True)

    def test_a_loop_that_gave_up_stays_so(self):
        (self.folder / "starts").write_text("65\n0\n")
        self.assertEqual(self.by_loop()[0], 65)
        self.assertEqual(self.by_loop()[0], 65)
        self.assertEqual(len(self.calls("start")), 1)

    def test_a_loop_that_is_told_to_stop_starts_nothing(self):
        (self.folder / "starts").write_text("75 save stopped\n0\n")
        self.assertEqual(self.by_loop()[0], 75)
        self.assertEqual(len(self.calls("start")), 1)
        self.assertFalse((self.folder / "state" / "ended").exists())

    def test_a_run_that_is_gone_is_not_begun_again_by_a_restarted_container(self):
        (self.folder / "starts").write_text("0 save\n0\n")
        self.assertEqual(self.by_loop()[0], 0)
        shutil.rmtree(self.folder / "run")
        self.assertEqual(self.by_loop()[0], 65)
        self.assertEqual(len(self.calls("start")), 1)

    def test_starts_whose_script_dies_count(self):
        (self.folder / "starts").write_text("1 die\n" * 5)
        command = ["bash", CLUSTER / "train.sbatch", "train", "--run", "run"]
        self.assertEqual([self.start(command, restarts) for restarts in range(4)], [-9, -9, -9, 1])
        self.assertEqual(len(self.calls("start")), 3)

    def test_a_log_that_is_cut_at_a_restart_is_an_error(self):
        (self.folder / "starts").write_text("0\n")
        self.assertEqual(self.start(["bash", CLUSTER / "train.sbatch", "train", "--run", "run"], 1), 64)
        self.assertEqual(self.calls("start"), [])

    def test_another_job_with_the_same_log_begins_anew(self):
        (self.folder / "starts").write_text("75\n75\n75 save\n75\n75\n0\n")
        self.start(["bash", CLUSTER / "train.sbatch", "train", "--run", "run"], 0)
        self.environment["SLURM_JOB_ID"] = "8"
        shutil.rmtree(self.folder / "run")  # to begin afresh
        for restarts, code in enumerate((75, 75, 75, 75, 0)):
            self.assertEqual(self.start(["bash", CLUSTER / "train.sbatch", "train", "--run", "run"],
                                        restarts), code, (self.folder / "log").read_text())
        self.assertEqual(len(self.calls("scontrol requeue 8")), 4)

    def test_srun_gets_more_options_by_the_environment(self):
        (self.folder / "starts").write_text("0\n")
        self.environment["LOCKSTEP_SRUN_ARGS"] = "--container-image=a.sqsh\n  --container-mounts=/data:/data,/nvme:/nvme"
        self.start(["bash", CLUSTER / "train.sbatch", "train", "--run", "run"], 0)
        options = self.calls("start")[0].partition(" train --run run")
        self.assertTrue(options[1])
        self.assertTrue(options[0].endswith(" --container-image=a.sqsh --container-mounts=/data:/data,/nvme:/nvme"),
                        options)
        self.assertIn(" --mpi=pmix ", options[0])

    def test_a_task_of_an_array_has_its_number_and_requeues_itself(self):
        (self.folder / "starts").write_text("75 save\n")
        self.environment.update(SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="3")
        self.start(["bash", CLUSTER / "train.sbatch", "train", "%a.toml", "--run", "run", "--set", "train.seed=%a"], 0)
        self.assertIn(" train 3.toml --run run --set train.seed=3", self.calls("start")[0])
        self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7_3"])


if __name__ == "__main__":
    unittest.main()
