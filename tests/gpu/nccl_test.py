#!/usr/bin/env python3
"""Checks the NCCL calls of several ranks on GPUs, without a GPU.

usage: nccl_test.py LOCKSTEP RECORDER RANK_CALLS NVML

Trains a small model under mpirun with RECORDER instead of CUDA's libraries and NCCL, in every layout of a few
ranks, and checks:
- A step of each rank makes the calls of ranks on CPUs, which RANK_CALLS prints: in the same order and groups,
  with the same numbers of elements and types.
- Each stream of a CPU is one stream of the GPU. Calls of tensor ranks, which are on the compute stream of a
  CPU, have one stream of their own.
- Sent and received data are in memory that is registered with NCCL.
- A step neither waits nor allocates.
- All ranks use the same matmul algorithms, for as many multiprocessors. Those that leave some to NCCL are tried
  if collectives beside compute leave an NVLink domain.
NVML is the directory of a stand-in (tests/simt/nvml.cpp) that knows which GPUs NVLink connects. Exit 77
(skipped) without mpirun.
"""

import collections
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import record_test

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

CONFIG = """
[model]
family = "{family}"
layers = 3
width = 128
heads = 8
kv_heads = 8
mlp_width = 128
vocabulary = 257
max_positions = 64
[train]
steps = 5
batch_tokens = 512
sequence_length = 32
micro_batch = 2
most_skipped = 100
[data]
train = "data"
[checkpoint]
every_steps = 0
[precision]
compute = "{precision}"
"""
DOMAINS = {2: ("one",), 3: ("each",), 4: ("one", "pairs", "pairs without NVML"), 8: ("each", "pairs without NVML")}
MORE = ([], ["train.recompute=block"], ["layout.keep_gathered=1"], ["precision.fp8=tensor"],
        ["precision.fp8=block", "train.micro_batch=4", "train.batch_tokens=2048"], ["train.micro_batch=1"],
        ["layout.reduce=bf16"], ["layout.reduce=nccl"], ["layout.tensor_chunks=2"])
TENSOR_GROUP = "2 "  # the second group that make_comms() makes
TYPES = {"7": "fp32", "9": "bf16", "2": "int32", "1": "uint8"}  # of ncclDataType_t
MULTIPROCESSORS = 132  # of the recorder's GPU
CALLS = {"ncclAllReduce": "all_reduce", "ncclAllGather": "all_gather",
         "ncclReduceScatter": "reduce_scatter", "ncclAlltoAll": "all_to_all",
         "ncclBroadcast": "broadcast"}


def environment(nvml, **more):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_COMM", "PMIX_", "SLURM_", "LOCKSTEP_"))}
    return dict(kept, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C",
                LD_LIBRARY_PATH=f"{nvml}:{os.environ.get('LD_LIBRARY_PATH', '')}", **more)


def train(tools, work, ranks, domains, settings, gpus=None, odd_rank=None, **variables):
    """Returns the exit code and the output; the records are in work/record.RANK. Ranks get the variables too."""
    for old in work.glob("record.*"):
        old.unlink()
    shutil.rmtree(work / "run", ignore_errors=True)
    preload = ["-x", f"LD_PRELOAD={tools.recorder}", "-x", f"LOCKSTEP_RECORD={work / 'record'}",
               "-x", f"LOCKSTEP_RECORD_GPUS={gpus or ranks}", "-x", "LD_LIBRARY_PATH"]
    if odd_rank is not None:
        preload += ["-x", f"LOCKSTEP_RECORD_ODD_RANK={odd_rank}"]
    if domains == "pairs":
        preload += ["-x", "LOCKSTEP_NVML=bridges"]
    elif domains == "pairs without NVML":
        preload += ["-x", "LOCKSTEP_RECORD_PAIRS=1"]
    for name, value in variables.items():
        preload += ["-x", f"{name}={value}"]
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *preload,
               tools.lockstep, "train", "tiny.toml", "--run", "run", "--device", "cuda",
               "--allow-tensor-across-nodes"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, cwd=work, env=environment(tools.nvml if domains in ("one", "pairs") else f"{work}/absent"),
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=120)
    return done.returncode, done.stdout


