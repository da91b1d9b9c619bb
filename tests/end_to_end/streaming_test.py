#!/usr/bin/env python3
"""Runs on a remote dataset have the losses of the local one, bit for bit, even with a faulty server. Each host fetches
a shard once. The test also has kills, caches that are too small, servers that die, and other commands with addresses.

usage: streaming_test.py LOCKSTEP BAD_SERVER [full]

Without mpirun only runs of one rank are tested.
"""

import base64
import http.server
import os
import pathlib
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from mpirun_test import ENVIRONMENT, expect, failures
from tiny_run import configuration, metrics, numbers

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

SHARD_TOKENS = 4000
TOKENIZERS = pathlib.Path(__file__).parent.parent / "data" / "tokenizers"
WORDS = "the cat sat on a mat and then it ran away from dog".split()


class Server:
    """A process of bad_server.py that serves a folder."""

    def __init__(self, program, folder):
        self.process = subprocess.Popen([sys.executable, "-B", program, str(folder)], stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def requests(self, path):
        with urllib.request.urlopen(self.url("_requests/" + path), timeout=60) as reply:
            return int(reply.read())

    def end(self):
        self.process.kill()
        self.process.wait()


class Test:
    def __init__(self, lockstep, program, folder):
        self.lockstep, self.program, self.folder = lockstep, program, folder
        rng = random.Random(1)  # no two shards are equal, because equal ones are fetched once
        for name, documents in (("text", 250), ("more", 100)):
            text = "\n\n".join(" ".join(rng.choices(WORDS, k=60)) for _ in range(documents))
            (folder / f"{name}.txt").write_text(text)
        self.pack("data", "--tokenizer", "bytes")
        self.config = configuration(folder, "llama3")
        self.server = Server(program, folder)
        self.locals = {}
        self.shards = sorted(path.name for path in (folder / "data" / "train").glob("*.bin"))
        expect(len(self.shards) >= 12, f"{len(self.shards)} shards")

    def pack(self, name, *options, text="text.txt"):
        subprocess.run([self.lockstep, "data", "pack", str(self.folder / text), "--document-separator",
                        r"\n\n", "--validation", "10%", "--shard-tokens", str(SHARD_TOKENS), "--out",
                        str(self.folder / name), *options], check=True, capture_output=True)

    def say(self, *words, **environment):
        """Runs lockstep. Returns the exit code, standard output and standard error."""
        done = subprocess.run([self.lockstep, *map(str, words)], capture_output=True, text=True, timeout=120,
                              env=dict(ENVIRONMENT, HOME=str(self.folder), **environment))
        return done.returncode, done.stdout, done.stderr

    def command(self, run, ranks, settings):
        train = [self.lockstep, "train", str(self.config), "--run", str(run), "--device", "cpu"]
        for setting in settings:
            train += ["--set", setting]
        return train if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *train]

    def train(self, name, ranks, *settings):
        run = self.folder / name
        done = subprocess.run(self.command(run, ranks, settings), env=dict(ENVIRONMENT, HOME=str(self.folder)),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=600)
        return done.returncode, done.stdout

    def local(self, ranks, *settings):
        """The results of a run on the local directory."""
        key = (ranks, *settings)
        if key not in self.locals:
            name = f"local-{len(self.locals)}"
            code, said = self.train(name, ranks, *settings)
            expect(code == 0, f"{key} ends with {code}: {said[-800:]}")
            self.locals[key] = numbers(self.folder / name)
        return self.locals[key]

    def remote(self, mode, cache):
        return [f"data.train={self.server.url(mode)}/data/train",
                f"data.validation={self.server.url(mode)}/data/validation",
                f"data.cache_directory={self.folder / cache}"]

    def asked(self, mode, end="bin"):
        """The number of requests for each shard of the training data."""
        return [self.server.requests(f"{mode}/data/train/{pathlib.Path(name).stem}.{end}") for name in self.shards]

    def room(self, shards):
        """The bytes of this number of shards in a cache."""
        files = list((self.folder / "data").glob("*/*.bin")) + list((self.folder / "data").glob("*/*.ends"))
        return 2 * shards * (max(path.stat().st_size for path in files) + 17)


