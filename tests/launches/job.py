"""What the tests of launches share: a tiny run on four ranks, two tensor ranks on each of two hosts,
and what one host makes of the same. Tensor ranks keep to a host, and a sum of two has one order: so
wherever the four ranks are, the run has the same bits."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import hosts

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "end_to_end"))
import tiny_run  # noqa: E402

EXAMPLES = pathlib.Path(__file__).parents[2] / "launch" / "cluster"

failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


class Job:
    # More steps than any machine reaches: runs end by signals, their first steps are compared.
    SETTINGS = ["layout.tensor=2", "train.steps=1000000", "train.micro_batch=8",
                "eval.every_steps=0"]

    def __init__(self, lockstep):
        self.lockstep = lockstep
        expect(pathlib.Path(lockstep).name == "lockstep", "ranks are found by the name of the program")
        self.folder = hosts.SHARED / "job"
        self.folder.mkdir()
        tiny_run.pack(lockstep, self.folder)
        self.config = tiny_run.configuration(self.folder, "llama3")
        self.hostfile = self.folder / "hosts"
        self.hostfile.write_text("n1 slots=2\nn2 slots=2\n")
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_plm_rsh_agent=str(hosts.SHARED / "agent"),
                          LOCKSTEP_INTERFACE="eth0", LC_ALL="C", TZ="UTC")

    def train(self, run, *settings):
        command = [self.lockstep, "train", self.config, "--run", self.folder / run, "--device",
                   "cpu"]
        for setting in [*self.SETTINGS, *settings]:
            command += ["--set", setting]
        return list(map(str, command))

    def numbers(self, run):
        return tiny_run.numbers(self.folder / run)

    def checkpoints(self, run):
        """The steps that are saved."""
        return sorted(int(path.name[5:])
                      for path in (self.folder / run / "checkpoints").glob("step-????????"))

    def log(self, run):
        path = self.folder / f"{run}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, launcher, run, *settings, flags=()):
        """Adds to the log of earlier starts."""
        with open(self.folder / f"{run}.log", "a") as log:
            return subprocess.Popen([*map(str, launcher), *self.train(run, *settings), *flags],
                                    stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def wait_for_steps(self, run, steps, process=None):
        hosts.wait_for(lambda: len(self.numbers(run)) >= steps or
                       (process is not None and process.poll() is not None),
                       f"{run} makes {steps} steps")

    def run_steps(self, launcher, run, steps, stop):
        """Starts or resumes a run for at least that number of steps; ends it by the signal."""
        before = len(self.numbers(run))
        process = self.start(launcher, run)
        self.wait_for_steps(run, before + steps, process)
        process.send_signal(stop)
        code = process.wait(timeout=hosts.PATIENCE)
        expect(code == 75, f"{run}: ended by {stop.name} with {code}: {self.log(run)[-2000:]}")
        expect(len(self.numbers(run)) >= before + steps, f"{run}: no {steps} steps more")

    def run(self, launcher, run, *settings):
        """To its end: the exit code, and what it said."""
        done = subprocess.run([*map(str, launcher), *self.train(run, *settings)],
                              timeout=hosts.PATIENCE, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")
        return done.returncode, done.stdout

    def one_host(self, steps):
        """The numbers of its first steps."""
        missing = steps - len(self.numbers("one_host"))
        if missing > 0:
            launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "4"]
            self.run_steps(launcher, "one_host", missing, signal.SIGUSR1)
        return self.numbers("one_host")[:steps]

    def expect_the_bits_of_one_host(self, run):
        there = self.numbers(run)
        here = self.one_host(len(there))
        expect(there == here, f"{run}: not the bits of one host:\n{there}\n{here}")

    def expect_the_losses_of_one_host(self, run, steps):
        """Of the first steps, other numbers of ranks: their sums have another order."""
        there, here = ([step[1] for step in numbers[:steps]]
                       for numbers in (self.numbers(run), self.one_host(steps)))
        expect(len(there) == steps and all(abs(a - b) <= 1e-5 * b for a, b in zip(there, here)),
               f"{run}: not the losses of one host:\n{there}\n{here}")


def processes(program):
    """Ids of those on all hosts: the head sees them."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "exe").readlink().name == program:
                found.append(int(process.name))
        except OSError:  # it ended
            pass
    return found


def ranks():
    """Processes that train, by rank; both mpirun and srun set PMIX_RANK."""
    found = {}
    for pid in processes("lockstep"):
        rank = re.search(rb"(?:^|\0)PMIX_RANK=(\d+)",
                         pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        found[int(rank[1])] = pid
    return found


def by_host(is_one):
    """Ids of the processes of lockstep whose words fulfil a condition, on each host."""
    found = {}
    for pid in processes("lockstep"):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                if is_one(file.read().split("\0")):
                    found.setdefault(host_of(pid), []).append(pid)
        except OSError:  # it ended
            pass
    return found


def host_of(pid):
    return subprocess.run(["nsenter", "--target", str(pid), "--uts", "hostname"], stdout=subprocess.PIPE,
                          text=True).stdout.strip()


def agents():
    """Of lockstep supervise."""
    return by_host(lambda words: "supervise" in words and "--hosts" not in words)


def supervised_ranks():
    return by_host(lambda words: words[1:2] == ["train"])


def expect_nothing_runs(program):
    left = processes(program)
    expect(not left, f"processes of {program} are left: {left}")
