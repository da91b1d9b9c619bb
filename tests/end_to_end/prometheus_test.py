#!/usr/bin/env python3
"""A real Prometheus scrapes a live run; each query of the dashboard has data, and each alert fires when it should.

usage: prometheus_test.py LOCKSTEP NVML REPOSITORY

LOCKSTEP is the program on the simulated GPU, NVML the directory with the stand-in for NVIDIA's library. Prometheus
(with promtool: Debian's package prometheus) runs on the loopback in a separate directory. Exit 77 (skipped) without.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from mpirun_test import expect, failures
from tiny_run import configuration, pack

PLAN = {"format": "lockstep plan 1", "step_seconds": 0.4, "tokens_per_second": 1280, "mfu": 0.5, "mfu_square": 0.5,
        "components": [{"name": "attention", "seconds": 0.1}, {"name": "optimizer", "seconds": 0.05}],
        "memory": [], "capacity_bytes": 1 << 30, "checkpoint_bytes": 1 << 20, "cluster": "one"}
# The values that Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "30s", "$run": ".*"}
PATIENCE_SECONDS = 300


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def wait_for(what, condition):
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            if condition():
                return True
        except OSError:  # no answer yet
            pass
        time.sleep(0.2)
    expect(False, f"waited {PATIENCE_SECONDS} s: {what}")
    return False


def query(server, expression):
    """The answer of Prometheus, a list of series. Raises its message if the expression does not parse."""
    try:
        answer = get(f"{server}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    except urllib.error.HTTPError as error:
        raise ValueError(f"{expression}: {error.read().decode()}") from error
    return json.loads(answer)["data"]["result"]


def expressions(dashboard):
    """(where, expression) of all panels, annotations and variables."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]
    for variable in dashboard["templating"]["list"]:
        labels = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable.get("definition", ""))
        if labels:
            yield f"variable {variable['name']}", f"count by ({labels[2]}) ({labels[1]})"


def check_dashboard(server, dashboard):
    ids = [panel["id"] for panel in dashboard["panels"]]
    expect(len(ids) == len(set(ids)), f"ids of panels are not unique: {ids}")
    known, seen = set(), set()
    for where, expression in expressions(dashboard):
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        expect("$" not in expression, f"{where}: an unknown variable in {expression}")
        seen.update(re.findall(r"\blockstep_\w+", expression))
        try:
            result = query(server, expression)
        except ValueError as error:
            expect(False, f"{where}: {error}")
            continue
        # Annotations mark events that do not happen here, and a single rank is never slow.
        expect(result or where.startswith("annotation") or "_rank_seconds" in expression,
               f"{where}: no data for {expression}")
        known.add(where)
    print(f"{len(known)} panels and variables have data, of {len(seen)} metrics")
    return seen


def check_alerts_evaluate(server, rules):
    for alert in rules:
        try:
            query(server, alert["expr"])
        except ValueError as error:
            expect(False, f"alert {alert['alert']}: {error}")
    groups = json.loads(get(f"{server}/api/v1/rules"))["data"]["groups"]
    health = {rule["name"]: (rule["health"], rule.get("lastError")) for group in groups for rule in group["rules"]}
    expect(set(health) == {alert["alert"] for alert in rules}, f"rules are {health}")
    for name, (state, why) in health.items():
        expect(state == "ok", f"alert {name}: {state}, {why}")