def check_runs(test, layouts):
    """Runs have the same losses, and fetch each shard once per host."""
    for number, (ranks, shuffle, *settings) in enumerate(layouts):
        settings = [f"data.shuffle_shards={shuffle}", "train.steps=60", *settings]
        mode = "plain-" + "abcdefgh"[number]
        what = f"{ranks} ranks, {settings}"
        code, said = test.train(mode, ranks, *settings, *test.remote(mode, mode + "-cache"))
        expect(code == 0, f"{what}: ends with {code}: {said[-1500:]}")
        expect(numbers(test.folder / mode) == test.local(ranks, *settings), f"{what}: other losses: {said[-500:]}")
        asked, lists = test.asked(mode), test.asked(mode, "ends")
        least = 4 if shuffle else len(test.shards)
        expect(max(asked + lists) == 1 and sum(asked) >= least, f"{what}: requests for shards: {asked} {lists}")
        expect(test.server.requests(f"{mode}/data/train/dataset.json") == 1, f"{what}: dataset.json once")
        came = pattern("shards.came", files=r"\d+", bytes=r"\S+ \S+", speed=r"\S+ \S+/s", opened=r"\d+", waited=r"\d+")
        expect(re.search(came, said) is not None, f"{what}: the log has the fetched shards: {said[-1500:]}")
        masked = pattern("train.masked", sequences=16, computed=18)  # on three ranks
        meant = re.compile(rf"{pattern('log.warning')} (data\.|{masked})")
        warnings = [line for line in said.splitlines() if says("log.warning") in meant.sub("", line).lower()]
        expect(not warnings, f"{what}: warns: {warnings}")


def check_bad_server(test):
    """Errors and broken connections do not change losses."""
    settings = ["data.shuffle_shards=2", "train.steps=60"]
    code, said = test.train("bad", 1, *settings, *test.remote("busy1+cut2", "bad-cache"))
    expect(code == 0 and numbers(test.folder / "bad") == test.local(1, *settings),
           f"a server that is busy, and breaks: {code} {said[-1500:]}")
    code, said = test.train("flipped", 1, *settings, test.remote("plain-flipped", "flip-cache")[1],
                            f"data.train={test.server.url('flip')}/data/train")
    expect(code == 65 and "dataset.json" in said, f"a dataset.json with another byte: {code} {said[-500:]}")


def resumes_when_killed(test, name, settings, remote):
    """A killed and resumed run has the losses of an uninterrupted one, and fetches no cached shard again."""
    settings = [*settings, "train.steps=300", "checkpoint.every_steps=20"]
    run = test.folder / name
    environment = dict(ENVIRONMENT, HOME=str(test.folder))
    with open(test.folder / (name + ".log"), "w") as log:
        process = subprocess.Popen(test.command(run, 1, settings + remote), env=environment, stdout=log, stderr=log)
        deadline = time.time() + 60
        while time.time() < deadline and process.poll() is None and len(numbers(run)) < 50:
            time.sleep(0.01)
        process.kill()
        process.wait()
    before = len(numbers(run))
    expect(50 <= before < 300, f"{name} after step {before}")
    code, said = test.train(name, 1, *settings, *remote)
    expect(code == 0 and re.search(pattern("train.goes_on"), said), f"{name}, resumes: {code} {said[-800:]}")
    expect(numbers(run) == test.local(1, *settings), f"{name} and resumed: other losses")
    asked = test.asked("plain-" + name)
    again = sum(count - 1 for count in asked if count)
    expect(sum(asked) > 0 and again <= 8, f"{name}: {again} shards were fetched again, of which 8 may have been in transit")