def calls_of(lines):
    """Returns the NCCL calls in lines of a record, as RANK_CALLS writes them, and the stream of each."""
    calls, streams, group = [], [], None
    for line in lines:
        if line[0] == "ncclGroupStart":
            assert group is None, "a group in a group"
            group = []
        elif line[0] == "ncclGroupEnd":
            if group:
                number = group[0][2]
                calls += [f"{number} begin", *(collective(call) for call in group), f"{number} end"]
                streams += [None, *(call[1] for call in group), None]
            group = None
        elif line[0] in CALLS and group is None:
            calls.append(collective(line))
            streams.append(line[1])
        elif line[0].startswith("nccl"):
            assert group is not None, f"{line[0]} outside of a group"
            group.append(line)
    return calls, streams


def collective(line):
    call, _, group, _, _, count, dtype, other = line
    return f"{group} {CALLS[call]} {count} {TYPES[dtype]} {other}"


def check_memory(lines):
    """Sent and received data are in memory that NCCL allocated and that is registered with the group, except a
    few numbers. Returns the offsets in it, in order, by group."""
    size = {"7": 4, "9": 2, "2": 4, "1": 1}
    blocks = [(int(line[2], 16), int(line[2], 16) + int(line[3])) for line in lines if line[1] == "ncclMemAlloc"]
    assert len(blocks) == 1, blocks
    begin, end = blocks[0]
    registered = [line[2] for line in lines if line[1] == "ncclCommWindowRegister"]
    for line in lines:
        if line[1] == "ncclCommWindowRegister":
            assert line[3:] == [hex(begin), str(end - begin), "1"], line
    assert len(registered) == len(set(registered)), registered
    ended = [line[2] for line in lines if line[1] == "ncclCommWindowDeregister"]
    assert ended == registered[::-1], f"{registered} have windows, {ended} gave them back"
    beside = {line[2] for line in lines if line[1] == "ncclCommSplit" and line[3] != "-1" and line[5] == "zero"}
    assert beside <= set(registered), f"{beside} leave the processors alone, {registered} have windows"
    kinds = {tuple(line[5:7]) for line in lines if line[1] == "ncclCommSplit"}
    assert kinds == {("default", "1"), ("zero", "16")}, f"policies and channels of the groups: {kinds}"
    colors = {line[2]: line[3] for line in lines if line[1] == "ncclCommSplit"}
    places = collections.defaultdict(list)
    for line in lines:
        if line[1] in CALLS:
            if line[3] not in registered:
                assert int(line[6]) <= 16, f"much is moved without a window: {line}"
                continue
            for address in (int(line[4], 16), int(line[5], 16)):
                assert begin <= address and address + int(line[6]) * size[line[7]] <= end, line
            if line[1] != "ncclAllGather":  # a gather in place sends from its rank's part of the result
                places[line[3], colors[line[3]]].append(("from", int(line[4], 16) - begin))
            places[line[3], colors[line[3]]].append(("to", int(line[5], 16) - begin))
    return places