# name: series that make the alert fire.
SYNTHETIC = {
    # Values per minute; the last step is done in minute 3.
    "LockstepStuck": [("lockstep_last_step_timestamp_seconds", "0 60 120 180x40"), ("lockstep_running", "1x44"),
                      ("lockstep_step_seconds", "5x44")],
    "LockstepGoodputLow": [("lockstep_goodput_ratio", "0.5x60"), ("lockstep_running", "1x60"),
                           ('lockstep_goodput_seconds{kind="productive"}', "2000x60"),
                           ('lockstep_goodput_seconds{kind="idle"}', "2000x60")],
    "LockstepCheckpointFailed": [("lockstep_checkpoint_failures_total", "0x20 1x40")],
    # Of a run that has saved nothing yet.
    "LockstepCheckpointOld": [("lockstep_step", "0+10x60"), ("lockstep_checkpoint_interval_steps", "100x60"),
                              ("lockstep_running", "1x60")],
    "LockstepCheckpointCopyFailed": [('lockstep_checkpoint_copy_failures_total{destination="archive"}', "0x20 1x40")],
    "LockstepCheckpointCopyLate": [("lockstep_checkpoint_step", "100+20x60"), ("lockstep_running", "1x60"),
                                   ('lockstep_checkpoint_copy_step{destination="run"}', "100x60"),
                                   ("lockstep_checkpoint_interval_steps", "100x60")],
    "LockstepLossSpike": [("lockstep_loss_spikes_total", "0x30 1x30")],
    "LockstepLossNotFinite": [("lockstep_nonfinite_steps_total", "0x30 2x30"),
                              ("lockstep_skipped_steps_total", "0x30 2x30")],
    "LockstepSkippedUpdates": [("lockstep_skipped_steps_total", "0x30 2x30"), ("lockstep_nonfinite_steps_total", "0x60")],
    "LockstepMfuUnderPlan": [("lockstep_mfu_ratio", "0.3x60"), ("lockstep_plan_mfu_ratio", "0.4x60"),
                             ("lockstep_running", "1x60")],
    "LockstepSlowRank": [('lockstep_slowest_rank_seconds{rank="3"}', "1.3x60"), ("lockstep_median_rank_seconds", "1x60"),
                         ("lockstep_running", "1x60")],
    "LockstepGpuThrottled": [("lockstep_gpu_throttled", "1x60"), ("lockstep_running", "1x60")],
}
# Series for which no alert fires.
HEALTHY = [
    [("lockstep_last_step_timestamp_seconds", "0+60x44"), ("lockstep_running", "1x44"), ("lockstep_step_seconds", "5x44"),
     ("lockstep_goodput_ratio", "0.95x44"), ('lockstep_goodput_seconds{kind="productive"}', "4000x44"),
     ("lockstep_skipped_steps_total", "7x44"), ("lockstep_nonfinite_steps_total", "7x44"),
     ("lockstep_loss_spikes_total", "1x44"), ("lockstep_mfu_ratio", "0.39x44"), ("lockstep_plan_mfu_ratio", "0.4x44"),
     # 100 steps a minute are saved every 100 steps and copied every 400. The archive has each 5000th step.
     ("lockstep_step", "150+100x44"), ("lockstep_checkpoint_step", "100+100x44"),
     ("lockstep_checkpoint_interval_steps", "100x44"), ("lockstep_checkpoint_failures_total", "2x44"),
     ('lockstep_checkpoint_copy_failures_total{destination="run"}', "2x44"),
     ('lockstep_checkpoint_copy_step{destination="run"}', " ".join(f"{step}x3" for step in range(0, 4400, 400))),
     ('lockstep_checkpoint_copy_step{destination="archive"}', "0x44"),
     ("lockstep_gpu_throttled", "0 0 1 1 0x44"), ("lockstep_median_rank_seconds", "1x44"),
     ('lockstep_slowest_rank_seconds{rank="3"}', "1.05x44")],
    # A run that ended, and one whose steps take half an hour.
    [("lockstep_step", "1000x44"), ("lockstep_checkpoint_interval_steps", "100x44"),
     ("lockstep_last_step_timestamp_seconds", "0x44"), ("lockstep_running", "0x44"), ("lockstep_goodput_ratio", "0.5x44"),
     ('lockstep_goodput_seconds{kind="idle"}', "4000x44"), ("lockstep_mfu_ratio", "0.1x44"),
     ("lockstep_plan_mfu_ratio", "0.4x44"), ("lockstep_gpu_throttled", "1x44"), ("lockstep_median_rank_seconds", "1x44"),
     ('lockstep_slowest_rank_seconds{rank="3"}', "1.3x44")],
    [("lockstep_last_step_timestamp_seconds", "0x44"), ("lockstep_running", "1x44"), ("lockstep_step_seconds", "1800x44")],
    # A run that started a short time ago.
    [("lockstep_goodput_ratio", "0.1x44"), ("lockstep_running", "1x44"),
     ('lockstep_goodput_seconds{kind="restart"}', "600x44")],
]


def series_of(samples):
    text = ""
    for name, values in samples:
        name = name[:-1] + ',run="r"}' if name.endswith("}") else name + '{run="r"}'
        values = re.sub(r"(?<![+\w])([\d.]+)x", r"\1+0x", values)  # as promtool writes a constant
        text += f"      - {{series: '{name}', values: '{values}'}}\n"
    return text


def synthetic_test(rules_path, names, samples, firing):
    """A file for promtool test rules."""
    text = f"rule_files: ['{rules_path}']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n"
    text += series_of(samples) + "    alert_rule_test:\n"
    for name in names:
        text += f"      - {{eval_time: 40m, alertname: {name}" + ("" if name == firing else ", exp_alerts: []") + "}\n"
    return text