def check_killed(test):
    resumes_when_killed(test, "killed", ["data.shuffle_shards=2"], test.remote("plain-killed", "killed-cache"))


def check_killed_mixture(test):
    """A mixture of a remote source and a local one."""
    test.pack("more", "--tokenizer", "bytes", text="more.txt")

    def mixture(data):
        return ('data.source=[{path = "%s/data/train", weight = 2.5}, {path = "%s/more/train", weight = 1}]'
                % (data, test.folder))

    settings = ["data.train=[]", mixture(test.folder), "data.shuffle_shards=2", "data.document_mask=true"]
    remote = [mixture(test.server.url("plain-killed-mixture")),
               f"data.cache_directory={test.folder / 'killed-mixture-cache'}"]
    resumes_when_killed(test, "killed-mixture", settings, remote)


def check_small_cache(test):
    settings = ["data.shuffle_shards=1", "train.steps=250"]
    bytes_ = test.room(7)
    cache = test.folder / "small-cache"
    code, said = test.train("small", 1, *settings, *test.remote("plain-small", "small-cache"),
                            f"data.cache_bytes={bytes_}")
    expect(code == 0 and numbers(test.folder / "small") == test.local(1, *settings),
           f"a small cache: {code} {said[-1500:]}")
    held = sum(path.stat().st_size for path in cache.iterdir())
    expect(held <= bytes_ and max(test.asked("plain-small")) > 1,
           f"removes and fetches again: {held} of {bytes_} bytes, asked for {test.asked('plain-small')}")
    for shuffle, bytes_ in ((1, test.room(1)), (0, test.room(7))):
        code, said = test.train("refused", 1, f"data.shuffle_shards={shuffle}", f"data.cache_bytes={bytes_}",
                                *test.remote("plain-refused", "small-cache"))
        kilobytes = r"\S+ kB"
        lists = [pattern("shards.of_dataset", dataset=f"data/{part}", count=r"\d+", bytes=kilobytes)
                 for part in ("train", "validation")]
        needed = pattern("shards.too_large", bytes=kilobytes, room=kilobytes, cache=".*small-cache")
        expect(code == 78 and re.search(f"{lists[0]}, .*{lists[1]}; {needed}", said) is not None,
               f"a cache that is too small: {code} {said[-800:]}")
        expect(not (test.folder / "refused").exists(), "a refused run leaves its directory")
    # Rows of documents need all lists of ends, which are not fetched for a rejected run.
    code, said = test.train("refused", 1, "data.rows=packed", f"data.cache_bytes={test.room(7)}",
                            *test.remote("plain-unread", "unread-cache"))
    expect(code == 78 and re.search(pattern("shards.too_large"), said) and sum(test.asked("plain-unread", "ends")) == 0,
           f"packed rows in a cache that is too small: {code} {test.asked('plain-unread', 'ends')} {said[-800:]}")


def check_tokenizer(test):
    """The tokenizer is fetched with the data."""
    test.pack("words", "--tokenizer", TOKENIZERS / "gpt2")
    mode = test.server.url("plain-words")
    code, said = test.train("words-run", 1, f"data.train={mode}/words/train/", f"data.validation={mode}/words/validation",
                            f"data.cache_directory={test.folder / 'words-cache'}", "model.vocabulary=1024",
                            "log.sample_every_steps=6", "log.sample_prompt=the cat")
    expect(code == 0 and f"{says('train.sample', step=6)} the cat" in said, f"samples: {code} {said[-800:]}")
    kept = test.folder / "words-run" / "tokenizer" / "tokenizer.json"
    expect(kept.exists() and kept.read_bytes() == (TOKENIZERS / "gpt2" / "tokenizer.json").read_bytes(),
           "the run keeps the tokenizer")
    code, out, said = test.say("data", "inspect", f"{mode}/words/train", XDG_CACHE_HOME=str(test.folder / "x"))
    here = test.say("data", "inspect", test.folder / "words" / "train")[1]
    expect(code == 0 and out == here, f"inspect: {code} {out} {said}, here {here}")
    expect((test.folder / "x" / "lockstep" / "shards").is_dir(), "the cache is not in XDG_CACHE_HOME")


