#!/usr/bin/env python3
"""`plan` says what `train` then takes, its formulas hold, and what is wrong is refused by name.

usage: plan_test.py LOCKSTEP
"""

import json
import math
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile

import tiny_run

LOCKSTEP = sys.argv[1]
CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
DGX = CONFIGS / "clusters" / "dgx_h100.toml"
failures = []

# As published: Hugging Face's model cards, and for GPT-2 its 124M without what is tied.
PARAMETERS = {"gpt2_124m": 124_439_808, "llama3_8b": 8_030_261_248, "llama3_70b": 70_553_706_496,
              "qwen2.5_0.5b": 494_032_768, "qwen3_0.6b": 596_049_920, "smollm3_3b": 3_075_098_624}

PROCESSORS = """
name = "processors"
device = "cpu"
nodes = {nodes}
ranks_per_node = {ranks}
threads = 2
storage_write_bytes_per_second = 1e9
[hardware]
name = "some"
fp32_flops = 1e11
bf16_flops = 1e11
hbm_bytes_per_second = 1e10
hbm_bytes = {memory}
nvlink_bytes_per_second = 1e10
nic_bytes_per_second = 1e9
"""


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, code=0):
    done = subprocess.run([LOCKSTEP, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)
    expect(done.returncode == code, f"{arguments}: {done.returncode}, expected {code}: {done.stderr[-500:]}")
    return done.stdout, done.stderr


def plan(*arguments, code=0):
    out, _ = run("plan", *arguments, "--json", code=code)
    return json.loads(out)


def check_formulas(found):
    for formula in found["formulas"]:
        names = dict(formula["inputs"], sqrt=math.sqrt, max=max)
        value = eval(formula["formula"], {"__builtins__": {}}, names)  # of our own program
        expect(math.isclose(value, formula["value"], rel_tol=1e-9, abs_tol=1e-12), f"{formula}: {value}")
    names = {formula["name"] for formula in found["formulas"]}
    for name in ("mfu", "step_seconds", "device_bytes", "goodput", "best_interval_seconds", "wall_seconds"):
        expect(name in names, f"no formula of {name}")


def check_sums(found):
    seconds = sum(part["seconds"] for part in found["components"])
    expect(math.isclose(seconds, found["step_seconds"], rel_tol=1e-9), f"components {seconds}")
    expect(found["format"] == "lockstep plan 1", "format")


def check_against_train(config, cluster, folder):
    """The memory is what `train` announces, to its three digits."""
    threads = ("--set", "train.threads=2")
    found = plan(config, "--cluster", cluster, "--ranks", 1, "--explain", *threads)
    check_sums(found)
    check_formulas(found)
    _, log = run("train", config, "--run", folder / "run", "--device", "cpu", *threads)
    said = re.search(r"memory: (\S+ \S+) for weights, optimizer and activations, (\S+ \S+) for checkpoints", log)
    expect(said is not None, f"no memory in {log}")
    sums = (sum(part["bytes"] for part in found["memory"] if part["name"] != "host_copies"), found["host_bytes"])
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for text, planned in zip(said.groups(), sums):
        number, unit = text.split()
        expect(abs(float(number) * units[unit] - planned) <= 0.005 * planned, f"train says {text}, plan {planned}")


def check_models():
    for name, parameters in PARAMETERS.items():
        out, _ = run("plan", CONFIGS / f"{name}.toml", "--cluster", DGX, "--json")
        found = json.loads(out)
        expect(found["parameters"] == parameters, f"{name}: {found['parameters']}, published {parameters}")
        expect(found["search"]["best"] or not found["fits"], name)
        if not found["fits"]:
            _, why = run("plan", CONFIGS / f"{name}.toml", "--cluster", DGX, "--check", code=78)
            expect("are free on a GPU of DGX H100; " in why, why)


def check_what_if():
    model = CONFIGS / "llama3_8b.toml"
    args = (model, "--cluster", DGX, "--check", "--set", "layout.sharding=full", "--set", "train.recompute=block",
            "--set", "layout.replicate=1")
    base = plan(*args, "--nodes", 2)
    expect(base["ranks"] == 16 and base["nodes"] == 2, "nodes")
    slow = plan(*args, "--nodes", 2, "--network", 25)
    expect(slow["step_seconds"] > base["step_seconds"], "a slower network takes longer")
    other = plan(*args, "--nodes", 2, "--gpu", "A100")
    expect(other["step_seconds"] > base["step_seconds"] and "A100" in other["cluster"], "an A100 is slower")
    expect(base["run"]["energy_joules"] > 0 and other["run"]["energy_joules"] == 0, "an A100 takes the energy of an H100")
    aws = (model, "--cluster", DGX.with_name("aws_p5.toml"), "--check", *args[4:], "--nodes", 2)
    expect(plan(*aws)["run"]["price"] > 0 and plan(*aws, "--gpu", "A100")["run"]["price"] == 0, "an A100 has the price of an H100")
    longer = plan(*args, "--nodes", 2, "--sequence-length", 16384, "--set", "train.micro_batch=1")
    expect(longer["flops_per_token"] > base["flops_per_token"], "longer sequences take more")


def check_without_limit_of_stack():
    """As clusters have it; half of a process's addresses are no memory's then."""
    done = subprocess.run([LOCKSTEP, "plan", CONFIGS / "llama3_8b.toml", "--cluster", DGX], capture_output=True, text=True,
                          timeout=300, check=False, preexec_fn=lambda: resource.setrlimit(
                              resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
    expect(done.returncode == 0, f"without a limit of the stack: {done.returncode}: {done.stderr[-500:]}")


def check_residuals(config, cluster, folder):
    raw = plan(config, "--cluster", cluster, "--ranks", 1)
    expect("corrected" not in raw, "nothing is known to correct by")
    residuals = folder / "cpu.residuals.json"
    residuals.write_text(json.dumps({"format": "lockstep residuals 1", "runs": [{"key": "another", "components": [
        {"name": "products", "planned_seconds": 1, "measured_seconds": 1.5}]}]}))
    both = plan(config, "--cluster", cluster, "--ranks", 1)
    expect(both["step_seconds"] == raw["step_seconds"], "the raw plan stays")
    products = {part["name"]: part["seconds"] for part in both["corrected"]["components"]}["products"]
    before = {part["name"]: part["seconds"] for part in raw["components"]}["products"]
    expect(math.isclose(products, 1.5 * before), f"{products}, {before}")
    text, _ = run("plan", config, "--cluster", cluster, "--ranks", 1)
    expect("corrected" in text, text)
    other = plan(config, "--cluster", cluster, "--ranks", 1, "--network", 1)
    expect("corrected" not in other, "over another network nothing ran")
    residuals.write_text("{")
    _, why = run("plan", config, "--cluster", cluster, "--ranks", 1, code=65)
    expect("cpu.residuals.json" in why, why)
    residuals.unlink()


def check_refusals(config, cluster, folder):
    small = folder / "small.toml"
    small.write_text(PROCESSORS.format(nodes=1, ranks=2, memory=200_000))
    _, why = run("plan", config, "--cluster", small, "--check", code=78)
    expect("this needs " in why and "a node of processors" in why, why)
    for arguments, code, part in (
            ((config, "--cluster", folder / "none.toml"), 78, "none.toml"),
            ((config, "--gpu", "H10"), 78, "did you mean H100?"),
            ((config, "--cluster", cluster, "--gpu", "H100"), 78, "has no GPUs"),
            ((config, "--cluster", cluster, "--ranks", 64), 78, "the layout is of 64 ranks, and processors has 4"),
            ((config, "--cluster", cluster, "--nodes", 0), 64, "--nodes"),
            ((config, "--cluster", cluster, "--nodes", "two"), 64, "--nodes"),
            ((config, "--cluster", cluster, "--network", -1), 64, "--network"),
            ((config, "--cluster", cluster, "--ranks", 4, "--set", "layout.tensor=3"), 78, "layout"),
            ((config, "--cluster", cluster, "--set", "train.micro_batch=0"), 78, "train.micro_batch"),
            ((config, "--clusters", cluster), 64, "did you mean --cluster?"),
            ((folder / "none", "--cluster", cluster), 78, "none")):
        _, why = run("plan", *arguments, code=code)
        expect(part in why, f"{arguments}: {why}")


def check_any_bytes(config, folder):
    """Whatever stands in the files, they are planned with or refused."""
    rng = random.Random(7)
    good = PROCESSORS.format(nodes=1, ranks=1, memory=2**30).encode()
    damaged = folder / "damaged.toml"
    for _ in range(40):
        text = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            how = rng.randrange(3)
            if how == 0:
                text[at] = rng.randrange(256)
            elif how == 1:
                del text[at:at + rng.randrange(1, 20)]
            else:
                text[at:at] = rng.choice([b"9" * 30, b"-", b"nan", b"[", b"\n", b"="])
        damaged.write_bytes(text)
        done = subprocess.run([LOCKSTEP, "plan", str(config), "--cluster", str(damaged), "--check"],
                              capture_output=True, timeout=300, check=False)
        expect(done.returncode in (0, 65, 78), f"{done.returncode} of {bytes(text)}: {done.stderr[-300:]}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_run.pack(LOCKSTEP, folder)
        config = tiny_run.configuration(folder, "llama3")
        cluster = folder / "cpu.toml"
        cluster.write_text(PROCESSORS.format(nodes=2, ranks=2, memory=2**30))
        check_against_train(config, cluster, folder)
        check_models()
        check_what_if()
        check_without_limit_of_stack()
        check_residuals(config, cluster, folder)
        check_refusals(config, cluster, folder)
        check_any_bytes(config, folder)
    print("failed" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
