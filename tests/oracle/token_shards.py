"""Compares token shards with the packages that usually write them: `datatrove` and `megatron-core`."""

import random

import numpy
import torch
from datatrove.pipeline.tokens.megatron_tokenizer import MegatronTokenizedFile
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from datatrove.utils.dataset import DatatroveFileDataset
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder


def drawn(rng, count, ids):
    return [[rng.randrange(ids) for _ in range(rng.randrange(1, 60))] for _ in range(count)]


def joined(documents):
    return [token for document in documents for token in document]


# ------------------------------------------------------------------------------------------- write


def write_megatron(folder, documents, dtype):
    """Writes documents of one or two sequences, and one without."""
    builder = IndexedDatasetBuilder(str(folder / "x_text_document.bin"), dtype=dtype)
    for i, document in enumerate(documents):
        cut = len(document) // 2 if i % 3 == 0 else 0
        lengths = [cut, len(document) - cut] if cut else [len(document)]
        builder.add_document(torch.tensor(document), lengths)
        if i == 7:
            builder.add_document(torch.tensor([]), [])
    builder.finalize(str(folder / "x_text_document.idx"))


def write_megatron_by_datatrove(folder, documents, size):
    file = MegatronTokenizedFile(str(folder), "x", token_size=size)
    for document in documents:
        file.write(document)
    file.close()


def write_datatrove(folder, documents, size, losses=None):
    file = TokenizedFile(str(folder), "00000_x.ds", save_loss_metadata=losses is not None,
                         tokenizer_name_or_path="gpt2", save_final_metadata=True, token_size=size)
    for i, document in enumerate(documents):
        file.write(document, None if losses is None else losses[i])
    file.close()


# -------------------------------------------------------------------------------------------- read


def read_megatron(folder):
    documents = []
    for path in sorted(folder.glob("*.idx")):
        data = IndexedDataset(str(path.with_suffix("")))
        firsts = data.document_indices
        documents += [joined(data[i].tolist() for i in range(first, end))
                      for first, end in zip(firsts, firsts[1:])]
    return documents


def read_datatrove(folder, length=31):
    """Returns the tokens of datatrove's own reader, and the starts of documents from its positions."""
    path, = folder.glob("*.ds")
    size = int((folder / f"{path.name}.metadata").read_text().splitlines()[0].rpartition("|")[2])
    data = DatatroveFileDataset(str(path), length, token_size=size, return_positions=True)
    rows = [data[i] for i in range(len(data))]
    tokens = joined(row["input_ids"].tolist() for row in rows)
    starts = joined((row["positions"] == 0).tolist() for row in rows)
    return tokens, starts


def expected_windows(documents, length=31):
    tokens = joined(documents)
    starts = joined([True] + [False] * (len(document) - 1) for document in documents)
    whole = len(tokens) // (length + 1) * (length + 1)
    # Each window starts a document.
    starts = [start or i % (length + 1) == 0 for i, start in enumerate(starts)]
    return tokens[:whole], starts[:whole]


def check(report, seed, folder, lockstep):
    rng = random.Random(f"datasets {seed}")
    folder.mkdir()
    for name, write, ids in (
            ("megatron-core u16", lambda to, what: write_megatron(to, what, numpy.uint16), 65000),
            ("megatron-core i32", lambda to, what: write_megatron(to, what, numpy.int32), 200000),
            ("megatron-core i64", lambda to, what: write_megatron(to, what, numpy.int64), 200000),
            ("datatrove's Megatron u16",
             lambda to, what: write_megatron_by_datatrove(to, what, 2), 65000),
            ("datatrove's Megatron i32",
             lambda to, what: write_megatron_by_datatrove(to, what, 4), 200000),
            ("datatrove u16", lambda to, what: write_datatrove(to, what, 2), 65000),
            ("datatrove u32", lambda to, what: write_datatrove(to, what, 4), 200000)):
        documents = drawn(rng, 120, ids)
        source, to = folder / name.replace(" ", "_"), folder / (name.replace(" ", "_") + "_to")
        source.mkdir()
        to.mkdir()
        write(source, documents)
        lockstep("data", "verify", source)
        for target in ("megatron", "datatrove", "lockstep"):
            lockstep("data", "convert", source, "--to", target, "--out", to / target)
        lockstep("data", "convert", to / "lockstep", "--to", "megatron", "--out", to / "again")
        for target in ("megatron", "again"):
            report.check(f"{name} to {target}: documents that megatron-core reads",
                         read_megatron(to / target) == documents, f"{len(documents)}")
        report.check(f"{name} to datatrove: windows and positions that datatrove reads",
                     read_datatrove(to / "datatrove") == expected_windows(documents))
    check_losses(report, rng, folder / "losses", lockstep)


def check_losses(report, rng, folder, lockstep):
    """Converts to the format of Lockstep and back; every byte of datatrove must be the same."""
    folder.mkdir()
    documents = drawn(rng, 120, 65000)
    losses = [[float(rng.randrange(2)) for _ in document] for document in documents]
    (folder / "source").mkdir()
    write_datatrove(folder / "source", documents, 2, losses)
    lockstep("data", "convert", folder / "source", "--to", "lockstep", "--out", folder / "ours")
    lockstep("data", "convert", folder / "ours", "--to", "datatrove", "--out", folder / "back",
             "--name", "x")
    for end in ("", ".index", ".loss"):
        report.check(f"datatrove to lockstep and back: the bytes of *.ds{end}",
                     (folder / f"source/00000_x.ds{end}").read_bytes()
                     == (folder / f"back/x_000000.ds{end}").read_bytes())
    source, back = ((folder / name).read_text().splitlines()
                    for name in ("source/00000_x.ds.metadata", "back/x_000000.ds.metadata"))
    report.check("datatrove to lockstep and back: the tokens in the metadata",
                 source[1:] == back[1:], back[2])