def check_verbs(test):
    url = test.server.url("plain-verbs") + "/data"
    code, out, said = test.say("eval", test.folder / "plain-a", "--data", url + "/validation", "--tokens", 20000)
    here = test.say("eval", test.folder / "plain-a", "--data", test.folder / "data" / "validation", "--tokens", 20000)
    figures = [re.search(r'"loss_nats":.*?"tokens":\d+', text) for text in (out, here[1])]
    expect(code == 0 and None not in figures and figures[0][0] == figures[1][0], f"eval: {out}{said} {here}")
    code, out, said = test.say("data", "verify", url + "/train", test.folder / "data" / "train")
    lines = [line.split(": ", 1)[1] for line in out.splitlines()]
    expect(code == 0 and lines[0] == lines[1] and says("verify.whole") in out, f"verify: {code} {out}{said}")
    # A shard differs from its dataset.json, which is right.
    shard = test.folder / "data" / "train" / test.shards[3]
    right = damaged(shard)
    code, out, said = test.say("data", "verify", test.server.url("plain-broken") + "/data/train")
    shard.write_bytes(right)
    expect(code == 65 and "DAMAGED" in out and says("shards.other_hash", file=test.shards[3]) in said,
           f"verify of a changed shard: {code} {out}{said}")
    expect(not list(pathlib.Path(tempfile.gettempdir()).glob("lockstep-??????/*.part")), "verify leaves files")
    for words in (["pack", test.folder / "text.txt", "--out", "s3://bucket/x"],
                  ["pack", "https://127.0.0.1/x.txt", "--out", test.folder / "y"],
                  ["convert", test.folder / "data" / "train", "--to", "llmc", "--out", "s3://bucket/x"],
                  ["convert", "s3://bucket/x", "--to", "llmc", "--out", test.folder / "y"],
                  ["convert", f"file:{test.folder}/data/train", "--to", "llmc", "--out", test.folder / "y"]):
        code, out, said = test.say("data", *words)
        expect(code == 64 and says("data.local_path") in said, f"{words}: {code} {said}")
    code, out, said = test.say("data", "inspect", "ftp://host/data")
    expect(code == 65 and says("data.path_or_address") in said, f"ftp: {code} {said}")
    expect(not pathlib.Path("s3:").exists() and not (test.folder / "y").exists(), "nothing is made")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Locked(Quiet):
    """A file server that requires a name and a password."""

    def do_GET(self):
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(b"me:a-secret").decode():
            self.send_error(401)
            return
        super().do_GET()


class Uneven(Quiet):
    """A file server that denies some files, and never finishes some."""

    statuses, endless, asked = {}, set(), []

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.asked.append(name)
        if name in self.statuses:
            self.send_error(self.statuses[name])
        elif name in self.endless:
            self.send_response(200)
            self.send_header("Content-Length", str(os.path.getsize(self.translate_path(self.path))))
            self.end_headers()
            self.wfile.write(b"x")
            self.wfile.flush()
            time.sleep(600)
        else:
            super().do_GET()


