#!/usr/bin/env python3
"""tests/bench/cluster_cost.py predicts the engine of commit b2ef912 as an estimate by hand did."""

import dataclasses
import unittest

import cluster_cost
from cluster_cost import ENGINES, LLAMA_70B, LLAMA_8B, RUNS, Costs, Gpu, Layout, Network

BEFORE = ENGINES["b2ef912"]


def costs(model, layout, engine=BEFORE):
    return Costs(model, layout, engine, Gpu(), Network())


class ClusterCost(unittest.TestCase):
    def assert_within(self, share, predicted, expected, what):
        self.assertLess(abs(predicted / expected - 1), share, f"{what}: {predicted}, expected {expected}")

    def test_tokens_per_second_of_b2ef912(self):
        for run, expected in zip(RUNS, (10.1e3, 8.1e3, 10.0e3, 0.45e3)):
            lines = cluster_cost.step(run.model, run.layout, BEFORE)
            self.assert_within(0.05, cluster_cost.tokens_per_second(run, lines), expected, run.name)

    def test_compute_of_b2ef912(self):
        for run, expected in zip(RUNS, (729, 729, 729, 795)):
            lines = cluster_cost.step(run.model, run.layout, BEFORE)
            compute = sum(lines[line] for line in ("matmuls", "head matmuls", "attention", "memory-bound"))
            self.assert_within(0.01, compute, expected, run.name)

    def test_reduction_of_a_layer(self):
        for layout, model, inside, across, chunks, ms in (
                (Layout(shard=8), LLAMA_8B, 8, 1, 16, 2.4), (Layout(shard=64), LLAMA_8B, 8, 8, 32, 6.4),
                (Layout(shard=512), LLAMA_8B, 8, 64, 32, 10.5), (Layout(shard=1024), LLAMA_8B, 8, 128, 32, 14.4),
                (Layout(shard=64, tensor=8), LLAMA_70B, 1, 64, 16, 12.5)):
            one = costs(model, layout)
            self.assertEqual((one.shard_inside, layout.shard // one.shard_inside), (inside, across))
            self.assertEqual(one.chunks(inside, across, one.layer // layout.shard, cluster_cost.FP32), chunks)
            self.assert_within(0.1, 1e3 * one.reduce(one.layer, inside, across).seconds, ms, layout)

    def test_gather_of_a_layer(self):
        for layout, model, ms in ((Layout(shard=8), LLAMA_8B, 1.1), (Layout(shard=64), LLAMA_8B, 1.6),
                                  (Layout(shard=1024), LLAMA_8B, 6.2), (Layout(shard=64, tensor=8), LLAMA_70B, 6.0)):
            one = costs(model, layout)
            gather = one.gather(cluster_cost.BF16 * one.layer, layout.shard, one.shard_inside)
            self.assert_within(0.05, 1e3 * gather.seconds, ms, layout)

    def test_lines_add_up_to_the_time(self):
        for run in RUNS:
            one = costs(run.model, run.layout)
            walk = cluster_cost.Walk(one)
            walk.micro_batch(True, True)
            self.assertAlmostEqual(sum(walk.lines.values()), walk.now)

    def test_changes_of_an_engine_save_time(self):
        run = RUNS[3]
        before = sum(cluster_cost.step(run.model, run.layout, BEFORE).values())
        for change in ({"ring_bytes": 1 << 30}, {"across_bytes": 2}, {"stages_overlap": True}, {"launch_order": False},
                       {"reduces_each_micro_batch": False}, {"gathers_embedding_early": True}, {"tensor_beside": True},
                       {"tensor_copies": True}, {"sets_gradients": True},
                       {"reduces_block_later": True, "tensor_copies": True}, {"rounds_sums": True}, {"most_channels": 2}):
            engine = dataclasses.replace(BEFORE, **change)
            self.assertLess(sum(cluster_cost.step(run.model, run.layout, engine).values()), before, change)

    def test_goals(self):
        reached = {}
        for run in RUNS:
            for name in ("now", "bf16"):
                lines = cluster_cost.step(run.model, run.layout, ENGINES[name])
                reached[run.name, name] = cluster_cost.tokens_per_second(run, lines)
                if run.name.startswith("8B"):
                    exposed = sum(lines[line] for line in cluster_cost.EXPOSED) / sum(lines.values())
                    self.assertLess(exposed, 0.05, run.name)
        for name, engine, goal in (("8B/64 FSDP", "now", 10.5e3), ("8B/1024 FSDP", "now", 9.5e3),
                                   ("8B/1024 HSDP 128x8", "bf16", 10.3e3), ("8B/1024 HSDP 16x64", "now", 10.3e3),
                                   ("the same, weights", "now", 0.75e3),
                                   ("70B/512 TP2xFSDP256", "now", 1.05e3)):
            self.assertGreaterEqual(reached[name, engine], goal, name)

    def test_chunks_expose_the_first_or_last_one(self):
        layout = Layout(shard=256, tensor=2)
        whole, chunked = (Costs(LLAMA_70B, layout, dataclasses.replace(ENGINES["now"], tensor_chunks=k), Gpu(), Network())
                          for k in (1, 4))
        call = chunked.tensor(1, 0)
        self.assertAlmostEqual(call - whole.tensor(1, 0), 3 * (8.4e-6 + 3.4e-6))  # more latency: call and hop
        self.assertAlmostEqual(whole.chunked(1, 0, 2e-3), whole.tensor(1, 0))
        self.assertAlmostEqual(chunked.chunked(1, 0, 2e-3), call / 4)  # the matmul takes longer
        self.assertAlmostEqual(chunked.chunked(1, 0, call / 2), call / 8 + call - call / 2)  # the call does

    def test_the_optimizer_hides_the_first_gathers(self):
        run = RUNS[2]
        before, beside = (cluster_cost.step(run.model, run.layout, dataclasses.replace(BEFORE, gathers_beside_optimizer=on))
                         for on in (False, True))
        self.assertLess(sum(beside.values()), sum(before.values()))

    def test_gradients_that_stay_whole_save_reductions(self):
        each, whole = (sum(cluster_cost.step(run.model, run.layout, ENGINES["now"]).values()) for run in RUNS[3:5])
        self.assertLess(whole, each)


if __name__ == "__main__":
    unittest.main()
