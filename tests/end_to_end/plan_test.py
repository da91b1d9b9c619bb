#!/usr/bin/env python3
"""`plan` predicts the memory of `train`, its formulas hold, and it rejects wrong input by name.

usage: plan_test.py LOCKSTEP [SANITIZERS]
"""

import json
import math
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile

import tiny_run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

LOCKSTEP = sys.argv[1]
CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
DGX = CONFIGS / "clusters" / "dgx_h100.toml"
failures = []

# Published numbers: the model cards of Hugging Face, and for GPT-2 124M without the tied head.
PARAMETERS = {"gpt2_124m": 124_439_808, "llama3_8b": 8_030_261_248, "llama3_8b_1024": 8_030_261_248,
              "llama3_70b": 70_553_706_496,
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


def run(*arguments, code=0, **environment):
    done = subprocess.run([LOCKSTEP, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env=dict(os.environ, **environment))
    expect(done.returncode == code, f"{arguments}: {done.returncode}, expected {code}: {done.stderr[-500:]}")
    return done.stdout, done.stderr


def plan(*arguments, code=0):
    out, _ = run("plan", *arguments, "--json", code=code)
    return json.loads(out)


def check_formulas(found):
    for formula in found["formulas"]:
        names = dict(formula["inputs"], sqrt=math.sqrt, exp=math.exp, expm1=math.expm1, min=min, max=max)
        value = eval(formula["formula"], {"__builtins__": {}}, names)  # safe: Lockstep printed it
        expect(math.isclose(value, formula["value"], rel_tol=1e-9, abs_tol=1e-12), f"{formula}: {value}")
    names = {formula["name"] for formula in found["formulas"]}
    for name in ("mfu", "step_seconds", "device_bytes", "goodput", "best_interval_seconds", "wall_seconds"):
        expect(name in names, f"no formula of {name}")


def check_sums(found):
    seconds = sum(part["seconds"] for part in found["components"])
    expect(math.isclose(seconds, found["step_seconds"], rel_tol=1e-9), f"components {seconds}")
    expect(found["format"] == "lockstep plan 1", "format")


def check_band():
    """Times, rates and costs have the range of similar runs: those on as many GPUs."""
    args = ("plan", CONFIGS / "llama3_8b.toml", "--cluster", DGX, "--check")
    found, text = plan(*args[1:]), run(*args)[0]
    low, high = found["band"]["low"], found["band"]["high"]
    expect(low < 1 < high, f"{found['band']}")
    times, rates, mfu = re.search(pattern("plan.band", runs="published runs on 9 to 128 GPUs", times=r"(.*?) s", rates=r"(.*?)k", mfu=r"(.*?)%"), text).groups()
    for shown, unit, value, ends in ((times, " s", found["step_seconds"], (low, high)),
                                     (rates, "k", found["tokens_per_second"] / 1e3, (1 / high, 1 / low)),
                                     (mfu, "%", 100 * found["mfu"], (1 / high, 1 / low))):
        numbers = [float(number.removesuffix(unit)) for number in shown.split(" to ")]
        expect(all(math.isclose(number, value * end, rel_tol=0.006) for number, end in zip(numbers, ends)), f"{shown}: {value}")
    expect(len(re.findall(r"\n  (?:training|with interruptions|energy) .*\(\S+.* to .*\)\n", text)) == 3, text)


def check_calls(found):
    """Rows sum to the time of their component without overlap. Components with rows are those of the step."""
    step = {part["name"]: part["seconds"] for part in found["components"]}
    for part in found["calls"]:
        rows = part["rows"]
        expect(len({row["name"] for row in rows}) == len(rows) > 0, f"names of {part['component']}")
        alone = sum(row["seconds"] for row in rows)
        expect(math.isclose(alone, part["alone_seconds"], rel_tol=1e-9), f"{part['component']}: {alone}")
        expect(part["step_seconds"] == step.get(part["component"], 0), f"{part['component']} in the step")
        for row in rows:
            expect(0 <= row["measured_calls"] <= row["calls"] > 0, f"{row}")
            expect((row["flops"] > 0) == (part["component"] in ("products", "attention")), f"{row}")
    return {part["component"]: part for part in found["calls"]}


def check_explanation(config, cluster, folder):
    """With one rank nothing overlaps; with several, the plan reports the overlap."""
    read = folder / "read.toml"
    read.write_text("storage_read_bytes_per_second = 1e4\n" + cluster.read_text())  # slower than compute
    alone = plan(config, "--cluster", read, "--ranks", 1, "--explain", "--check")
    for part in check_calls(alone).values():
        expect(math.isclose(part["alone_seconds"], part["step_seconds"], rel_tol=1e-9), f"{part['component']} overlaps")
    check_formulas(alone)
    data = {formula["name"]: formula["value"] for formula in alone["formulas"]}["data"]
    expect(data > 0 and data == {part["name"]: part["seconds"] for part in alone["components"]}["data"], f"{data}")
    expect("calls" not in plan(config, "--cluster", cluster, "--ranks", 1, "--check"), "calls without --explain")
    model = (CONFIGS / "llama3_8b.toml", "--cluster", DGX, "--nodes", 2, "--check", "--set", "layout.shard=16", "--explain")
    found = plan(*model)
    calls = check_calls(found)
    check_formulas(found)
    prices = {formula["name"] for formula in found["formulas"]}
    for name in ("attention_backward_seconds", "all_gather_seconds", "adamw_update_seconds"):
        expect(name in prices, f"no price of {name}: {prices}")
    expect(any(name.startswith("matmul_") for name in prices), f"no price of a product: {prices}")
    expect(calls["products"]["step_seconds"] > calls["products"]["alone_seconds"], "products are slowed")
    expect(calls["communication_shard"]["step_seconds"] < calls["communication_shard"]["alone_seconds"], "gathers are hidden")
    expect({row["name"] for row in calls["communication_shard"]["rows"]} == {"all_gather", "all_to_all"}, f"{calls}")
    text, _ = run("plan", *model)
    table = text[text.index(f"\n{says('plan.calls')}"):text.index(f"\n{says('plan.formulas')}")]
    for part in (rf"\n  {pattern('part.products')} .* {pattern('plan.slowed')}\n", f" {pattern('plan.hidden')}",
                 r"\n    matmul_forward +4,160 +3\.93e\+15 .*T FLOP/s +" + pattern("plan.priced") + "\n"):
        expect(re.search(part, table) is not None, f"no '{part}' in {table}")


def check_against_train(config, cluster, folder):
    """The memory equals that which `train` announces, to three digits."""
    threads = ("--set", "train.threads=2")
    found = plan(config, "--cluster", cluster, "--ranks", 1, "--explain", *threads)
    check_sums(found)
    check_formulas(found)
    _, log = run("train", config, "--run", folder / "run", "--device", "cpu", *threads)
    two = r"(\S+ \S+)"
    said = re.search(pattern("train.memory", memory=two) + ", " + pattern("train.memory_of_checkpoints", memory=two), log)
    expect(said is not None, f"no memory in {log}")
    sums = (sum(part["bytes"] for part in found["memory"] if part["name"] not in ("host_copies", "constants")),
            {part["name"]: part["bytes"] for part in found["host_memory"]}["checkpoints"])
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for text, planned in zip(said.groups(), sums):
        number, unit = text.split()
        expect(abs(float(number) * units[unit] - planned) <= 0.005 * planned, f"train says {text}, plan {planned}")


def check_masked(config, cluster, folder):
    """The plan and `train` at its start report masked sequences with the same words."""
    odd = ("--set", "train.batch_tokens=96", "--set", "train.micro_batch=2", "--set", "train.steps=1")
    def masked(found):
        return [note for note in found["notes"] if re.match(pattern("train.masked"), note)]

    notes = masked(plan(config, "--cluster", cluster, "--ranks", 1, *odd))
    expect(len(notes) == 1 and notes[0].startswith(says("train.masked", sequences=3, computed=4)), f"{notes}")
    _, log = run("train", config, "--run", folder / "masked", "--device", "cpu", *odd)
    expect(notes[0] in log, f"train does not say '{notes}': {log[-2000:]}")
    even = plan(config, "--cluster", cluster, "--ranks", 1)
    expect(not masked(even), f"nothing is masked: {even['notes']}")
    text, _ = run("plan", CONFIGS / "llama3_8b.toml", "--cluster", DGX, "--nodes", 128, "--check")
    expect("\n" + ", ".join((f"{says('plan.note')} {says('train.masked', sequences=512, computed=1024)}",
                             says("train.masked_on_ranks", rows="1 x 1", ranks=1024, masked=512))) in text, text)


def check_text():
    """The text has rows only for existing parts, with the origin of their numbers."""
    model = (CONFIGS / "llama3_8b.toml", "--cluster", DGX, "--nodes", 2, "--check", "--set", "layout.shard=16")
    text, _ = run("plan", *model)
    host = says("plan.memory_of_host", ranks=8)
    for part in (says("part.communication_shard") + " ", says("plan.assumed"), f"\n{host}\n",
                 says("plan.fits", memory="2.00 TiB")):
        expect(part in text, f"no '{part}' in {text}")
    expect(says("part.communication_host") not in text and says("part.communication_tensor") not in text, text)
    text, _ = run("plan", *model, "--set", "layout.shard=8", "--set", "layout.tensor=2")
    expect(says("part.communication_tensor") in text, text)
    offload = ("--set", "train.offload_optimizer=true", "--set", "train.recompute=block")
    text, _ = run("plan", *model, *offload)
    host = text[text.index(host):text.index(says("plan.step_time"))]
    expect(says("part.communication_host") in text and says("plan.master_weights") in host
           and says("plan.moments") in host, text)


def check_no_zeros():
    """Small numbers have a smaller unit. No line ends in blanks."""
    tiny = ("--set", "train.steps=1", "--set", "train.batch_tokens=8192", "--set", "schedule.warmup_steps=0")
    for more in ((), ("--set", "layout.sharding=full"), tiny):
        text, _ = run("plan", CONFIGS / "gpt2_124m.toml", "--cluster", DGX, "--nodes", 1, "--set", "layout.replicate=1", *more)
        expect(re.search(r"(?<![\d.,])(0\.00(?!%)|0 (us|ms|k?Wh)|0s\b)", text) is None, f"a zero: {text}")
        expect(re.search(r" \n", text) is None, f"blanks at the end of a line: {text}")
        expect(says("plan.interruptions") in text, text)
        expect(re.search(rf"\n  {pattern('plan.energy')} +\S+ [kMG]?Wh  .*\n", text) is not None, text)


def check_named_machines(config, cluster, folder):
    """The cluster of the configuration counts unless an option names another one."""
    named = plan(config, "--set", f"plan.cluster={cluster}", "--check", "--ranks", 1)
    expect(named["cluster"] == "processors", f"{named['cluster']}")
    _, why = run("plan", config, "--check", code=78)
    expect("plan.cluster" in why, why)
    text, _ = run("plan", config, "--check", "--ranks", 1, LOCKSTEP_PLAN_CLUSTER=str(cluster))
    expect(says("plan.machines", cluster="processors", ranks=1, nodes=1) + "\n" in text, text)
    other = ("--set", f"plan.cluster={cluster}", "--check")
    expect(plan(config, *other, "--cluster", DGX, "--ranks", 1)["cluster"] == "DGX H100", "--cluster is over it")
    expect(plan(config, *other, "--gpu", "A100", "--ranks", 1)["cluster"] == "NVIDIA A100", "--gpu is over it")
    _, why = run("plan", config, "--set", f"plan.cluster={folder / 'later.json'}", code=78)
    expect(all(part in why for part in ("plan.cluster: ", "later.json", "`lockstep preflight")), why)
    _, why = run("plan", folder / "nosuch.toml", code=78)
    expect("nosuch.toml: " in why, f"the file comes first: {why}")
    text, _ = run("plan", "--help")
    expect("plan.cluster" in text and all(name in text for name in ("A100-SXM4-40GB", "H100 at 500 W", "GB200")), text)


def check_wishes():
    """A note reports each setting that a plan changes."""
    def notes(model, *arguments):
        return plan(CONFIGS / f"{model}.toml", "--gpu", "H100", *arguments)["notes"]
    longer = notes("gpt2_124m", "--sequence-length", 4096, "--check")
    raised = says("plan.positions", positions="1,024", length="4,096")
    expect(f"{raised}, {says('plan.more_parameters', count='2.36M')}" in longer, f"{longer}")
    longer = notes("llama3_8b", "--sequence-length", 131072, "--check", "--nodes", 8, "--set", "train.recompute=block",
                   "--set", "layout.shard=16")
    expect(says("plan.positions", positions="8,192", length="131,072") in longer, f"{longer}")
    expect(not any("max_positions" in note for note in notes("gpt2_124m", "--sequence-length", 512, "--check")), "it is enough")
    fewer = notes("llama3_8b", "--nodes", 128, "--ranks", 512, "--check")
    expect(says("plan.idle_nodes", ranks=512, used=64, nodes=128) in fewer, f"{fewer}")
    expect(not any("--ranks" in note for note in notes("llama3_8b", "--nodes", 8, "--ranks", 64, "--check")), "all do")


def check_impossible_layouts():
    """Impossible layouts are rejected with a remedy. Errors for any number of ranks come first."""
    model = (CONFIGS / "llama3_8b.toml", "--gpu", "H100")
    indivisible = says("layout.indivisible", tensor=3, key="model.heads", size=32)
    _, why = run("plan", *model, "--set", "layout.tensor=3", "--check", code=78)
    expect(indivisible in why and not re.search(pattern("layout.started"), why) and "--ranks" not in why, why)
    for ranks in (8, 24):
        notes = plan(*model, "--set", "layout.tensor=3", "--set", "layout.replicate=1", "--ranks", ranks)["notes"]
        expect(notes[0].startswith(indivisible) and notes[0].endswith(": " + says("plan.fastest_layout")), f"{notes}")
    for setting, product, remedy in (("layout.replicate=16", "16 x 1 x 1 = 16", "--nodes 2"),
                                     ("layout.replicate=12", "12 x 1 x 1 = 12", "--nodes 2 --ranks 12"),
                                     ("layout.replicate=3", "3 x 2 x 1 = 6", "--ranks 6")):
        _, why = run("plan", CONFIGS / "llama3_70b.toml", "--gpu", "H100", "--set", "layout.tensor=1", "--set", setting,
                     "--check", code=78)
        expect(f" {product}, " in why and f"{says('plan.there_are', ranks=8)}; {says('plan.change', options=remedy)}\n" in why,
               why)
    _, why = run("plan", *model, "--set", "layout.shard=3", "--check", "--set", "layout.replicate=1", code=78)
    change = f"{says('plan.change', options='--ranks 3')}, {says('plan.leave_out', key='layout.shard')}\n"
    expect(change in why, why)
    _, why = run("plan", *model, "--nodes", 16385, code=78)
    expect(says("plan.most_ranks", most="131,072", ranks="131,080") in why and "--ranks" in why and "--nodes" in why, why)


def check_attention():
    """Document masks exclude cuDNN attention. The plan has the price of the kernels that run, and a note."""
    args = (CONFIGS / "llama3_8b.toml", "--cluster", DGX, "--nodes", 8, "--check", "--set")
    own, cudnn, chosen = (plan(*args, setting) for setting in (
        "data.document_mask=true", "data.document_mask=false", "train.attention=own"))
    seconds = [{part["name"]: part["seconds"] for part in found["components"]}["attention"] for found in (own, cudnn, chosen)]
    expect(seconds[0] == seconds[2] > 2 * seconds[1], f"{seconds}")
    said = [any(says("plan.own_attention") in note for note in found["notes"]) for found in (own, cudnn, chosen)]
    expect(said == [True, False, True], f"{said}")


def check_derived_axes():
    """If a configuration sets one axis, a note has the other axis, which follows from the number of ranks."""
    def derived(key, size, other, other_size, tensor):
        return says("plan.derived", key=key, size=size, ranks=256, other=other, other_size=other_size, tensor=tensor)

    for model, nodes, more, note in (
            ("llama3_8b", 32, (), f"{derived('layout.replicate', 32, 'layout.shard', 8, 1)}; {says('plan.copy_on_one')}"),
            ("llama3_70b", 32, (), f"{derived('layout.shard', 128, 'layout.replicate', 1, 2)}; {says('plan.copy_on', hosts=32)}"),
            ("smollm3_3b", 4, (), None), ("smollm3_3b", 4, ("--set", "layout.shard=8", "--set", "layout.replicate=4"), None)):
        notes = plan(CONFIGS / f"{model}.toml", "--cluster", DGX, "--nodes", nodes, "--check", *more)["notes"]
        found = [one for one in notes if re.match(pattern("plan.derived"), one)]
        expect(found == ([note] if note else []), f"{model}: {found}")


def check_misfits():
    """Figures agree. The error names only settings to change, and a number of nodes that suffices, if any."""
    few = CONFIGS / "clusters" / "cpu.toml"
    for model, tensor, nodes in (("llama3_8b", 1, says("plan.room", nodes=32)),
                                 ("llama3_70b", 8, says("plan.no_room", most="32,768"))):
        _, why = run("plan", CONFIGS / f"{model}.toml", "--cluster", few, "--set", f"layout.tensor={tensor}", code=78)
        lines = [line for line in why.splitlines() if says("plan.too_much") in line]
        expect(len(lines) == len(set(lines)) == 5 and f"{nodes}\n" in why, why)
    text, why = run("plan", CONFIGS / "llama3_8b.toml", "--cluster", DGX, "--check", "--set", "train.micro_batch=4", code=78)
    size = r"(\S+) GiB"
    said = re.search(rf"{pattern('memory.needs', memory=size)}.* {size} {pattern('memory.free_on_gpu', cluster='DGX H100')}, "
                     + rf"{pattern('memory.apart', memory=size)}; {pattern('memory.remedy', settings='train.micro_batch = 1')} ",
                     why)
    expect(said is not None, why)
    needed, free, apart = map(float, said.groups())
    table = re.search(rf"\n  {pattern('plan.sum')} +{size}  .* {size}: .* {pattern('plan.too_much')}\n", text)
    expect(abs(needed + apart - float(table[1])) < 1 and abs(free + apart - float(table[2])) < 0.1, f"{why}{text}")


def check_page():
    """docs/planning.md shows the output of its command, without some rows."""
    page = (CONFIGS.parent / "docs" / "planning.md").read_text()
    command, example = re.search(r"\n    lockstep (plan configs/llama3_8b.*)\n\n((?:    .*\n|\n)+)", page).groups()
    text, _ = run(*[CONFIGS.parent / word if word.startswith("configs/") else word for word in command.split()])
    printed = {line.rstrip() for line in text.splitlines()}
    shown = [line[4:] for line in example.splitlines() if line]
    expect(len(shown) > 30, f"{shown}")
    for line in shown:
        expect(line in printed, f"the page has '{line}', the program does not")
    shown = re.search(rf"\n    ({pattern('plan.calls')}.*\n(?:    .*\n)+)", page).group(1).splitlines()
    text, _ = run("plan", CONFIGS / "llama3_8b.toml", "--cluster", DGX, *command.split()[4:], "--explain")
    expect(len(shown) == 6 and all(line.strip() in text for line in shown), f"{shown}, {text}")


def check_hosts(folder):
    """A host that is too small is rejected like a GPU, with settings that fit."""
    model = CONFIGS / "llama3_8b.toml"
    offload = ("--nodes", 2, "--set", "train.offload_optimizer=true", "--set", "train.recompute=block", "--set",
               "layout.shard=16")
    gpus = folder / "gpus.toml"
    base = "name = 'ours'\ngpu = 'H100'\nranks_per_node = 8\n"
    gpus.write_text(base)
    free = plan(model, "--cluster", gpus, "--check", *offload)
    expect(any("host_memory_bytes" in note for note in free["notes"]) and free["fits"], f"{free['notes']}")
    expect(free["host_capacity_bytes"] == 0 and not free["constants_measured"], "nothing is known")
    each = sum(part["bytes"] for part in free["host_memory"])
    parts = {part["name"]: part["bytes"] for part in free["host_memory"]}
    # Master weights and moments of a sixteenth, 12 bytes per weight, and the padding of shards.
    state = parts["master_weights"] + parts["moments"]
    expect(1 <= state / (12 * PARAMETERS["llama3_8b"] / 16) < 1.01, f"{parts}")
    gpus.write_text(base + f"host_memory_bytes = {8 * each}\n")
    expect(plan(model, "--cluster", gpus, "--check", *offload)["fits"], "it is enough")
    gpus.write_text(base + f"host_memory_bytes = {8 * state}\n")
    out, why = run("plan", model, "--cluster", gpus, "--check", "--json", *offload, code=78)
    found = json.loads(out)
    expect(not found["fits"] and found["missing_bytes"] == 0 and found["missing_host_bytes"] > 0, f"{found['notes']}")
    expect(all(part in why for part in (says("memory.of_ranks", ranks=8), says("memory.free_on_node", cluster="ours"))), why)
    expect(re.search(pattern("memory.remedy", settings=".*train.offload_optimizer = false"), why), why)
    gpus.write_text(base + "host_memory_bytes = 'much'\n")
    _, why = run("plan", model, "--cluster", gpus, "--check", code=78)
    expect("gpus.toml:4: host_memory_bytes: " in why, why)


def check_models():
    for name, parameters in PARAMETERS.items():
        out, _ = run("plan", CONFIGS / f"{name}.toml", "--cluster", DGX, "--json")
        found = json.loads(out)
        expect(found["parameters"] == parameters, f"{name}: {found['parameters']}, published {parameters}")
        expect(found["search"]["best"] or not found["fits"], name)
        if not found["fits"]:
            _, why = run("plan", CONFIGS / f"{name}.toml", "--cluster", DGX, "--check", code=78)
            free = says("memory.free_on_gpu", cluster="DGX H100")
            expect(f"{free}, {says('memory.apart', memory='1.50 GiB')}; " in why, why)


def check_intervals():
    """On the hosts of its comment, a configuration saves every one to five minutes, at ten or more best intervals."""
    for name in PARAMETERS:
        if name == "llama3_70b" and "thread" in sys.argv[2:]:
            continue
        text = (CONFIGS / f"{name}.toml").read_text()
        said = re.search(r"(\d+) s [^\d\n]*(\d+) ranks [^\n]*/dgx_h100\.toml[^\n]*\nevery_steps = (\d+) +#[^\d\n]*(\d+) steps?", text)
        expect(said is not None, f"{name}: no interval of checkpoints")
        seconds, ranks, every, best = map(int, said.groups())
        found = plan(CONFIGS / f"{name}.toml", "--cluster", DGX, "--nodes", str(ranks // 8), "--check")
        expect(60 <= seconds <= 310 and abs(every * found["step_seconds"] - seconds) < 0.05 * seconds,
               f"{name}: {every} steps take {every * found['step_seconds']} s")
        expect(found["run"]["best_interval_steps"] == best and every >= 10 * best,
               f"{name}: {best} and {every}, planned {found['run']}")


def check_kept():
    """With memory for all weights, the search proposes sharding of gradients instead of keeping all blocks."""
    found = plan(CONFIGS / "llama3_8b.toml", "--cluster", DGX, "--nodes", 128, "--set",
                 "data.document_mask=false")["search"]["best"]
    expect(all(one["keep_gathered"] == 0 for one in found), f"{found}")
    expect(found[0]["mfu"] > 0.4, f"{found[0]}")


def check_chunks():
    """The search splits the tokens of tensor ranks where that is faster and possible, so its layouts are accepted."""
    arguments = (CONFIGS / "llama3_70b.toml", "--cluster", DGX, "--nodes", 32, "--set", "train.sequence_length=4098",
                 "--set", "train.batch_tokens=4196352", "--set", "layout.tensor_chunks=1")
    best = plan(*arguments)["search"]["best"]
    expect(best[0]["tensor"] > 1 and best[0]["tensor_chunks"] > 1, f"{best[0]}")
    for layout in best[:2]:
        keys = ("replicate", "shard", "tensor", "tensor_chunks", "keep_gathered")
        plan(*arguments, "--check", "--set", f"train.micro_batch={layout['micro_batch']}",
             *(word for key in keys for word in ("--set", f"layout.{key}={layout[key]}")))


def check_cost_model():
    """The other model of many GPUs, tests/bench/cluster_cost.py, predicts throughputs within 10 % of plans."""
    sys.path.insert(0, str(CONFIGS.parent / "tests" / "bench"))
    import cluster_cost  # noqa: PLC0415
    small, large = ("llama3_8b", "train.recompute=cheap"), ("llama3_70b",)
    whole = "train.batch_tokens=8388608"
    layouts = ((*small, "layout.shard=64"), (*small, "layout.shard=1024", whole), (*small, "layout.shard=8", whole),
               (*large, "layout.tensor=8", "layout.shard=64"),
               (*large, "layout.tensor=8", "layout.shard=64", "layout.sharding=weights"),
               (*large, "layout.shard=256"),  # with tensor=2
               (*large, "layout.tensor=1", "layout.shard=512", "train.recompute=block"),
               ("llama3_8b_1024", "train.recompute=cheap"))
    for run_of, (model, *settings) in zip(cluster_cost.RUNS, layouts, strict=True):
        ranks = run_of.layout.shard * run_of.layout.replicate * run_of.layout.tensor
        found = plan(CONFIGS / f"{model}.toml", "--cluster", DGX, "--nodes", ranks // 8, "--check", "--set",
                     "data.document_mask=false", *(word for setting in settings for word in ("--set", setting)))
        lines = cluster_cost.step(run_of.model, run_of.layout, cluster_cost.ENGINES["now"])
        ratio = found["tokens_per_second"] / ranks / cluster_cost.tokens_per_second(run_of, lines)
        expect(0.9 < ratio < 1.1, f"{run_of.name}: the plan is {ratio} times as fast")


def check_what_if():
    model = CONFIGS / "llama3_8b.toml"
    args = (model, "--cluster", DGX, "--check", "--set", "layout.sharding=full", "--set", "train.recompute=block",
            "--set", "layout.shard=16")
    base = plan(*args, "--nodes", 2)
    expect(base["ranks"] == 16 and base["nodes"] == 2, "nodes")
    slow = plan(*args, "--nodes", 2, "--network", 25)
    expect(slow["step_seconds"] > base["step_seconds"], "a slower network takes longer")
    other = plan(*args, "--nodes", 2, "--gpu", "A100")
    expect(other["step_seconds"] > base["step_seconds"] and "A100" in other["cluster"], "an A100 is slower")
    expect(base["run"]["energy_joules"] > 0 and other["run"]["energy_joules"] == 0, "an A100 takes the energy of an H100")
    aws = (model, "--cluster", DGX.with_name("aws_p5.toml"), "--check", *args[4:], "--nodes", 2)
    expect(plan(*aws)["run"]["price"] > 0 and plan(*aws, "--gpu", "A100")["run"]["price"] == 0, "an A100 has the price of an H100")
    written = plan(*args, "--nodes", 2, "--storage", 0.001, "--set", "checkpoint.every_steps=10")["run"]
    expect(math.isclose(written["save_write_seconds"], 12 * PARAMETERS["llama3_8b"] / 2 / 1e6), "a node writes its half")
    expect(written["save_stall_seconds"] > 0 == base["run"]["save_stall_seconds"], "slow storage is waited for")
    expect(written["best_interval_steps"] > base["run"]["best_interval_steps"] > 0, f"{written}, {base['run']}")
    longer = plan(*args, "--nodes", 2, "--sequence-length", 16384, "--set", "train.micro_batch=1")
    expect(longer["flops_per_token"] > base["flops_per_token"], "longer sequences take more")


def check_other_ranks(folder):
    """For ranks that do not fit the layout of the configuration, a plan proposes another layout. A cluster file of one
    node also serves several nodes."""
    model = CONFIGS / "llama3_8b.toml"
    found = plan(model, "--gpu", "H100", "--ranks", 20)
    layout = found["layout"]
    expect(layout["replicate"] * layout["shard"] * layout["tensor"] == 20, f"{layout}")
    expect(found["step_seconds"] == found["search"]["best"][0]["step_seconds"], "it is the fastest")
    fastest = f"{says('plan.there_are', ranks=20)}: {says('plan.fastest_layout')}"
    expect(any(fastest in note for note in found["notes"]), f"{found['notes']}")
    one = folder / "one.toml"
    one.write_text("name = 'one'\ngpu = 'H100'\nranks_per_node = 8\n[hardware]\nnic_bytes_per_second = 0\n")
    _, why = run("plan", model, "--cluster", one, "--nodes", 2, "--check", code=78)
    expect("hardware.nic_bytes_per_second: " in why and "--network" in why, why)
    plan(model, "--cluster", one, "--nodes", 2, "--check", "--network", 400, "--set", "layout.shard=16")
    small = folder / "small_gpus.toml"
    small.write_text("name = 'small'\ngpu = 'H100'\nranks_per_node = 8\nhardware.hbm_bytes = 8e9\nnodes = 2\n")
    text, _ = run("plan", CONFIGS / "llama3_70b.toml", "--cluster", small)
    expect(says("plan.none_fits") in text and f" GiB {says('plan.too_much')}\n" in text
           and re.search(pattern("plan.room"), text), text)


def check_without_limit_of_stack():
    """Clusters often have no limit of the stack. Then half of the addresses of a process cannot be mapped."""
    done = subprocess.run([LOCKSTEP, "plan", CONFIGS / "llama3_8b.toml", "--cluster", DGX], capture_output=True, text=True,
                          timeout=300, check=False, preexec_fn=lambda: resource.setrlimit(
                              resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
    expect(done.returncode == 0, f"without a limit of the stack: {done.returncode}: {done.stderr[-500:]}")


# A cluster file as `preflight` writes it.
MEASURED = {
    "format": "lockstep cluster 1", "name": "measured", "device": "cuda", "nodes": 2, "ranks_per_node": 8, "threads": 1,
    "inside_latency_seconds": 1e-5, "across_latency_seconds": 1e-4, "compute_beside": 1.5, "other_beside": 1.5, "wait_share": 0,
    "launch_seconds": 1e-4, "constant_bytes": 2**32, "host_memory_bytes": 2**41, "storage_read_bytes_per_second": 0,
    "storage_write_bytes_per_second": 0, "watts": 0, "price_per_gpu_hour": 0, "currency": "USD",
    "gpu_hours_per_interruption": 50700, "restart_seconds": 300,
    "hardware": {"name": "NVIDIA A100", "architecture": "ampere", "bf16_flops": 312e12, "fp8_flops": 0,
                 "fp32_flops": 19.5e12, "multiprocessors": 108, "hbm_bytes_per_second": 2.04e12, "hbm_bytes": 80 * 2**30,
                 "nvlink_bytes_per_second": 230e9, "nic_bytes_per_second": 23e9, "host_bytes_per_second": 25e9,
                 "domain_ranks": 8, "sustained": 0.812, "power": 1, "slowdown": 0.2},
    "links": [{"collective": "all_gather", "ranks": ranks, "domains": domains, "beside": True, "latency_seconds": 0.5,
               "bytes_per_second": 1e9, "worst_error": 0, "times": [{"bytes": 1, "seconds": 0.5}, {"bytes": 1e9, "seconds": 1.5}]} for ranks, domains in ((2, 1), (16, 2))],
    "operators": [{"operator": "swiglu_forward", "type": "bf16", "bytes": 1, "calls": 1, "seconds": 1e-3}]}


def check_what_was_measured(folder):
    """A plan for another GPU or network ignores the measurements of it, and only these."""
    model = (CONFIGS / "llama3_8b.toml", "--check", "--set", "layout.shard=16")
    measured, without, known = folder / "measured.json", folder / "without.json", folder / "known.toml"
    measured.write_text(json.dumps(MEASURED))
    base = plan(*model, "--cluster", measured)
    expect(base["constants_measured"] and base["step_seconds"] > 10, "measurements count")
    less = dict(MEASURED, links=MEASURED["links"][:1])  # inside a domain
    less["hardware"] = dict(MEASURED["hardware"], nic_bytes_per_second=46e9)
    without.write_text(json.dumps(less))
    faster = plan(*model, "--cluster", measured, "--network", 400)
    expect(faster["step_seconds"] == plan(*model, "--cluster", without)["step_seconds"], "links of another network")
    expect(faster["step_seconds"] < base["step_seconds"], "it is faster")
    known.write_text("name = 'known'\ngpu = 'H100'\nnodes = 2\nranks_per_node = 8\nhardware.nic_bytes_per_second = 23e9\n")
    other, fresh = plan(*model, "--cluster", measured, "--gpu", "H100"), plan(*model, "--cluster", known)
    expect(other["components"] == fresh["components"] and other["memory"] == fresh["memory"], f"{other}, {fresh}")
    expect(not other["constants_measured"] and other["host_capacity_bytes"] == 2**41, f"{other}")
    longer = plan(*model, "--cluster", known, "--sequence-length", 6000, "--set", "train.micro_batch=3", "--set",
                  "train.recompute=block")
    expect(longer["layout"]["micro_batch"] == 4, "3 x 8192 tokens are 4 x 6000")
    tokens = longer["tokens_per_second"] * longer["step_seconds"]
    expect(math.isclose(tokens, math.ceil(4194304 / 6000) * 6000, rel_tol=1e-9), f"{tokens} tokens of whole sequences")


def check_residuals(config, cluster, folder):
    raw = plan(config, "--cluster", cluster, "--ranks", 1)
    expect("corrected" not in raw, "nothing is known to correct by")
    residuals = folder / "cpu.toml.residuals.json"
    products = {part["name"]: part["seconds"] for part in raw["components"]}["products"]

    def write(planned):
        residuals.write_text(json.dumps({"format": "lockstep residuals 1", "runs": [{"key": "another", "components": [
            {"name": "products", "planned_seconds": planned, "measured_seconds": 1.5 * planned}]}]}))

    write(5 * products)
    unlike = plan(config, "--cluster", cluster, "--ranks", 1)
    expect("corrected" not in unlike and any(says("plan.no_earlier_run") in note for note in unlike["notes"]), f"{unlike['notes']}")
    write(3 * products)
    both = plan(config, "--cluster", cluster, "--ranks", 1)
    expect(both["step_seconds"] == raw["step_seconds"], "the raw plan stays")
    products = {part["name"]: part["seconds"] for part in both["corrected"]["components"]}["products"]
    before = {part["name"]: part["seconds"] for part in raw["components"]}["products"]
    expect(math.isclose(products, 1.5 * before), f"{products}, {before}")
    text, _ = run("plan", config, "--cluster", cluster, "--ranks", 1)
    other = plan(config, "--cluster", cluster, "--ranks", 1, "--network", 1)
    expect("corrected" not in other, "over another network nothing ran")
    other = plan(config, "--cluster", cluster, "--ranks", 1, "--storage", 1)
    expect("corrected" not in other, "on other storage nothing ran")
    expect(both["corrected_run"]["run_seconds"] > both["run"]["run_seconds"] == raw["run"]["run_seconds"],
           f"{both['corrected_run']}")
    expect(says("plan.corrected") in text
           and any(says("plan.layouts_not_corrected") in note for note in both["notes"]), text)
    residuals.write_text("{")
    text, why = run("plan", config, "--cluster", cluster, "--ranks", 1)
    expect("cpu.toml.residuals.json" in why and says("plan.not_corrected") in why and says("plan.corrected") not in text,
           f"{why}{text}")
    residuals.unlink()


def check_refusals(config, cluster, folder):
    small = folder / "small.toml"
    small.write_text(PROCESSORS.format(nodes=1, ranks=2, memory=1_100_000))
    _, why = run("plan", config, "--cluster", small, "--check", code=78)
    free = f"{says('memory.free_on_node', cluster='processors')}, {says('memory.apart', memory='64.0 MiB')}; "
    expect(re.search(pattern("memory.needs"), why) and free in why, why)
    for arguments, code, part in (
            ((config, "--cluster", folder / "none.toml"), 78, "none.toml"),
            ((config, "--gpu", "H10"), 78, says("option.did_you_mean", name="H100")),
            ((config, "--cluster", cluster, "--gpu", "H100"), 78, says("plan.no_gpus")),
            ((config, "--cluster", cluster, "--ranks", 64), 78,
             says("plan.more_ranks", ranks=64, cluster="processors", there=4)),
            ((config, "--cluster", cluster, "--nodes", 0), 64, "--nodes"),
            ((config, "--cluster", cluster, "--nodes", "two"), 64, "--nodes: "),
            ((config, "--cluster", cluster, "--nodes", "1.5"), 64, "--nodes: "),
            ((config, "--cluster", cluster, "--network", -1), 64, "--network"),
            ((config, "--cluster", cluster, "--storage", 0), 64, "--storage: "),
            ((config, "--cluster", cluster, "--ranks", 4, "--set", "layout.tensor=3", "--check"), 78,
             says("layout.indivisible", tensor=3, key="model.heads", size=4)),
            ((CONFIGS / "llama3_8b.toml", "--gpu", "A100", "--set", "precision.fp8=tensor"), 78,
             says("plan.capability", gpu="NVIDIA A100", capability="8.0")),
            ((config, "--cluster", cluster, "--set", "train.micro_batch=0"), 78, "train.micro_batch"),
            ((config, "--clusters", cluster), 64, says("option.did_you_mean", name="--cluster")),
            ((folder / "none", "--cluster", cluster), 78, "none")):
        _, why = run("plan", *arguments, code=code)
        expect(part in why, f"{arguments}: {why}")


def check_any_bytes(config, folder):
    """Any bytes of the files are planned with or rejected."""
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
        check_explanation(config, cluster, folder)
        check_masked(config, cluster, folder)
        check_text()
        check_no_zeros()
        check_named_machines(config, cluster, folder)
        check_wishes()
        check_impossible_layouts()
        check_attention()
        check_derived_axes()
        if not sys.argv[2:]:
            check_misfits()
        if not sys.argv[2:]:
            check_page()
            check_chunks()
        check_band()
        check_hosts(folder)
        check_models()
        check_intervals()
        check_kept()
        check_cost_model()
        check_what_if()
        check_other_ranks(folder)
        check_without_limit_of_stack()
        check_what_was_measured(folder)
        check_residuals(config, cluster, folder)
        check_refusals(config, cluster, folder)
        check_any_bytes(config, folder)
    print("failed" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
