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
read -r code acts <starts; sed -i 1d starts; echo "start ${*//$'\\n'/ }" >>calls
mkdir -p run/checkpoints; touch run/lock
for act in $acts; do
  case $act in
    save) n=$(ls run/checkpoints | wc -l); step=$(printf step-%08d $((n + 1)))
          mkdir run/checkpoints/$step; echo $((n + 1)) >run/saved_step.txt; echo "05:31:26 SAVED 1 s" >&2 ;;
    remove) rm -r run ;;
    code=*) echo "${act#*=}" >run/supervise/exit_code ;;
    bad=*) echo "${act#*=}" >>run/supervise/bad_hosts ;;
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

# Starts of a job, each "CODE ACT..."; the exit code of the last; how many are begun (None: all). The agents restart
# ranks within a start.
JOBS = {
    "done": (["0 save"], 0, None),
    "too few hosts, twice": (["75", "75 save", "0"], 0, None),
    "the node of the script is lost": (["137 save", "0"], 0, None),
    "the policy of restarts gives up": (["75 save", "1", "0"], 1, 2),
    "usage": (["64", "0"], 64, 1),
    "damaged": (["75 save", "65 save", "0"], 65, 2),
    "refused": (["77", "0"], 77, 1),
    "configuration": (["75", "78", "0"], 78, 2),
    "the run is removed": (["75 save", "75 save remove", "0"], 65, 2),
    "the run is removed in the first start": (["137 save remove", "0"], 65, 1),
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
                            "SLURM_JOB_ID": "7",
                            "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_ON_NODE": "4", "SLURM_NTASKS_PER_NODE": "2"}

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
        """The exit code of the last start."""
        code, restarts = None, 0
        while code is None or len(self.calls("scontrol requeue 7")) > restarts:
            restarts = len(self.calls("scontrol requeue 7"))
            code = self.start(["bash", CLUSTER / "train.sbatch", "lockstep", "train", "--run", "run"], restarts)
        return code

    def by_loop(self):
        (self.folder / "state").mkdir(exist_ok=True)
        code = self.start([CLUSTER / "restart.sh", "state", "./command", "--run=run"], 0)
        waits = [int(line.split()[1]) for line in self.calls("sleep")]
        return code, [seconds / 150 for seconds in waits if seconds > 1]

    def begin(self, starts):
        for left in ("calls", "log"):
            (self.folder / left).unlink(missing_ok=True)
        for left in ("run", "state"):
            shutil.rmtree(self.folder / left, ignore_errors=True)
        (self.folder / "starts").write_text("".join(start + "\n" for start in starts))

    def expect_starts(self, code, ended, number):
        log = (self.folder / "log").read_text()
        self.assertEqual(ended, code, log)
        self.assertEqual(len(self.calls("start")), number, log)

    def test_slurm(self):
        for name, (starts, code, begun) in JOBS.items():
            with self.subTest(name):
                self.begin(starts)
                self.expect_starts(code, self.by_slurm(), begun or len(starts))

    def test_loop(self):
        for name, (starts, code, begun, waits) in CASES.items():
            with self.subTest(name):
                self.begin(starts)
                ended, waited = self.by_loop()
                self.expect_starts(code, ended, begun or len(starts))
                if waits:
                    self.assertEqual(waited, waits)

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

    def test_the_code_of_the_agents_counts_not_that_of_a_lost_node(self):
        self.begin(["137 code=0"])
        self.assertEqual(self.by_slurm(), 0)
        self.assertEqual(self.calls("scontrol"), [])

    def test_hosts_that_the_agents_excluded_are_not_used_again(self):
        self.begin(["75 bad=n2 bad=n4", "0"])
        self.assertEqual(self.by_slurm(), 0)
        self.assertIn("scontrol update JobId=7 ExcNodeList=n2,n4", self.calls("scontrol"))

    def test_srun_gets_more_options_by_the_environment(self):
        (self.folder / "starts").write_text("0\n")
        self.environment["LOCKSTEP_SRUN_ARGS"] = "--container-image=a.sqsh\n  --container-mounts=/data:/data,/nvme:/nvme"
        self.start(["bash", CLUSTER / "train.sbatch", "--spares=1", "lockstep", "train", "--run", "run"], 0)
        options = self.calls("start")[0].partition(" run 7 lockstep supervise --rejoin=5 --spares=1 --ranks-per-host=2 -- train --run run")
        self.assertTrue(options[1], options)
        self.assertIn(" --container-image=a.sqsh --container-mounts=/data:/data,/nvme:/nvme bash -c ", options[0])
        self.assertIn(" --no-kill ", options[0])

    def test_a_task_of_an_array_has_its_number_and_requeues_itself(self):
        (self.folder / "starts").write_text("75 save\n")
        self.environment.update(SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="3")
        self.start(["bash", CLUSTER / "train.sbatch", "lockstep", "train", "%a.toml", "--run", "run", "--set",
                    "train.seed=%a"], 0)
        self.assertIn(" train 3.toml --run run --set train.seed=3", self.calls("start")[0])
        self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7_3"])


if __name__ == "__main__":
    unittest.main()
