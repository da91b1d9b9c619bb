#!/usr/bin/env python3
"""lockstep supervise trains on simulated hosts over a stand-in of ssh, while ranks, agents and hosts die. The end
has the bits of a run without faults.

usage: supervise_test.py LOCKSTEP TIER
"""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import time

import hosts
import job
from host_death_test import MEMORY, pattern, saved_steps

SETTINGS = ["checkpoint.every_steps=2"]
SEED = int(os.environ.get("LOCKSTEP_SEED", "1"))


class Supervised:
    """A run of `need` hosts and the others as spares."""

    def __init__(self, tiny, run, numbers, spares=1, settings=(), flags=(), config=None):
        self.tiny, self.run = tiny, run
        self.nodes = {f"n{number}": hosts.Host(number) for number in numbers}
        self.file = tiny.folder / f"{run}.hosts"
        self.file.write_text("".join(f"{name} slots=2\n" for name in self.nodes))
        self.settings = [*SETTINGS, *settings]
        self.config = config or tiny.config
        self.launcher = [tiny.lockstep, "supervise", "--hosts", self.file, "--spares", spares, *flags, "--"]
        self.begin()

    def begin(self):
        # Without the program, which the launcher has.
        command = [*map(str, self.launcher), *self.tiny.train(self.run, *self.settings)[1:]]
        command[command.index("train") + 1] = str(self.config)
        with open(self.tiny.folder / f"{self.run}.log", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def steps(self):
        return len(self.tiny.numbers(self.run))

    def wait_for_steps(self, more):
        before = self.steps()
        hosts.wait_for(lambda: self.steps() >= before + more, f"{self.run}: {more} steps more")

    def events(self):
        path = self.tiny.folder / self.run / "supervise" / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def places(self):
        """Hosts of the newest attempt."""
        started = [event for event in self.events() if event["event"] in ("started", "adopted")]
        return started[-1]["hosts"] if started else []

    def starts(self):
        return len([event for event in self.events() if event["event"] == "started"])

    def seconds_to_next_step(self):
        """From now on, until the next attempt makes a step that was not made before."""
        begin, before, starts = time.monotonic(), self.steps(), self.starts()
        hosts.wait_for(lambda: self.starts() > starts and self.steps() > before + 1, f"{self.run}: a step after a fault")
        return time.monotonic() - begin

    def expect_end(self, expected):
        code = self.process.wait(timeout=hosts.PATIENCE)
        job.expect(code == expected, f"{self.run}: ended with {code}: {self.tiny.log(self.run)[-3000:]}")
        status = json.loads((self.tiny.folder / self.run / "supervise" / "status.json").read_text())
        job.expect(status["phase"] == "over", f"{self.run}: {status} after the end")
        self.process = None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.expect_end(75)

    def ctl(self, *words):
        done = subprocess.run([self.tiny.lockstep, "ctl", self.tiny.folder / self.run, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=hosts.PATIENCE)
        return done.returncode, done.stdout


def leader(run):
    """The host of the leader's agent."""
    newest = max((run.tiny.folder / run.run / "supervise").glob("term-*.json"))
    return json.loads(newest.read_text())["host"]


def expect_within(seconds, limit, what):
    print(f"{what}: {seconds:.2f} s", flush=True)
    job.expect(seconds < limit, f"{what} took {seconds:.2f} s, more than {limit} s")


def kill_rank(run, name):
    os.kill(job.supervised_ranks()[name][0], signal.SIGKILL)
    return run.seconds_to_next_step()


def kill_agent(run, name):
    """The ranks must not notice; another agent starts on the host and takes them over."""
    before, started = job.supervised_ranks(), run.starts()
    old = job.agents()[name]
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    hosts.wait_for(lambda: job.agents().get(name, old) != old, f"another agent starts on {name}")
    joined = len([event for event in run.events() if event["event"] == "joined"])
    run.wait_for_steps(20)
    hosts.wait_for(lambda: len([e for e in run.events() if e["event"] == "joined"]) >= joined, "agents join")
    job.expect(job.supervised_ranks() == before, f"{run.run}: ranks changed after the agent of {name} was killed")
    job.expect(run.starts() == started, f"{run.run}: {run.starts() - started} restarts after the agent of {name} was killed")


# Twice the limits of docs/resilience.md, because these hosts share the CPU cores with other tests.
RANK_LIMIT, HOST_LIMIT = 10, 20


def expect_secret_is_hidden(run):
    secret = (run.tiny.folder / run.run / "supervise" / "secret").read_text().encode()
    for pid in job.processes("lockstep"):
        for file in ("environ", "cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                job.expect(secret not in pathlib.Path(f"/proc/{pid}/{file}").read_bytes(), f"{file} of {pid} has the secret")


def check_ci(tiny):
    run = Supervised(tiny, "kept", (1, 2, 3))
    run.wait_for_steps(4)
    expect_secret_is_hidden(run)
    expect_within(kill_rank(run, run.places()[1]), RANK_LIMIT, "killed rank")
    run.wait_for_steps(4)
    kill_agent(run, leader(run))
    name = run.places()[1]
    run.nodes[name].kill()
    expect_within(run.seconds_to_next_step(), HOST_LIMIT, "killed host")
    job.expect(name not in run.places(), f"the killed host {name} is in {run.places()}")
    run.wait_for_steps(4)
    run.stop()
    tiny.expect_the_bits_of_one_host("kept")
    job.expect_nothing_runs("lockstep")


def freeze(pids, seconds):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in [*pids, *job.processes("nsenter")]:  # nsenter stops with the process that it started
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def check_full(tiny):
    run = Supervised(tiny, "long", (1, 2, 3))
    run.wait_for_steps(4)

    # The leader stops for 20 s; another leads then, and no rank notices.
    before = run.starts()
    name = leader(run)
    freeze(job.agents()[name], 20)
    run.wait_for_steps(20)
    job.expect(run.starts() == before, f"{run.starts() - before} restarts after the leader stood still")
    job.expect(leader(run) != name, f"{name} still leads after 20 s without an answer")

    # The host of rank 0 and of the leader dies.
    run.nodes[run.places()[0]].kill()
    expect_within(run.seconds_to_next_step(), HOST_LIMIT, "host of rank 0 killed")
    gone = [name for name in run.nodes if name not in run.places()]
    # It boots again, joins, and is used after the next death.
    for name in gone:
        run.nodes[name] = hosts.Host(int(name[1:]))
    hosts.wait_for(lambda: set(job.agents()) == set(run.nodes), "the agent of the booted host joins")
    time.sleep(3)
    victim = run.places()[1]
    run.nodes[victim].kill()
    expect_within(run.seconds_to_next_step(), HOST_LIMIT, "second host killed")
    job.expect(victim not in run.places(), f"the killed host {victim} is in {run.places()}")
    run.nodes[victim] = hosts.Host(int(victim[1:]))

    # A rank that stands still ends the attempt; its host stays.
    run.wait_for_steps(4)
    pid = job.supervised_ranks()[run.places()[1]][0]
    os.kill(pid, signal.SIGSTOP)
    expect_within(run.seconds_to_next_step(), 2 * HOST_LIMIT, "rank stopped")
    run.wait_for_steps(4)
    run.stop()
    tiny.expect_the_bits_of_one_host("long")
    job.expect_nothing_runs("lockstep")


def check_requests(tiny):
    """Requests of lockstep ctl: a drained host is left out, and a stopped run stays so."""
    run = Supervised(tiny, "asked", (1, 2, 3))
    run.wait_for_steps(4)
    name = run.places()[1]
    code, said = run.ctl("drain", name)
    job.expect(code == 0, f"drain: {code} {said}")
    hosts.wait_for(lambda: name not in run.places(), "the run restarts without the drained host")
    run.wait_for_steps(4)
    job.expect(len([event for event in run.events() if event["event"] == "drained"]) == 1, f"drained: {run.events()}")
    code, said = run.ctl("drain", run.places()[0])
    job.expect(code == 1 and "needs" in said, f"drain of a host that is needed: {code} {said}")
    code, said = run.ctl("status")
    job.expect(f"{name} (excluded)" in said, f"status: {code} {said}")
    code, said = run.ctl("stop")
    job.expect(code == 0, f"stop: {code} {said}")
    run.expect_end(130)
    tiny.expect_the_bits_of_one_host("asked")
    job.expect_nothing_runs("lockstep")


def check_leave(tiny):
    """Hosts shut down; a run that waits for hosts is stopped; a phase needs other processes."""
    told = tiny.folder / "bad_hosts_told"
    run = Supervised(tiny, "left", (1, 2, 3), flags=("--on-bad-host", f"touch {told}-%h"))
    run.wait_for_steps(4)
    name = run.places()[1]
    before = set(job.agents()[name])
    for pid in before:
        os.kill(pid, signal.SIGTERM)
    hosts.wait_for(lambda: name not in run.places(), f"{name} leaves")
    run.wait_for_steps(4)
    hosts.wait_for(lambda: set(job.agents().get(name, before)) != before, f"another agent joins from {name}")
    hosts.wait_for(lambda: len([event for event in run.events() if event["event"] == "joined"]) >= 4,
                   f"{name} is a spare")

    # Its ranks crash twice within an hour, so the operator is told. Then too few hosts are left.
    for _ in range(2):
        name = run.places()[1]
        kill_rank(run, name)
        run.wait_for_steps(4)
    hosts.wait_for(lambda: pathlib.Path(f"{told}-{name}").exists(), f"the operator is told of {name}")
    for host in run.places():
        run.nodes[host].kill()
    hosts.wait_for(lambda: run.events()[-1]["event"] in ("judged", "readmitted", "excluded"), "the run waits for hosts")
    code, said = run.ctl("stop")
    job.expect(code == 0, f"stop of a run that waits: {code} {said}")
    run.expect_end(130)
    tiny.expect_the_bits_of_one_host("left")
    for node in run.nodes.values():
        with contextlib.suppress(FileNotFoundError):
            node.kill()

    phases = tiny.folder / "phases.toml"
    phases.write_text(tiny.config.read_text() + "\n[[phase]]\nfrom_step = 6\nlayout.replicate = 2\nlayout.shard = 1\n")
    run = Supervised(tiny, "phases", (1, 2), spares=0, settings=["train.steps=12"], config=phases)
    run.expect_end(0)
    job.expect(run.starts() == 2 and run.steps() == 12, f"phases: {run.starts()} starts, {run.steps()} steps")
    job.expect_nothing_runs("lockstep")


def check_memory(tiny):
    """Checkpoints stay in the memory of hosts. A spare reads those of a lost host from the host's partner."""
    run = Supervised(tiny, "memory", (1, 2, 3), settings=MEMORY[1:])
    for _ in range(2):
        hosts.wait_for(lambda: len(saved_steps(tiny.log("memory"))) > 2, "the run saves")
        run.wait_for_steps(4)
        saved, said = saved_steps(tiny.log("memory"))[-1], len(tiny.log("memory"))
        name = run.places()[1]
        run.nodes[name].kill()
        expect_within(run.seconds_to_next_step(), HOST_LIMIT, "killed host, checkpoints in memory")
        loaded = re.search(pattern("train.loaded_from_hosts", step=r"(\d+)", remote=r"(\S+ \S+)"), tiny.log("memory")[said:])
        job.expect(loaded and int(loaded[1]) >= saved and loaded[2] != "0 B",
                   f"step {saved} is not loaded from a partner: {tiny.log('memory')[said:][-3000:]}")
        job.expect(tiny.checkpoints("memory") == [], f"the shared directory was used: {tiny.checkpoints('memory')}")
        run.nodes[name] = hosts.Host(int(name[1:]))
        hosts.wait_for(lambda: set(job.agents()) == set(run.nodes), "the booted host joins")
    run.wait_for_steps(4)
    run.stop()
    tiny.expect_the_bits_of_one_host("memory")
    job.expect_nothing_runs("lockstep")


def masked_data(folder):
    """Packed data in which a fifth of the tokens do not count in the loss, in blocks of 64."""
    count, block, of = 32 * 400, 64, 5
    masks = b"".join((b"\0" if i % of == 2 else b"\xff") * (block // 8) for i in range(count // block))
    header = b"BIN.TOK\n" + struct.pack("<5i", 2, 4, count, 257, 1)
    tokens = [(7 * i * i + i) % 257 for i in range(count)]
    folder.mkdir()
    (folder / "masked.bin").write_bytes(header.ljust(1023, b"*") + b"\n" + struct.pack(f"<{count}i", *tokens) + masks)


def check_repeat(tiny):
    """No token of some steps counts, which is an error: the run ends, or leaves out the data of such steps."""
    masked_data(tiny.folder / "masked")
    settings = [f"data.train={tiny.folder}/masked", "train.micro_batch=1", "train.batch_tokens=64", "train.most_skipped=1"]
    run = Supervised(tiny, "ends", (1, 2, 3), settings=settings)
    code = run.process.wait(timeout=hosts.PATIENCE)
    run.process = None
    said = tiny.log("ends")
    job.expect(code == 1, f"an error of the data ends the run with {code}: {said[-3000:]}")
    found = re.search(r"the same error ended step (\d+) 2 times: .* --skip-steps (\d+)\.\.", said)
    job.expect(found is not None and found[1] == found[2], said[-3000:])
    step = int(found[1])
    job.expect(run.steps() == step, f"the error is of step {run.steps()}, not {step}")
    events = [event["event"] for event in run.events()]
    job.expect("excluded" not in events and "moved" not in events, f"no host is to blame: {events}")

    for node in run.nodes.values():
        node.kill()
    run = Supervised(tiny, "skips", (1, 2, 3), settings=settings, flags=("--on-repeat", "skip", "--restarts-per-hour", 1000))
    run.wait_for_steps(3 * step)
    run.stop()
    skipped = [event["step"] for event in run.events() if event["event"] == "skipped"]
    job.expect(skipped[:1] == [step], f"skipped steps: {skipped}")
    amended = json.loads((tiny.folder / "skips" / "amendments.json").read_text())["amendments"]
    job.expect(amended[0]["request"] == f"skip_steps {step}..{step}", f"amendments: {amended}")
    job.expect(tiny.numbers("skips")[:step - 1] == tiny.numbers("ends")[:step - 1], "the steps before have other bits")
    job.expect_nothing_runs("lockstep")


FAULTS = 100


def check_random(tiny):
    """Faults at random times of a run of two hosts and a spare."""
    random.seed(SEED)
    run = Supervised(tiny, "random", (1, 2, 3), flags=["--restarts-per-hour", 1000])
    run.wait_for_steps(4)
    kinds = {"rank killed": 4, "agent killed": 2, "leader killed": 2, "agent stopped": 1, "host killed": 2,
             "rank stopped": 1, "two ranks killed": 1}
    hits = 0
    for number in range(FAULTS):
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        time.sleep(random.uniform(0, 2))
        training, watching = job.supervised_ranks(), job.agents()
        name = leader(run) if kind == "leader killed" else random.choice(sorted(training) or sorted(run.nodes))
        victims = {"rank": training, "two": training}.get(kind.split()[0], watching).get(name, [])
        print(f"{number}: {kind} on {name} at step {run.steps()}", flush=True)
        if kind == "host killed":
            run.nodes[name].kill()
            run.nodes[name] = hosts.Host(int(name[1:]))
        elif kind in ("agent stopped", "rank stopped"):
            freeze(victims[:1], random.uniform(0, 8))
        else:
            for pid in victims[:2] if kind == "two ranks killed" else victims[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        hits += bool(victims) or kind == "host killed"
        if random.random() < 0.7:  # else the next fault may come in the middle of the restart
            before = run.steps()
            hosts.wait_for(lambda: run.steps() > before + 2 or run.process.poll() is not None, f"steps after fault {number}")
        if run.process.poll() is not None:
            raise RuntimeError(f"the run ended after fault {number}")
    job.expect(hits > FAULTS // 2, f"only {hits} faults met a process")
    run.wait_for_steps(4)
    run.stop()
    for steps in range(500, run.steps(), 500):  # as many at a time as one wait allows
        tiny.one_host(steps)
    tiny.expect_the_bits_of_one_host("random")
    job.expect_nothing_runs("lockstep")


def main():
    hosts.become_head()
    tiny = job.Job(sys.argv[1])
    # As ssh with ServerAliveInterval, it ends some time after its host died.
    ssh = hosts.SHARED / "ssh"
    ssh.write_text(hosts.AGENT.replace(f"exec cat {hosts.SHARED}/silence", "{ sleep 5; exit 255; }"))
    ssh.chmod(0o755)
    os.environ["LOCKSTEP_SSH"] = str(ssh)
    try:
        globals()[f"check_{sys.argv[2]}"](tiny)
    except RuntimeError:
        print(*(path.read_text(errors="replace")[-3000:] for path in tiny.folder.glob("*.log")), sep="\n")
        print(*(path.read_text() for path in tiny.folder.glob("*/supervise/log.jsonl")), sep="\n")
        raise
    if job.failures:
        print(*(path.read_text() for path in tiny.folder.glob("*/supervise/log.jsonl")), sep="\n")
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
