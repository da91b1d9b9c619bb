#!/usr/bin/env python3
"""Checks the CUDA calls of a step of the trainer, without a GPU.

usage: record_test.py LOCKSTEP RECORDER [--cudnn]

Trains a small model with RECORDER (recorder.cpp) instead of CUDA's libraries, and checks:
- Every step except the first ones makes the same calls in the same order. It does not allocate, free or
  wait for a stream.
- The host waits once per step, for the step before.
- Matmul algorithms are chosen before the first step. A resumed run does not measure them.
- All copies and matmuls stay inside allocated memory.
- With CUDA graphs, a step is a few calls, and the graphs hold the calls of a step without graphs.
- With offloaded activations, events order the copies.
- With offloaded optimizer state, each step copies it in and out on two streams. Events order copies,
  updates and later work. The GPU is idle when the host loads a state.
- With --cudnn, for a RECORDER that also replaces cuDNN (cudnn_recorder.cpp), plans are made before the first
  step, and backward gets the tensors of forward.

The record has the kernel and the shape of a launch, but not its arguments. tests/simt runs the kernels, checks
their accesses, and checks that a step from graphs has the bits of a step without.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

CONFIG = """
[model]
family = "{family}"
layers = 3
width = 128
heads = 2
mlp_width = 128
vocabulary = 257
max_positions = 128
[train]
steps = 22
batch_tokens = 512
sequence_length = 64
micro_batch = 4
cuda_graphs = "{graphs}"
most_skipped = 100
[data]
train = "data"
[checkpoint]
every_steps = 0
[precision]
{precision}
"""
PRECISIONS = {"fp32": 'compute = "fp32"', "bf16": 'compute = "bf16"',
              "fp8": 'compute = "bf16"\nfp8 = "tensor"', "fp8 of blocks": 'compute = "bf16"\nfp8 = "block"'}
TYPE_BYTES = {"0": 4, "14": 2, "28": 1, "29": 1}  # of cudaDataType
FORBIDDEN = {"cudaMalloc", "cudaHostAlloc", "cudaFree", "cudaFreeHost", "cudaStreamSynchronize",
             "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cublasLtCreate",
             "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulAlgoCheck", "cudaStreamBeginCapture",
             "cudaGraphInstantiate", "cudnnCreate", "cudnnPlan"}
COMPUTES = ("launch", "cublasLtMatmul", "cudnnBackendExecute")
TIMED_STEP = 20  # its components are timed, so it is not replayed
# The calls of a replayed step. Launches: learning rate, number and stop flag. Copies: two micro-batches of
# three tensors, and four results. Graphs: begin, two micro-batches, optimizer.
REPLAYED = {"launch": 3, "cudaMemcpyAsync": 10, "cudaGraphLaunch": 4}


def record_of(lockstep, recorder, work, family, precision, graphs, steps, *settings):
    (work / "tiny.toml").write_text(
        CONFIG.format(family=family, precision=PRECISIONS[precision], graphs=graphs))
    record = work / "record"
    environment = dict(os.environ, LD_PRELOAD=recorder, LOCKSTEP_RECORD=str(record))
    sets = [word for setting in (f"train.steps={steps}", *settings) for word in ("--set", setting)]
    run = subprocess.run([lockstep, "train", "tiny.toml", "--run",
                          "_".join(("run", family, precision, graphs, *settings)),
                          "--device", "cuda", "--extend", *sets], cwd=work, env=environment, check=False,
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    return [line.split() for line in record.read_text().splitlines()]


def steps_of(lines):
    """The main thread's lines of each step except the first. A step begins after the copy of the last result
    of the previous step, the five numbers of adamw_control, and ends with its own."""
    main = [line[1:] for line in lines if line[0] == "0"]
    ends = [i for i, line in enumerate(main)
            if line[0] == "cudaMemcpyAsync" and line[4] == "20"]
    return [main[begin + 1:end + 1] for begin, end in zip(ends, ends[1:])]


def expanded(steps):
    """The steps with the calls of the graphs instead of their launches."""
    graphs, result = {}, []
    for step in steps:
        lines, capture = [], None
        for line in step:
            if line[0] == "cudaStreamBeginCapture":
                capture = []
            elif line[0] == "cudaStreamEndCapture":
                captured, capture = capture, None
            elif line[0] == "cudaGraphInstantiate":
                graphs[line[1]] = captured
            elif line[0] == "cudaGraphLaunch":
                lines += graphs[line[2]]
            else:
                (lines if capture is None else capture).append(line)
        result.append(lines)
    return result


def without_events(step):
    """The work of the device. Events come from a pool in no fixed order, so they are left out."""
    return [line[:2] if line[0] == "cudaStreamWaitEvent" else line
            for line in step if not line[0].startswith("cudaEvent")]


def without_pinned(step, pinned):
    """Batches come from one pinned buffer or another, and results go to one of two."""
    inside = lambda p: any(b <= int(p, 16) < e for b, e in pinned)
    return [line[:2] + ["pinned" if inside(p) else p for p in line[2:4]] + line[4:]
            if line[0] == "cudaMemcpyAsync" else line for line in step]


def check_steps(lines, family, graphs):
    steps = steps_of(lines)  # the first is step 2; those up to 4 fill the pool of events
    assert len(steps) == 21, len(steps)
    pinned = [(int(p, 16), int(p, 16) + int(size))
              for _, call, p, size in (l for l in lines if l[1] == "cudaHostAlloc")]
    full = [without_pinned(without_events(s), pinned) for s in expanded(steps)]
    timed = full[TIMED_STEP - 2]
    # A loader thread that waits for a CPU core returns its events late, and a step creates others.
    makes = [number for number, step in enumerate(steps[3:], 5)
             if any(line[0] == "cudaEventCreateWithFlags" for line in step)]
    assert len(makes) <= 3, f"{family}: steps {makes} create events"
    for number, step in enumerate(steps[3:], 5):
        asked = {line[0] for line in step} & FORBIDDEN - {"cudaEventCreateWithFlags"}
        assert not asked, f"{family}: step {number} calls {asked}"
        a, b = timed, full[number - 2]
        assert a == b, f"{family}: step {number} differs from step {TIMED_STEP}: " + str(
            next((x, y) for x, y in zip(a, b) if x != y) if len(a) == len(b) else (len(a), len(b)))
        calls = collections.Counter(line[0] for line in without_events(step))
        if graphs == "on" and number != TIMED_STEP:
            assert calls == REPLAYED, f"{family}: step {number} asks for {calls}"
        else:
            assert calls["cudaGraphLaunch"] == 0, f"{family}: step {number} is replayed"
        waits = [i for i, line in enumerate(step) if line[0] == "cudaEventSynchronize"]
        assert len(waits) == 1, f"{family}: step {number} waits {len(waits)} times"
        recorded = [n for n, other in enumerate(steps[:number - 1], 2)
                    for line in other if line[:2] == ["cudaEventRecord", step[waits[0]][1]]]
        assert recorded and recorded[-1] == number - 1, f"{family}: step {number}: {recorded}"
    launches = [line for line in timed if line[0] in COMPUTES]
    assert len({line[1] for line in launches}) == 1, f"{family}: more than one stream computes"
    assert any(line[0] == "cublasLtMatmul" for line in timed)
    return len(without_events(steps[3]))


def check_choice(lines, family, resumed):
    """All calls about algorithms are before the first matmul of the first step."""
    main = [line[1:] for line in lines if line[0] == "0"]
    step = expanded(steps_of(lines))[2]
    per_step = sum(line[0] == "cublasLtMatmul" for line in step)
    end = next(i for i, line in enumerate(main) if line[0] == "launch" and "adamw_control" in line[2])
    products = [i for i, line in enumerate(main[:end]) if line[0] == "cublasLtMatmul"]
    first_step = main[products[-per_step]:end]
    asked = {line[0] for line in first_step} & \
        ((FORBIDDEN | {"cudaEventSynchronize"}) - {"cudaEventCreateWithFlags"})  # fills the pool
    assert not asked, f"{family}: the first step calls {asked}"
    before = [line[0] for line in main[:products[-per_step]]]
    proposals, checks, waits = (before.count(call) for call in (
        "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulAlgoCheck", "cudaEventSynchronize"))
    if resumed:  # each algorithm is proposed, and the recorded one is checked and used; the host waits for
        # the losses of this pass, and for the hash of the loaded weights
        assert proposals == checks > 0 and waits == 2, (family, proposals, checks, waits)
    else:  # each algorithm is proposed, then again with others, which are measured
        assert checks == 0 < proposals < waits and proposals % 2 == 0, (family, proposals, waits)


def check_memory(lines):
    blocks, layouts = [], {}
    inside = lambda p, size: any(b <= p and p + size <= e for b, e in blocks)
    for line in lines:
        call, rest = line[1], line[2:]
        if call in ("cudaMalloc", "cudaHostAlloc"):
            blocks.append((int(rest[0], 16), int(rest[0], 16) + int(rest[1])))
        elif call == "layout":
            layouts[rest[0]] = int(rest[2]) * int(rest[3]) * TYPE_BYTES[rest[4]]
        elif call == "cudaMemcpyAsync":
            for p in rest[1:3]:
                assert inside(int(p, 16), int(rest[3])), line
        elif call == "cublasLtMatmul":
            for operand in (rest[2], rest[3], rest[5]):
                p, layout = operand.split(":")
                assert inside(int(p, 16), layouts[layout]), line
            p, size = rest[6].split(":")
            assert inside(int(p, 16), int(size)), line
        elif call == "cudnnBackendExecute":
            for tensor in rest[2:]:
                _, p, size = tensor.split(":")
                assert inside(int(p, 16), int(size)), line


class Order:
    """The order of streams by events, and of the host by its waits. `before` holds, for each of them, how much
    of the work of every other stream is done before its own next work."""

    def __init__(self):
        self.given, self.before = collections.Counter(), collections.defaultdict(collections.Counter)
        self.events = {}

    def follow(self, line):
        if line[0] == "cudaEventRecord":
            self.events[line[1]] = self.before[line[2]] | collections.Counter({line[2]: self.given[line[2]]})
        elif line[0] == "cudaStreamWaitEvent":  # the larger of each count; an older event has none
            self.before[line[1]] |= self.events.get(line[2], collections.Counter())
        elif line[0] == "cudaStreamSynchronize":
            self.before["host"] |= self.before[line[1]] | collections.Counter({line[1]: self.given[line[1]]})
        elif line[0] == "cudaEventSynchronize":
            self.before["host"] |= self.events[line[1]]
        elif line[0] == "cudaMemcpyAsync" or line[0] in COMPUTES:
            self.given[line[1]] += 1

    def is_behind(self, stream, work):
        """True if the next work of `stream` is ordered after `work`, a result of last()."""
        return self.before[stream][work[0]] >= work[1]

    def last(self, stream):
        """The last work of `stream`."""
        return stream, self.given[stream]


def pinned_in(lines):
    """A function that is true for addresses in pinned memory."""
    pinned = [(int(p, 16), int(p, 16) + int(size))
              for _, call, p, size in (l for l in lines if l[1] == "cudaHostAlloc")]
    return lambda p: any(b <= p < e for b, e in pinned)


def operands(line):
    """The addresses of operands in a line of the record."""
    if line[0] == "cublasLtMatmul":
        return [int(operand.split(":")[0], 16) for operand in (line[3], line[4], line[6])]
    if line[0] == "cudnnBackendExecute":
        return [int(tensor.split(":")[1], 16) for tensor in line[3:]]
    return []


def check_cudnn(lines, layers):
    """Attention of a micro-batch is one execution per layer, then one backward per layer, the last layer
    first. The matmul after forward multiplies its output (4). One of the two matmuls before backward makes
    its gradient (6). Backward gets q, k, v, out and log-sum-exp of forward (1 to 5)."""
    for step in expanded(steps_of(lines)):
        computed = [line for line in step if line[0] in ("cublasLtMatmul", "cudnnBackendExecute")]
        calls = []
        for i, line in enumerate(computed):
            if line[0] != "cudnnBackendExecute":
                continue
            tensors = {int(t.split(":")[0]): int(t.split(":")[1], 16) for t in line[3:]}
            if 6 in tensors:
                assert tensors[6] in [operands(product)[-1] for product in computed[i - 2:i]], line
            else:
                assert tensors[4] in operands(computed[i + 1])[:2], line
            calls.append((line[2], tensors))
        assert len(calls) == 2 * 2 * layers, len(calls)
        for begin in range(0, len(calls), 2 * layers):
            forward = calls[begin:begin + layers]
            backward = calls[begin + layers:begin + 2 * layers][::-1]
            assert len({plan for plan, _ in forward}) == len({plan for plan, _ in backward}) == 1, calls
            assert len({tensors[4] for _, tensors in forward}) == layers, forward
            for (_, given), (_, again) in zip(forward, backward):
                assert {1, 2, 3, 4, 5} <= given.keys() and {6, 7, 8, 9} <= again.keys(), (given, again)
                assert all(given[i] == again[i] for i in range(1, 6)), (given, again)


def check_offload(lines, layers):
    """Copies of activations are on a separate stream, each after all earlier work of the compute stream.
    Matmuls and attention by cuDNN, whose operands the record has, are after the last copy from or to each
    operand. The two micro-batches of a step copy all layers except two out and in again."""
    is_pinned = pinned_in(lines)
    steps = steps_of(lines)
    compute = next(line[1] for line in steps[0] if line[0] == "cublasLtMatmul")
    order, last_copy, waited, moved = Order(), {}, set(), collections.Counter()
    for line in (line for step in steps for line in step):
        order.follow(line)
        if line[0] == "cudaMemcpyAsync" and line[1] != compute:
            assert order.is_behind(line[1], order.last(compute)), line
            to, source = int(line[2], 16), int(line[3], 16)
            assert is_pinned(to) != is_pinned(source), line
            moved["out" if is_pinned(to) else "in"] += int(line[4])
            last_copy[source if is_pinned(to) else to] = order.last(line[1])
        for address in operands(line):
            if copy := last_copy.get(address):
                waited.add(line[0])
                assert order.is_behind(compute, copy), line
    assert waited == {line[0] for line in steps[0]} & {"cublasLtMatmul", "cudnnBackendExecute"}, waited
    assert moved["in"] == moved["out"] > 0 and moved["in"] % (2 * (layers - 2) * len(steps)) == 0, moved
    return moved["in"] // len(steps)


def check_offloaded_optimizer(lines):
    """A step copies the optimizer state (master, m, v: 12 bytes per parameter) in on one stream and out on
    another. The order is:
    - The first copy in is after earlier work of the compute stream, and each one after the copy out that
      freed its memory.
    - An update is after all copies in that were enqueued before it.
    - A copy out is after the update before it.
    - The end of the step is after the last copy out."""
    is_pinned = pinned_in(lines)
    steps = steps_of(lines)
    compute = next(line[1] for line in steps[0] if line[0] == "cublasLtMatmul")
    order, freed, sizes = Order(), {}, set()
    for step in steps:
        moved, streams, reused, filled = collections.Counter(), {}, 0, set()
        for line in step:
            order.follow(line)
            if line[0] == "launch" and "adamw_update" in line[2]:
                assert "in" in streams and order.is_behind(compute, order.last(streams["in"])), line
            if line[0] != "cudaMemcpyAsync" or line[1] == compute:
                continue
            to, source = int(line[2], 16), int(line[3], 16)
            assert is_pinned(to) != is_pinned(source), line
            way = "out" if is_pinned(to) else "in"
            assert streams.setdefault(way, line[1]) == line[1], line
            moved[way] += int(line[4])
            if way == "out":
                assert order.is_behind(line[1], order.last(compute)), line
                freed[source] = order.last(line[1])
                continue
            if not filled:
                assert order.is_behind(line[1], order.last(compute)), line
            reused += to in filled
            filled.add(to)
            assert to not in freed or order.is_behind(line[1], freed[to]), line
        assert streams["in"] != streams["out"] and moved["in"] == moved["out"], moved
        assert reused > 0, "the ring does not go round"
        assert order.is_behind(compute, order.last(streams["out"])), "the step ends before its last copy out"
        sizes.add(moved["in"])
    (size,) = sizes
    state = max(int(l[3]) for l in lines if l[1] == "cudaHostAlloc")  # with little else
    assert size % 12 == 0 and 0 <= state - size < 0.01 * size, (size, state)
    return size


def run_with_cudnn(lockstep, recorder, work):
    """The recorder is found as cuDNN, and by the frontend of cuDNN as the CUDA runtime."""
    library = work / "cudnn"
    library.mkdir()
    (library / "libcudnn.so.9").symlink_to(recorder)
    os.environ["LD_LIBRARY_PATH"] = f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    os.environ["CUDNN_FRONTEND_CUDART_LIB_NAME"] = recorder
    cudnn = ("train.attention=cudnn", "model.kv_heads=1")
    for graphs in "off", "on":
        for steps in 22, 28:
            lines = record_of(lockstep, recorder, work, "qwen3", "bf16", graphs, steps, *cudnn)
            check_choice(lines, "qwen3", steps == 28)
            check_memory(lines)
            if steps == 22:
                calls = check_steps(lines, "qwen3", graphs)
                check_cudnn(lines, 3)
        print(f"cuDNN, graphs {graphs}: {calls} calls a step")
    lines = record_of(lockstep, recorder, work, "qwen3", "bf16", "auto", 22, "model.layers=5",
                      "train.offload_activations=true", *cudnn)
    check_steps(lines, "qwen3", "off")
    check_offload(lines, 5)


def check_load(lines):
    """When the host loads its state into pinned memory, no stream has unfinished work."""
    order, left = Order(), None
    for line in (line[1:] for line in lines if line[0] == "0"):
        order.follow(line)
        if line[0] == "load":  # the last one before the step: earlier ones may only inspect files
            left = [stream for stream in order.given if not order.is_behind("host", order.last(stream))]
        if line[0] == "launch" and "adamw_control" in line[2]:  # of the first step
            break
    assert left == [], left


def main():
    lockstep, recorder = (os.path.abspath(p) for p in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        (work / "text").write_text("".join(f"line {i} of a text\n" for i in range(2000)))
        subprocess.run([lockstep, "data", "pack", "text", "--out", "data"], cwd=work, check=True,
                       capture_output=True)
        for family in "gpt2", "llama3", "qwen3":
            for precision in PRECISIONS:
                for graphs in "off", "on":
                    lines = record_of(lockstep, recorder, work, family, precision, graphs, 22)
                    calls = check_steps(lines, family, graphs)
                    check_choice(lines, family, False)
                    check_memory(lines)
                    lines = record_of(lockstep, recorder, work, family, precision, graphs, 28)
                    check_choice(lines, family, True)
                    print(f"{family} {precision}, graphs {graphs}: {calls} calls a step")
        for recompute in "none", "block":
            lines = record_of(lockstep, recorder, work, "qwen3", "bf16", "auto", 22, "model.layers=5",
                              f"train.recompute={recompute}", "train.offload_activations=true")
            calls = check_steps(lines, "qwen3", "off")
            size = check_offload(lines, 5)
            check_memory(lines)
            print(f"offload, recompute {recompute}: {calls} calls a step, {size} bytes out and in")
        lines = record_of(lockstep, recorder, work, "qwen3", "bf16", "auto", 22, "model.layers=5",
                          "train.offload_optimizer=true")
        calls = check_steps(lines, "qwen3", "off")
        size = check_offloaded_optimizer(lines)
        check_memory(lines)
        print(f"offloaded optimizer: {calls} calls a step, {size} bytes in and out")
        run = "run_qwen3_bf16_auto_model.layers=5_train.offload_optimizer=true"
        check_load(record_of(lockstep, recorder, work, "qwen3", "bf16", "auto", 23, "model.layers=5",
                             "train.offload_optimizer=true"))
        check_load(record_of(lockstep, recorder, work, "qwen3", "bf16", "auto", 1, "model.layers=5",
                             "train.offload_optimizer=true", f"train.init_from={run}"))
        if "--cudnn" in sys.argv[3:]:
            run_with_cudnn(lockstep, recorder, work)


if __name__ == "__main__":
    main()