def serve(folder, handler=Locked, context=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: handler(*args, directory=str(folder)))
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def check_locks(test):
    port = serve(test.folder / "data")
    inspect = ["data", "inspect", f"http://127.0.0.1:{port}/train"]
    netrc = test.folder / ".netrc"
    code, out, said = test.say(*inspect)
    expect(code == 77 and "401" in said and "~/.netrc" in said, f"without a password: {code} {said}")
    local = test.folder / "data" / "train"
    code, out, said = test.say("data", "verify", inspect[2], local)
    expect(code == 77 and "401" in said and "DAMAGED" not in out, f"verify without a password: {code} {out} {said}")
    expect(f"{local}: " in out and says("verify.whole") in out, f"others behind it are looked at too: {out}")
    netrc.write_text("machine 127.0.0.1 login me password a-secret\n")
    netrc.chmod(0o600)
    code, out, said = test.say(*inspect)
    expect(code == 0 and out, f"with a password: {code} {said}")
    netrc.write_text("machine 127.0.0.1 login me password another\n")
    code, out, said = test.say(*inspect)
    expect(code == 77 and "401" in said and "another" not in said, f"with a wrong password: {code} {said}")
    if shutil.which("openssl") is None:
        return
    key, certificate = test.folder / "key.pem", test.folder / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    netrc.write_text("machine 127.0.0.1 login me password a-secret\n")
    port = serve(test.folder / "data", context=context)
    begin = time.time()
    code, out, said = test.say("data", "inspect", f"https://127.0.0.1:{port}/train")
    expect(code == 65 and "certificate" in said and time.time() - begin < 20,
           f"a self-signed certificate: {code} {said} after {time.time() - begin:.1f} s")
    netrc.unlink()


def damaged(path):
    """Changes the last byte of the file. Returns the previous bytes."""
    right = path.read_bytes()
    path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    return right


def check_uneven(test):
    """A failed request is not damage, and earlier findings are reported. An error does not wait for other requests."""
    shards = test.folder / "data" / "train"
    port = serve(test.folder / "data", Uneven)
    address = f"http://127.0.0.1:{port}/train"
    Uneven.statuses = {test.shards[4]: 404}
    code, out, said = test.say("data", "verify", address)
    expect(code == 65 and "DAMAGED" in out and f"{test.shards[4]}: {says('http.status', status=404)}" in said
           and says("verify.shards", count=len(test.shards)) in out, f"verify, a shard is missing: {code} {out} {said}")
    for status, kept in ((403, False), (403, True)):
        Uneven.statuses = {test.shards[4]: status}
        right = damaged(shards / test.shards[2]) if kept else None
        code, out, said = test.say("data", "verify", address)
        if kept:
            (shards / test.shards[2]).write_bytes(right)
        refused = f"{test.shards[4]}: {says('http.status', status=status)}"
        expect(code == 77 and refused in said and says("verify.not_looked_at") in out and ("DAMAGED" in out) == kept
               and (says("shards.other_hash", file=test.shards[2]) in said) == kept,
               f"verify, a shard is refused, another one damaged: {kept}: {code} {out} {said}")
    code, out, said = test.say("data", "verify", "s3://bucket/d", AWS_ACCESS_KEY_ID="x")
    expect(code == 65 and says("s3.half_a_key") in said and "DAMAGED" not in out, f"verify: {code} {out} {said}")
    # The first shard is damaged while the second one never ends: its single request is aborted.
    Uneven.statuses, Uneven.endless = {}, {test.shards[1]}
    Uneven.asked.clear()
    right = damaged(shards / test.shards[0])
    shutil.rmtree(test.folder / "plain-a-cache")
    code, out, said = test.say("eval", test.folder / "plain-a", "--data", address)
    (shards / test.shards[0]).write_bytes(right)
    expect(code == 65 and says("shards.fetched_twice") in said and Uneven.asked.count(test.shards[1]) == 1,
           f"eval of a damaged shard: {code} {out} {said} {Uneven.asked}")
    Uneven.endless = set()


def check_outage(test):
    """verify of an unreachable server fails after 30 s of retries."""
    address = f"http://127.0.0.1:{serve(test.folder / 'data', Uneven)}/train"
    Uneven.statuses = {test.shards[4]: 503}
    right = damaged(test.folder / "data" / "train" / test.shards[2])
    code, out, said = test.say("data", "verify", address)
    (test.folder / "data" / "train" / test.shards[2]).write_bytes(right)
    expect(code == 75 and f"DAMAGED; {says('verify.not_looked_at')}" in out
           and re.search(pattern("http.given_up"), said) and says("shards.other_hash", file=test.shards[2]) in said,
           f"verify, an outage after damage: {code} {out} {said}")
    Uneven.statuses = {}
    code, out, said = test.say("data", "verify", "http://127.0.0.1:1/train")
    expect(code == 75 and "DAMAGED" not in out and re.search(pattern("http.given_up"), said), f"verify without a server: {code} {out} {said}")


