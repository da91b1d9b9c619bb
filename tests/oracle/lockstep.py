"""Runs Lockstep by its command line, and writes and reads its files."""

import json
import os
import pathlib
import struct
import subprocess

import numpy


class Refused(Exception):
    """Lockstep ended with an exit code other than 0."""


class Lockstep:
    def __init__(self, binary, device):
        self.binary, self.device = pathlib.Path(binary).resolve(), device
        # A variable of the caller must not set a key of the configuration.
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("LOCKSTEP_") or name == "LOCKSTEP_CPU"}
        self.environment |= dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def __call__(self, *arguments, ranks=1):
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        done = subprocess.run([*launcher * (ranks > 1), self.binary, *map(str, arguments)],
                              capture_output=True, text=True, env=self.environment)
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["nothing"]
            raise Refused(f"lockstep {' '.join(map(str, arguments))}: exit code {done.returncode}, "
                          f"printed: {said[-1]}")
        return done.stdout

    def loss(self, model, shards, length):
        """Returns the mean loss over every window of the shards, in nats."""
        told = json.loads(self("eval", model, "--data", *shards, "--sequence-length", length,
                               "--device", self.device))
        return told["loss_nats"]

    def import_(self, model, run):
        self("checkpoint", "import", model, "--out", run)

    def export(self, model, out, dtype):
        self("checkpoint", "export", model, "--out", out, "--dtype", dtype)

    def train(self, config, run, init_from, ranks=1):
        """Trains a run; returns the steps of metrics.jsonl."""
        self("train", config, "--run", run, "--init-from", init_from, "--device", self.device,
             ranks=ranks)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def write_toml(path, tables):
    def text(value):
        if isinstance(value, bool):
            return str(value).lower()
        return json.dumps(value)  # TOML writes numbers, strings and arrays of these as JSON does

    path.write_text("".join(
        f"[{table}]\n" + "".join(f"{key} = {text(value)}\n" for key, value in keys.items()) + "\n"
        for table, keys in tables.items()))


def write_shards(folder, rng, tokens):
    """Writes `tokens` as one to three shards of a format of docs/formats.md; returns the paths."""
    kind = rng.choice(["gpt2", "llama3", "nanogpt"])
    cuts = sorted(rng.sample(range(1, len(tokens)), rng.randrange(3)))
    paths = []
    for part in numpy.split(numpy.asarray(tokens), cuts):
        magic, version, dtype = {"gpt2": (20240520, 1, "<u2"), "llama3": (20240801, 7, "<u4"),
                                 "nanogpt": (None, None, "<u2")}[kind]
        header = b"" if magic is None else struct.pack("<256i", magic, version, len(part),
                                                       *[0] * 253)
        paths.append(folder / f"{folder.name}_{len(paths)}.bin")
        paths[-1].write_bytes(header + part.astype(dtype).tobytes())
    return paths