def held_multiprocessors(per_domain, settings):
    """Channels of the collectives beside compute that leave a domain: at most 16, and 4 for each rank inside. NCCL's
    own reduce-scatter takes 16 inside a domain too."""
    mesh = {name: int(value) for name, value in re.findall(r"layout\.(\w+)=(\d+)", " ".join(settings))}
    held, apart = 0, mesh["tensor"]
    for ranks in (mesh["shard"], mesh["replicate"]):
        inside = max(1, min(per_domain // apart, ranks))
        if inside < ranks:
            held = max(held, min(16, 4 * inside))
        elif ranks > 1 and "layout.reduce=nccl" in settings:
            held = 16
        apart *= ranks
    return held


def check_targets(lines, held):
    """Matmuls are also tried for the multiprocessors that NCCL leaves, while a kernel holds the others."""
    tried = {line[10] for line in lines if line[1] == "cublasLtMatmul"}
    assert tried == ({"0", str(MULTIPROCESSORS - held)} if held else {"0"}), (tried, held)
    kernels = {(line[4], line[5], line[6]) for line in lines if line[1] == "launch" and "occupy_kernel" in line[3]}
    assert kernels == ({(f"{held},1,1", "1,1,1", str(227 << 10))} if held else set()), (kernels, held)


def paths_in(said):
    """Returns by what the calls of each group should move data, as the log says."""
    took = re.search(pattern("launch.nccl_took") + r".*\((.*)\)", said)
    assert took, said[-3000:]
    return dict(re.findall(r"([^;( ][^;(]*?) \S+ \S+ of [^;]*, by ([^;)]+)", took[took.lastindex]))


def check_paths(tools, work):
    """Copy engines move data inside a domain. They need windows and the policy of the groups, and do not add."""
    engines, kernels, no_windows = "copy engines", "kernels", "kernels without windows"
    hierarchical = "hierarchical copy engines if the NICs allow, else kernels"
    whole, halves = ["layout.shard=2"], ["layout.replicate=2", "layout.shard=1", "layout.reduce=nccl"]
    cases = (("one", whole, {}, {"shard gathers": engines, "shard scatters inside": engines}),
             ("one", whole, {"NCCL_CTA_POLICY": 0}, {"shard gathers": kernels, "shard scatters inside": kernels}),
             ("one", whole, {"NCCL_WIN_ENABLE": 0}, {"shard gathers": no_windows, "shard scatters inside": no_windows}),
             ("each", whole, {}, {"shard gathers": kernels, "shard scatters across": kernels}),
             ("each", whole, {"LOCKSTEP_RECORD_NCCL": 23007},
              {"shard gathers": hierarchical, "shard scatters across": hierarchical}),
             ("one", halves, {}, {"replicate sums": f"{engines}, sums by kernels"}),
             ("one", [*whole, "layout.reduce=nccl"], {}, {"shard gathers": engines, "shard scatters": kernels}))
    for domains, settings, variables, expected in cases:
        code, said = train(tools, work, 2, domains, settings, **variables)
        assert code == 0, said[-3000:]
        assert paths_in(said) == {"all ranks": kernels, **expected}, (domains, settings, variables, paths_in(said))


def check_layout(tools, work, ranks, domains, settings):
    code, said = train(tools, work, ranks, domains, settings)
    what = f"{ranks} ranks, domains: {domains}, {settings}"
    assert code == 0, f"{what}: ends with {code}: {said[-3000:]}"
    assert says("launch.by_nccl", version="2.") in said, said[-3000:]
    assert "all ranks" in paths_in(said), said[-3000:]
    per_domain = {"one": ranks, "each": 1}.get(domains, 2)
    expected = subprocess.run([tools.rank_calls, "tiny.toml", str(ranks), str(per_domain), *settings],
                              cwd=work, check=True, stdout=subprocess.PIPE, text=True).stdout
    by_rank = collections.defaultdict(list)
    for line in expected.splitlines():
        rank, call = line.split(" ", 1)
        calls = by_rank[int(rank)]
        if call.endswith(" end") and calls[-1].endswith(" begin"):
            calls.pop()  # a group of no calls
        else:
            calls.append(call)
    assert len(by_rank) == ranks, expected
    algorithms, places = set(), {}
    for rank in range(ranks):
        lines = [line.split() for line in (work / f"record.{rank}").read_text().splitlines()]
        for group, its_places in check_memory(lines).items():
            assert places.setdefault(group, its_places) == its_places, f"{what}: rank {rank} and another of its " + str(
                next((group, *pair) for pair in zip(its_places, places[group]) if pair[0] != pair[1]))
        priorities = {line[2]: line[3] for line in lines if line[1] == "cudaStreamCreateWithPriority"}
        asked = [line[2] for line in lines if line[1] == "cudaSetDevice" and line[0] == "0"]
        assert (asked[-1] if asked else "0") == str(rank), f"{what}: rank {rank} is on GPU {asked}"
        assert "ncclCommAbort" not in {line[1] for line in lines}, what
        # Each rank measures other algorithms as the fastest; all use those of rank 0.
        algorithms.add(tuple((line[8], line[9]) for line in record_test.steps_of(lines)[0]
                             if line[0] == "cublasLtMatmul"))
        check_targets(lines, held_multiprocessors(per_domain, settings))
        made = [line[2] for line in lines if line[1] == "ncclCommSplit" and line[3] != "-1"]
        ended = [line[2] for line in lines if line[1] == "ncclCommDestroy"]
        assert ended == [*reversed(made), "0"], f"{what}: {made} are made, {ended} destroyed"
        for number, step in enumerate(record_test.steps_of(lines), 2):
            # A loader thread that waits for a CPU core returns its events late.
            forbidden = {line[0] for line in step} & (record_test.FORBIDDEN - {"cudaEventCreateWithFlags"})
            assert not forbidden or number < 5, f"{what}: rank {rank} calls {forbidden} in step {number}"
            calls, streams = calls_of(step)
            # On a CPU, the name of the stream follows the call.
            on_cpu = [re.sub(r" (compute|gathers|scatters|across)$", "", call) for call in by_rank[rank]]
            assert calls == on_cpu, f"{what}: rank {rank}, step {number}: " + str(
                next(((a, b) for a, b in zip(calls, on_cpu) if a != b), (len(calls), len(on_cpu))))
            names = {("tensor" if call.startswith(TENSOR_GROUP) else call.rsplit(" ", 1)[1], stream)
                     for call, stream in zip(by_rank[rank], streams) if stream is not None}
            assert len(names) == len({name for name, _ in names}) == len({s for _, s in names}), names
            for name, stream in names:
                assert priorities[stream] == ("0" if name == "compute" else "-5"), (name, priorities[stream])
    assert len(algorithms) == 1 and len(set(*algorithms)) > 1, f"{what}: {algorithms}"
    return len(by_rank[0])


def layouts(ranks):
    for tensor in (1, 2, 4, 8):
        for shard in (1, 2, 3, 4, 8):
            if ranks % (tensor * shard) == 0:
                for sharding in ("optimizer", "gradients", "weights", "full") if shard > 1 else ("full",):
                    yield [f"layout.replicate={ranks // tensor // shard}", f"layout.shard={shard}",
                           f"layout.tensor={tensor}", f"layout.sharding={sharding}"]


def check_refusals(tools, work):
    code, said = train(tools, work, 3, "one", ["layout.shard=3"], gpus=2)
    few = pattern("launch.more_than_gpus", rank=2, number=3, gpus=2)
    assert code == 78 and re.search(few, said), (code, said[-2000:])
    code, said = train(tools, work, 2, "one", [], gpus=1)
    assert code == 78 and says("launch.same_gpu", rank="0", other=1) in said, (code, said[-2000:])
    code, said = train(tools, work, 3, "one", ["layout.shard=3"], odd_rank=1)
    differ = pattern("ranks.differ", what="GPU", value="NVIDIA H100", rank=1, other_value="NVIDIA H200", other=0)
    differ = f"{pattern('ranks.same_numerics')} {differ}.*{pattern('ranks.start_all_alike')}"
    assert code == 78 and re.search(differ, said), (code, said[-2000:])


def start_by_address(tools, work, count, *settings):
    """Starts ranks without MPI, with the variables of torchrun and the secret of the job. Returns the processes
    and the port; their output is in work/said.RANK."""
    for old in work.glob("record.*"):
        old.unlink()
    shutil.rmtree(work / "run", ignore_errors=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [tools.lockstep, "train", "tiny.toml", "--run", "run", "--device", "cuda"]
    for setting in settings:
        command += ["--set", setting]
    ranks = []
    for rank in range(count):
        variables = dict(environment(tools.nvml), RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank),
                         MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCKSTEP_SECRET="ab" * 32,
                         LD_PRELOAD=tools.recorder, LOCKSTEP_RECORD=str(work / "record"),
                         LOCKSTEP_RECORD_GPUS=str(count))
        with open(work / f"said.{rank}", "w") as said:
            ranks.append(subprocess.Popen(command, cwd=work, env=variables, stdout=said,
                                          stderr=subprocess.STDOUT))
    return ranks, port


def check_torchrun(tools, work):
    ranks, port = start_by_address(tools, work, 2)
    codes = [rank.wait(timeout=120) for rank in ranks]
    said = (work / "said.0").read_text(errors="replace")
    assert codes == [0, 0], said
    met = pattern("launch.by_address", address=f"127.0.0.1:{port}") + ", " + pattern("launch.by_nccl")
    assert re.search(met, said), said
    assert says("train.saved", step=5) in said, said


def check_deaths(tools, work):
    """Without mpirun, the other ranks abort by themselves, and report the rank that died."""
    for victim in (0, 1, 2):
        ranks, _ = start_by_address(tools, work, 3, "train.batch_tokens=768", "train.steps=1000000",
                                    "train.most_skipped=1000000")
        metrics = work / "run" / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
            assert time.monotonic() < deadline, (work / "said.0").read_text(errors="replace")
            time.sleep(0.05)
        ranks[victim].kill()
        others = [rank for rank in range(3) if rank != victim]
        deadline = time.monotonic() + 10
        while any(ranks[rank].poll() is None for rank in others) and time.monotonic() < deadline:
            time.sleep(0.05)
        codes = [ranks[rank].poll() for rank in others]
        for rank in ranks:
            rank.kill()
            rank.wait()
        assert codes == [75, 75], f"rank {victim} died: 10 s later the others have ended with {codes}"
        who = pattern("end.rank", rank=victim, host=r"\S+", pid=ranks[victim].pid)
        sentence = f"{who} ({says('end.died')}|{says('end.lost')})"
        for rank in others:
            left = (work / "run" / "ended" / f"rank-{rank:05}.txt").read_text()
            assert re.match(sentence, left), f"rank {victim} died: rank {rank} left: {left[:300]}"
        speaker = 1 if victim == 0 else 0
        said = (work / f"said.{speaker}").read_text(errors="replace")
        assert re.search(f"{pattern('end.why')} {sentence}", said), said[-2000:]


def main():
    if shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        return 77
    Tools = collections.namedtuple("Tools", "lockstep recorder rank_calls nvml")
    tools = Tools(*(os.path.abspath(p) for p in sys.argv[1:5]))
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        (work / "text").write_text("".join(f"line {i} of a text\n" for i in range(2000)))
        subprocess.run([tools.lockstep, "data", "pack", "text", "--out", "data"], cwd=work, check=True,
                       capture_output=True)
        count = 0
        for ranks, domains in DOMAINS.items():
            for layout in layouts(ranks):
                more = MORE[count % len(MORE)]
                if more == ["layout.keep_gathered=1"] and "layout.sharding=full" not in layout:
                    more = []
                if "fp8" in str(more) and "layout.tensor=1" not in layout:  # fp8 needs parts of 128
                    more = []
                settings = layout + more
                family = ("llama3", "gpt2")[count % 2]
                precision = "bf16" if re.search("fp8|reduce=bf16", str(settings)) else ("bf16", "fp32")[count // 2 % 2]
                (work / "tiny.toml").write_text(CONFIG.format(family=family, precision=precision))
                where = domains[count % len(domains)]
                calls = check_layout(tools, work, ranks, where, settings)
                count += 1
                print(f"{ranks} ranks, domains: {where}, {family} {precision}, {' '.join(settings)}: "
                      f"{calls} calls a step", flush=True)
        check_paths(tools, work)
        check_refusals(tools, work)
        check_torchrun(tools, work)
        check_deaths(tools, work)
        print(f"{count} layouts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