def check_file(test, full):
    """A dataset at a file: address is the local dataset. Its unreadable files are errors."""
    shared = test.folder / "a file system"
    shutil.copytree(test.folder / "data", shared)
    address = f"file://{test.folder}/a%20file%20system"

    def staged(cache, *more):
        return [f"data.train={address}/train", f"data.validation={address}/validation",
                f"data.cache_directory={test.folder / cache}", *more]

    def count(run, what):
        return metrics(test.folder / run)[-1][f"shard_files_{what}"]

    settings = ["data.shuffle_shards=2", "train.steps=60"]
    code, said = test.train("file", 1, *settings, *staged("file-cache"))
    expect(code == 0 and numbers(test.folder / "file") == test.local(1, *settings), f"file: {code} {said[-1500:]}")
    # A run changes from the path to the address and back.
    settings = ["data.shuffle_shards=2", "schedule.kind=constant", "schedule.warmup_steps=0", "eval.every_steps=20"]
    for steps, where in ((20, []), (40, staged("file-cache")), (60, [])):
        command = test.command(test.folder / "file-resumed", 1, [*settings, f"train.steps={steps}", *where])
        code, out, said = test.say(*command[1:], *([] if steps == 20 else ["--extend"]))
        expect(code == 0 and (steps == 20 or re.search(pattern("train.goes_on"), said)),
               f"to step {steps}: {code} {said[-800:]}")
    expect(numbers(test.folder / "file-resumed") == test.local(1, *settings, "train.steps=60"), "resumed: other losses")
    expect(count("file", "fetched") >= 8 and metrics(test.folder / "file-resumed")[39]["shard_files_fetched"] == 0,
           "two runs share a cache")
    if full:
        settings = ["data.shuffle_shards=1", "train.steps=250"]
        code, said = test.train("file-small", 1, *settings,
                                *staged("file-small-cache", f"data.cache_bytes={test.room(7)}"))
        expect(code == 0 and numbers(test.folder / "file-small") == test.local(1, *settings)
               and count("file-small", "removed") > 0, f"a small cache: {code} {said[-1500:]}")
    check_file_errors(test, shared / "train", address + "/train", full)


def check_file_errors(test, shared, address, full):
    shard = shared / test.shards[5]
    inject = ["strace", "-f", "-o", test.folder / "injected", "-P", shard, "-e", "trace=openat"]
    right = damaged(shard)
    verify = [test.lockstep, "data", "verify", address]
    train = test.command(test.folder / "file-refused", 1, [f"data.train={address}", "data.validation=[]"])
    cases = [(65, train, says("shards.fetched_twice")),
             (65, verify, says("shards.other_hash", file=f"{address}/{shard.name}"))]
    if traces():
        cases += [(code, [*inject, "-e", f"inject=openat:error={error}", *words], str(shard))
                  for code, error in ((65, "ENOENT"), (74, "EIO"), (77, "EACCES"))
                  for words in ((train, verify) if full else (train,))]
    for expected, words, text in cases:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120,
                              env=dict(ENVIRONMENT, HOME=str(test.folder), XDG_CACHE_HOME=str(test.folder / "x")))
        expect(done.returncode == expected and text in done.stderr, f"{words}: {done.returncode} {done.stderr}")
    shard.write_bytes(right)


def traces():
    """Whether strace works here."""
    command = ["strace", "-o", "/dev/null", "true"]
    return shutil.which("strace") and subprocess.run(command, capture_output=True).returncode == 0


