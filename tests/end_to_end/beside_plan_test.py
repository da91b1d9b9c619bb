#!/usr/bin/env python3
"""A run with a plan shows it on the step line, in a table, in RUN/plan.json and in a file next to the cluster file.
The numbers are those of plan.json and metrics.jsonl. A run without a plan reports how to get one.

usage: beside_plan_test.py LOCKSTEP CLUSTER_TOML
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

from tiny_run import configuration, metrics, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

COMPONENTS = {says(part): part.removeprefix("part.") for part in (
    "part.products", "part.attention", "part.memory_bound", "part.communication_tensor", "part.communication_shard",
    "part.communication_replicate", "part.communication_ranks", "part.communication_host", "part.optimizer", "part.data",
    "part.checkpoint", "part.other")}
# Members that a measured cluster has in addition to those of a described one.
MEASURED = {
    "format": "lockstep cluster 1", "nodes": 1, "compute_beside": 1, "other_beside": 1, "wait_share": 0, "launch_seconds": 0,
    "constant_bytes": 0, "host_memory_bytes": 0, "storage_read_bytes_per_second": 0, "storage_write_bytes_per_second": 0,
    "watts": 0, "price_per_gpu_hour": 0, "currency": "USD", "gpu_hours_per_interruption": 50700, "restart_seconds": 300,
    "links": [], "operators": [{"operator": "swiglu_forward", "type": "fp32", "bytes": 1, "calls": 1, "seconds": 1e-6}]}
OF_NO_GPU = {"architecture": "hopper", "fp8_flops": 0, "multiprocessors": 0, "host_bytes_per_second": 0, "domain_ranks": 1,
             "power": 1, "slowdown": 0}
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1}
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def seconds(text):
    if text == "0":
        return 0
    value, unit = text.split()
    return float(value) * UNITS[unit]


def is_shown(text, value):
    """True if the text is the value, with the three digits of tables; the last one is rounded."""
    return abs(seconds(text) - value) <= max(0.006 * value, 6e-6)


class Run:
    def __init__(self, lockstep, folder, name):
        self.command = [lockstep, "train", str(configuration(folder, "llama3")), "--extend", "--run", str(folder / name),
                        "--device", "cpu"]
        self.path = folder / name

    def train(self, *settings):
        command = list(self.command)
        for setting in ["train.steps=20", "eval.every_steps=0", "log.every_steps=5", "plan.compare_every_steps=10",
                        "schedule.kind=constant", *settings]:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        expect(done.returncode == 0, f"{self.path.name}: {done.returncode}: {done.stderr[-2000:]}")
        return done.stderr

    def plan(self):
        return json.loads((self.path / "plan.json").read_text())


def planned(step):
    return {component["name"]: component["seconds"] for component in step["components"]}


def mean(lines, component):
    return sum(line[f"{component}_seconds"] for line in lines) / len(lines)


def tables(log):
    """For each table: first and last step, timed steps, cluster, rows by component, and remarks on deviations."""
    number = r"(\d+)"
    table = pattern("plan.table", first=number, last=number, timed=number, cluster="(.*)")
    for first, last, timed, cluster, text in re.findall(table + r"\n  .*\n((?:  .*\n)*)", log):
        rows, remarks = {}, []
        for line in text.splitlines():
            row = re.fullmatch(r"  (\S.*?)  +(0|[\d.]+ \w+) +(0|[\d.]+ \w+) +(\S*)", line)
            if row:
                rows[row[1]] = row.groups()[1:]
            else:
                remarks.append(line.strip())
        yield int(first), int(last), int(timed), cluster, rows, remarks


def check_table(table, plan, lines):
    first, last, timed, cluster, rows, remarks = table
    expect(cluster == plan["cluster"], f"{cluster} is not {plan['cluster']}")
    lines = [line for line in lines if first <= line["step"] <= last and line["step"] > 1]  # the first warms up
    expect(timed == len(lines), f"{timed} steps are timed, {len(lines)} have lines")
    by_name = planned(plan)
    measured_sum = sum(mean(lines, name) for name in COMPONENTS.values())
    for words, name in COMPONENTS.items():
        plan_seconds, measured = by_name.get(name, 0), mean(lines, name)
        share = max(plan_seconds / plan["step_seconds"], measured / measured_sum)
        if share < 4.9e-5:  # rows begin at 0.005 %
            expect(words not in rows, f"{words} has a row of nothing")
            continue
        if share < 5.1e-5:
            continue
        if words not in rows:
            expect(False, f"{words} has no row in {rows}")
            continue
        shown = rows[words]
        expect(is_shown(shown[0], plan_seconds), f"{words}: plan {shown[0]} is not {plan_seconds}")
        expect(is_shown(shown[1], measured), f"{words}: measured {shown[1]} is not {measured}")
        by = abs(measured - plan_seconds)
        if by > 0.11 * plan_seconds and by > 0.011 * plan["step_seconds"]:
            expect(any(remark.startswith(words) for remark in remarks), f"{words} is off, and not named: {remarks}")
        if by < 0.09 * plan_seconds or by < 0.009 * plan["step_seconds"]:
            expect(not any(remark.startswith(words) for remark in remarks), f"{words} is named: {remarks}")
    expect(is_shown(rows["step"][0], plan["step_seconds"]), f"step: {rows['step']} is not {plan['step_seconds']}")
    expect(is_shown(rows["step"][1], measured_sum), f"step: {rows['step']} is not {measured_sum}")
    for remark in remarks:
        expect(re.search(r"\): \w", remark), f"no cause is named: {remark}")


def shows_plan(log):
    return re.search(pattern("plan.beside"), log) or re.search(pattern("plan.table"), log)


def check_without(lockstep, folder):
    run = Run(lockstep, folder, "without")
    log = run.train()
    expect(says("plan.none") in log and "lockstep preflight" in log, f"without a plan: {log}")
    expect(not (run.path / "plan.json").exists(), "plan.json exists without a plan")
    expect(not shows_plan(log), f"without a plan: {log}")


def check_with(lockstep, folder, cluster):
    run = Run(lockstep, folder, "with")
    log = run.train(f"plan.cluster={cluster}")
    plan, lines = run.plan(), metrics(run.path)
    expect(abs(sum(planned(plan).values()) - plan["step_seconds"]) < 1e-9, "components are not the step")
    expect(says("plan.made", cluster=plan["cluster"]) in log, f"nothing is said of the plan: {log[-3000:]}")
    shown = re.findall(r"MFU +([\d.]+)% " + pattern("plan.beside", value=r"([\d.]+)%"), log)
    # A plan above 105 % of the measured peak has no MFU, as in a build with a sanitizer.
    expect(len(shown) == (0 if plan["mfu"] is None else 4), f"{len(shown)} step lines show the plan: {log[-3000:]}")
    for line, (mfu, planned_mfu) in zip(lines[4::5], shown):
        expect(abs(float(mfu) - 100 * line["mfu"]) < 0.051, f"MFU {mfu} is not {line['mfu']}")
        expect(abs(float(planned_mfu) - 100 * plan["mfu"]) < 0.051, f"MFU {planned_mfu} is not {plan['mfu']}")
    found = list(tables(log))
    expect([table[:2] for table in found] == [(1, 10), (11, 20)], f"tables: {found}: {log[-3000:]}")
    for table in found:
        check_table(table, plan, lines)
    check_residuals(run, plan, lines, cluster)
    start = json.loads((run.path / "ledger.jsonl").read_text().splitlines()[0])
    version = subprocess.run([lockstep, "--version"], capture_output=True, text=True, check=True).stdout
    commit = re.search(r"commit +(\S+)", version)[1]
    expect(commit in start["version"], f"the ledger says {start}, the program {version}")
    return run


def check_saves(lockstep, folder, toml):
    """The time that steps wait for saves is a row of the table, and in neither MFU."""
    slow = folder / "slow_disk.toml"
    slow.write_text(toml.read_text().replace("[hardware]", "storage_write_bytes_per_second = 20e6\n[hardware]"))
    run = Run(lockstep, folder, "saves")
    log = run.train(f"plan.cluster={slow}", "checkpoint.every_steps=2")
    plan = run.plan()
    saves = planned(plan)["checkpoint"]
    expect(saves > 0.1 * plan["step_seconds"], f"no time of saves is planned: {plan}")
    steps = plan["step_seconds"] - saves
    shown = re.findall(pattern("plan.beside", value=r"([\d.]+)%"), log)
    expect(shown and abs(float(shown[0]) - 100 * plan["mfu"] * plan["step_seconds"] / steps) < 0.051, f"MFU {shown} of {plan}")
    prom = (run.path / "metrics.prom").read_text()
    seconds = float(re.search(r"lockstep_plan_step_seconds\{.*\} (.*)", prom)[1])
    expect(abs(seconds - steps) < 1e-9, f"Prometheus has {seconds} s a step, planned are {steps}")
    told = subprocess.run([lockstep, "watch", str(run.path)], capture_output=True, text=True, check=True).stdout
    text = re.search(f"{pattern('watch.step_time')} .*{pattern('plan.beside', value='(.*)')}", told)
    expect(text and is_shown(text[1], steps), f"planned are {steps} s a step: {told}")
    page = report_of(lockstep, run)
    expect(abs(page["plan"]["step_seconds"] - steps) < 1e-5 * steps, f"the report has {page['plan']}")


def residuals_of(cluster):
    return cluster.with_name((cluster.stem if cluster.suffix == ".json" else cluster.name) + ".residuals.json")


def check_of_other_machines(run, gpus):
    """A cluster file of GPUs plans no run on CPUs: an earlier plan is removed, and no errors are recorded."""
    expect((run.path / "plan.json").exists(), "nothing was planned before")
    log = run.train(f"plan.cluster={gpus}", "train.steps=45")
    expect(says("plan.refused") in log and says("plan.of_gpus") in log,
           f"planned for GPUs: {log[-3000:]}")
    expect(not shows_plan(log), f"compared with GPUs: {log[-3000:]}")
    expect(not (run.path / "plan.json").exists(), "the plan of an earlier start stays")
    expect(not residuals_of(gpus).exists(), "plans for GPUs learn from processors")


def check_other_threads(lockstep, folder, toml):
    """A measurement with one thread plans no run with two: a message says so, and no errors are recorded."""
    described = tomllib.loads(toml.read_text())
    cluster = folder / "measured.json"
    cluster.write_text(json.dumps(described | MEASURED | {"threads": 1, "hardware": OF_NO_GPU | described["hardware"]}))
    residuals = residuals_of(cluster)
    log = Run(lockstep, folder, "two").train(f"plan.cluster={cluster}", "train.threads=2")
    expect(says("plan.threads", measured=1, threads=2) in log, f"two threads: {log[-3000:]}")
    expect("): " + says("plan.threads_as_cause", measured=1, threads=2) in log, f"no cause of two threads: {log[-3000:]}")
    expect(not residuals.exists(), "something was learned of two threads")
    for threads, noted in ((1, False), (2, True)):
        out = subprocess.run([lockstep, "plan", str(configuration(folder, "llama3")), "--cluster", str(cluster), "--ranks", "1",
                              "--check", "--json", "--set", f"train.threads={threads}"], capture_output=True, text=True, check=True)
        notes = json.loads(out.stdout)["notes"]
        expect(any(says("plan.threads_as_note", measured=1) in note for note in notes) == noted, f"{threads} threads: {notes}")
    log = Run(lockstep, folder, "one").train(f"plan.cluster={cluster}", "train.threads=1")
    expect(not re.search(pattern("plan.threads"), log) and residuals.exists(), f"one thread: {log[-3000:]}")


def check_residuals(run, plan, lines, cluster):
    residuals = json.loads(residuals_of(cluster).read_text())
    expect(len(residuals["runs"]) == 1, f"residuals: {residuals}")
    for component in residuals["runs"][0]["components"]:
        name = component["name"]
        expect(component["planned_seconds"] == planned(plan).get(name, 0), f"residuals of {component}")
        measured = mean(lines[1:], name)
        expect(abs(component["measured_seconds"] - measured) <= 1e-9 + 1e-9 * measured,
               f"residuals of {component}, measured {measured}")
    log = run.train(f"plan.cluster={cluster}", "train.steps=25")
    again = run.plan()
    expect(says("plan.made_corrected") in log, f"nothing is said of residuals: {log[-3000:]}")
    expect(again["step_seconds"] == plan["step_seconds"], "residuals change what is planned")
    products = next(c for c in residuals["runs"][0]["components"] if c["name"] == "products")
    corrected = planned(again["corrected"])["products"]
    expected = planned(plan)["products"] * products["measured_seconds"] / products["planned_seconds"]
    expect(abs(corrected - expected) < 1e-9, f"corrected products: {corrected}, expected {expected}")
    residuals["runs"].append({"key": "another", "components": [
        {"name": "products", "planned_seconds": 1, "measured_seconds": 1000}]})
    residuals_of(cluster).write_text(json.dumps(residuals))
    out = subprocess.run([run.command[0], "plan", run.command[2], "--cluster", str(cluster), "--ranks", "1", "--json",
                          "--check"], capture_output=True, text=True, timeout=240, check=True).stdout
    corrected = planned(json.loads(out)["corrected"])["products"]
    expect(abs(corrected - expected) < 1e-9, f"products that `plan` corrects: {corrected}, expected {expected}")


def check_replaced(lockstep, folder, cluster):
    """A run whose directory was replaced ends, and does not write its plan there."""
    run, moved = Run(lockstep, folder, "replaced"), folder / "moved"
    with subprocess.Popen([*run.command, "--set", f"plan.cluster={cluster}", "--set", "train.steps=1000000", "--set",
                           "eval.every_steps=1000", "--set", "checkpoint.every_steps=0"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: metrics(run.path), "a step")
            run.path.rename(moved)
            run.path.mkdir()
            (run.path / "plan.json").write_text("another run's")
            wait_for(lambda: process.poll() is not None, "its end")
            expect(process.returncode == 65, f"it ends with {process.returncode}")
        finally:
            process.kill()
    expect((run.path / "plan.json").read_text() == "another run's", "a plan was written into another run's directory")


def wait_for(condition, what):
    deadline = time.time() + 120
    while not condition():
        if time.time() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def report_of(lockstep, run):
    page = run.path / "report.html"
    subprocess.run([lockstep, "report", str(run.path), "--out", str(page)], check=True, capture_output=True)
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(),
                                re.DOTALL)[1])["runs"][0]


def check_old_lines(lockstep, run):
    """Lines of earlier versions are read together with current ones, also by a resume."""
    path = run.path / "metrics.jsonl"
    old = path.read_text()
    for name in ("tensor", "shard", "replicate", "host"):
        old = re.sub(rf'"communication_{name}_seconds":[^,]*,', "", old)
    old = re.sub(r'"other_seconds":[^,]*,', "", old)
    old = old.replace('"products_seconds"', '"gemm_seconds"').replace('"communication_ranks_', '"communication_')
    path.write_text(old)
    run.train("train.steps=30")
    lines = metrics(run.path)
    expect(len(lines) == 30 and "gemm_seconds" in lines[24] and "products_seconds" in lines[25],
           f"old lines: {lines[24:26]}")
    data = report_of(lockstep, run)
    expect(data["notes"] == [], f"the report leaves out: {data['notes']}")
    parts = {part["name"]: part["measured"] for part in data["parts"] if "measured" in part}
    values = sorted(line.get("products_seconds", line.get("gemm_seconds")) for line in lines)
    expect(values[13] <= parts["products"] * 1.001 and parts["products"] <= values[16] * 1.001,
           f"products of old and new lines: {parts}, {values}")
    shown = dict(data["environment"])
    expect("commit" in shown.get("lockstep", ""), f"the environment: {shown}")


def main():
    lockstep, toml = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pack(lockstep, folder)
        cluster = folder / "machine.toml"
        shutil.copy(toml, cluster)
        gpus = folder / "gpus.toml"
        shutil.copy(toml.with_name("dgx_h100.toml"), gpus)
        check_without(lockstep, folder)
        run = check_with(lockstep, folder, cluster)
        check_old_lines(lockstep, run)
        check_saves(lockstep, folder, toml)
        check_of_other_machines(run, gpus)
        check_other_threads(lockstep, folder, toml)
        check_replaced(lockstep, folder, cluster)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