def check_alerts_fire(rules_path, rules, folder):
    names = [alert["alert"] for alert in rules]
    expect(set(names) == set(SYNTHETIC), f"alerts are {names}, tested are {list(SYNTHETIC)}")

    def promtool(samples, quiet):
        path = folder / "rules_test.yml"
        path.write_text(synthetic_test(rules_path, quiet, samples, None))
        done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr
    for name, samples in SYNTHETIC.items():
        # promtool expects no alert, so it reports the one that fires.
        code, said = promtool(samples, [name])
        expect(code != 0 and f"alertname:{name}" in said.replace(" ", "").replace('"', ""),
               f"{name} does not fire: {code}, {said}")
        code, said = promtool(samples, [other for other in names if other != name])
        expect(code == 0, f"alerts other than {name} fire: {said}")
    for samples in HEALTHY:
        code, said = promtool(samples, names)
        expect(code == 0, f"an alert fires for a healthy run: {said}")


def read_rules(path):
    import yaml  # Debian's python3-yaml
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


class Live:
    """A run on the simulated GPU, one on the CPU (whose peak is known), and a Prometheus that scrapes them."""

    def __init__(self, lockstep, nvml, folder, rules_path):
        prometheus_port = free_port()
        self.server = f"http://127.0.0.1:{prometheus_port}"
        self.ports = {"cuda": free_port(), "cpu": free_port()}
        self.log = folder / "cuda.log"
        self.runs = {device: self.start(lockstep, nvml, folder, device) for device in self.ports}
        (folder / "prometheus.yml").write_text(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ['{rules_path}']
scrape_configs:
  - job_name: lockstep
    static_configs: [{{targets: {[f'127.0.0.1:{port}' for port in self.ports.values()]}}}]
""")
        self.prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data_prometheus'}",
             f"--web.listen-address=127.0.0.1:{prometheus_port}"],
            stdout=open(folder / "prometheus.log", "w"), stderr=subprocess.STDOUT)

    def start(self, lockstep, nvml, folder, device):
        run = folder / f"a \"{device}\" run"
        run.mkdir()
        (run / "plan.json").write_text(json.dumps(PLAN))
        # A simulated GPU does a step in a fraction of a second.
        settings = ["model.layers=1", "model.mlp_width=32", "train.batch_tokens=32", "train.micro_batch=1",
                    "eval.tokens=32", "train.steps=1000000", "eval.every_steps=10", "checkpoint.every_steps=15",
                    "log.every_steps=1", f"log.metrics_port={self.ports[device]}",
                    f"checkpoint.local_directory={folder / device}", "checkpoint.keep_every_steps=30",
                    f"checkpoint.archive_directory={folder / 'archive'}"]
        command = [lockstep, "train", configuration(folder, "llama3"), "--run", run, "--device", device]
        return subprocess.Popen(command + [word for s in settings for word in ("--set", s)],
                                env=dict(os.environ, LD_LIBRARY_PATH=str(nvml)),
                                stdout=open(folder / f"{device}.log", "w"), stderr=subprocess.STDOUT)

    def metrics(self, device):
        return get(f"http://127.0.0.1:{self.ports[device]}/metrics")

    def up(self):
        return [series["value"][1] for series in query(self.server, "up")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.prometheus, *self.runs.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def check_live(live, dashboard, rules):
    if not wait_for("the run's metrics", lambda: "lockstep_validation_loss" in live.metrics("cuda") and
                    "lockstep_joules_per_token" in live.metrics("cuda") and "lockstep_mfu_ratio" in live.metrics("cpu")):
        return print(live.log.read_text()[-3000:])
    text = live.metrics("cuda")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    expect(checked.returncode == 0 and not checked.stderr, f"promtool: {checked.stdout} {checked.stderr} of {text}")
    wait_for("scrapes", lambda: len(query(live.server, "count_over_time(lockstep_joules_per_token[1m]) > 8")) == 1)
    expect(live.up() == ["1", "1"], "the runs are not up")
    seen = check_dashboard(live.server, dashboard)
    shown = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    hidden = shown - seen - {"lockstep_running", "lockstep_memory_limit_bytes"}
    expect(not hidden, f"no panel shows {hidden}")
    check_alerts_evaluate(live.server, rules)
    for process in live.runs.values():
        process.send_signal(signal.SIGTERM)
        expect(process.wait(timeout=PATIENCE_SECONDS) == 75, live.log.read_text()[-2000:])
    wait_for("that the runs are gone", lambda: live.up() == ["0", "0"])


def main():
    lockstep, nvml, repository = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        print("SKIPPED: prometheus is not installed (Debian's package of that name)")
        return 77
    rules_path = repository / "launch/grafana/alerts.yml"
    dashboard = json.loads((repository / "launch/grafana/lockstep.json").read_text())
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        rules = read_rules(rules_path)
        check_alerts_fire(rules_path, rules, folder)
        pack(lockstep, folder)
        with Live(lockstep, nvml, folder, rules_path) as live:
            check_live(live, dashboard, rules)
    finally:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