def check_opens(test):
    """Local shards are opened once, for any number of ranks."""
    if shutil.which("strace") is None or shutil.which("mpirun") is None:
        print("SKIPPED: opens are not counted without strace and mpirun")
        return
    trace = test.folder / "trace"
    settings = ["data.shuffle_shards=0", "train.steps=60"]
    command = test.command(test.folder / "traced", 3, ["train.micro_batch=1", *settings])
    at = command.index(test.lockstep)
    command[at:at] = ["strace", "-f", "--seccomp-bpf", "-e", "trace=openat", "-o", "!", "-ff"]
    command[at:at] = []
    command[command.index("!")] = str(trace)
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    opened = re.findall(r'data/train/([^"/]*\.bin)"[^=]*= \d',
                        "\n".join(path.read_text(errors="replace") for path in test.folder.glob("trace.*")))
    if not opened:
        print(f"SKIPPED: strace traces nothing here: {done.stderr[-300:]}")
        return
    expect(done.returncode == 0 and sorted(opened) == test.shards, f"shards are opened: {sorted(opened)}")


def check_death(test, layouts):
    """If the server dies, the run aborts with a remedy. It resumes when the server is back."""
    for ranks in layouts:
        settings = ["data.shuffle_shards=1", "train.steps=250", "checkpoint.every_steps=10"]
        name = f"orphan-{ranks}"
        run = test.folder / name
        remote = test.remote("plain-" + "abcdefg"[ranks], name + "-cache")
        with open(test.folder / (name + ".log"), "w") as log:
            process = subprocess.Popen(test.command(run, ranks, settings + remote),
                                       env=dict(ENVIRONMENT, HOME=str(test.folder)), stdout=log, stderr=log)
            deadline = time.time() + 60
            while time.time() < deadline and process.poll() is None and len(numbers(run)) < 15:
                time.sleep(0.01)
            test.server.end()
            begin = time.time()
            code = process.wait(timeout=120)
        took, said = time.time() - begin, (test.folder / (name + ".log")).read_text()
        given_up = r"http://127.0.0.1:\d+/\S*: .*; " + pattern("http.given_up", attempts=r"\d+")
        expect(code == 75 and took < 60 and re.search(given_up, said) is not None,
               f"{ranks} ranks, the server dies: {code} after {took:.1f} s: {said[-1500:]}")
        print(f"{ranks} ranks: ended {took:.1f} s after the server")
        test.server = Server(test.program, test.folder)
        code, said = test.train(name, ranks, *settings, *test.remote("plain", name + "-cache"))
        expect(code == 0 and re.search(pattern("train.goes_on"), said), f"resumes: {code} {said[-800:]}")
        expect(numbers(run) == test.local(ranks, *settings), f"{ranks} ranks, the server died: other losses")


def main():
    full = sys.argv[3:] == ["full"]
    folder = pathlib.Path(tempfile.mkdtemp())
    test = Test(sys.argv[1], sys.argv[2], folder)
    try:
        ranks = [1, 2] if shutil.which("mpirun") else [1]
        layouts = [(r, k, *(["layout.sharding=none"] if full and r > 1 else []))
                   for r in (ranks + [3] if full else ranks) for k in (2, 0)]
        begin = time.time()
        checks = [lambda: check_runs(test, layouts), lambda: check_bad_server(test), lambda: check_killed(test),
                  lambda: check_killed_mixture(test), lambda: check_small_cache(test), lambda: check_tokenizer(test),
                  lambda: check_verbs(test), lambda: check_locks(test), lambda: check_uneven(test),
                  lambda: check_file(test, full), lambda: check_opens(test)]
        if full:
            checks.append(lambda: check_outage(test))
            checks.append(lambda: check_death(test, ranks))
        for check in checks:
            check()
            print(f"{time.time() - begin:.1f} s, {len(failures)} failures", flush=True)
        return 1 if failures else 0
    finally:
        test.server.end()
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
