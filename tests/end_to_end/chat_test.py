#!/usr/bin/env python3
"""`lockstep chat` with a small model: each answer equals that of `generate` on the whole conversation so far.

usage: chat_test.py LOCKSTEP
"""

import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time

from tiny_run import configuration, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import says  # noqa: E402

LOCKSTEP = sys.argv[1]
GREEDY = ["--device", "cpu", "--threads", "1", "--temperature", "0"]
TEMPLATE = {"roles": {"system": {"prefix": "", "suffix": "\n"}, "user": {"prefix": "ask: ", "suffix": "\n"},
                      "assistant": {"prefix": "say: ", "suffix": "q"}}}
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(*arguments, text=""):
    return subprocess.run([LOCKSTEP, *map(str, arguments)], input=text.encode(), capture_output=True, timeout=120,
                          check=False)


class Chat:
    def __init__(self, folder):
        pack(LOCKSTEP, folder)
        self.template = folder / "template.json"
        self.template.write_text(json.dumps(TEMPLATE))
        self.model, self.endless = folder / "run", folder / "endless"
        for model, steps in ((self.model, 30), (self.endless, 1)):  # the second repeats a byte forever
            done = run("train", configuration(folder, "llama3"), "--run", model, "--device", "cpu", "--set",
                       "model.max_positions=8192", "--set", f"train.steps={steps}", "--set",
                       "optimizer.learning_rate=1e-2", "--set", "eval.every_steps=0")
            expect(done.returncode == 0, done.stderr)

    def say(self, text, *options):
        """Returns the answers to the lines of a text."""
        done = run("chat", self.model, "--template", self.template, *GREEDY, *options, text=text)
        expect(done.returncode == 0, f"{text!r}: {done.returncode}: {done.stderr}")
        return done.stdout.decode(), done.stderr.decode()

    def continued(self, prompt, tokens):
        """What generate writes behind a prompt."""
        done = run("generate", self.model, *GREEDY, "--prompt", prompt, "--tokens", tokens, "--stop", "q")
        expect(done.returncode == 0, f"{prompt!r}: {done.stderr}")
        text = done.stdout.decode()
        expect(text.startswith(prompt) and text.endswith("\n"), text)
        return text[len(prompt):-1]


def answers_are_those_of_generate_on_the_conversation(chat):
    """The cache holds earlier turns; generate computes each conversation from its start."""
    questions, tokens = ["the cat sat", "ran", "on a mat and then"], 12
    whole, expected = "be brief\n", ""
    for question in questions:
        whole += f"ask: {question}\nsay: "
        answer = chat.continued(whole, tokens)
        expect(answer != "", f"an answer to {whole!r}")
        whole, expected = f"{whole}{answer}q", f"{expected}{answer}\n"
    said, _ = chat.say("\n".join(questions), "--system", "be brief", "--max-tokens", tokens)
    expect(said == expected, f"{said!r}, expected {expected!r}")
    # /reset forgets the turns, not the system message; nothing behind /quit is answered.
    again, _ = chat.say("x\n\n/reset\nthe cat sat\r\n/quit\nran\n", "--system", "be brief", "--max-tokens", tokens)
    expect(again.splitlines()[1:] == expected.splitlines()[:1], f"{again!r}: after /reset as at the start")


def a_full_context_forgets_the_oldest_turns(chat):
    """With room for two turns, the third answer equals that without the first turn."""
    tokens, context = 8, 72
    said, log = chat.say("the cat\nsat on\na mat and then it\n", "--max-tokens", tokens, "--context", context)
    second = said.splitlines()[1]
    third = chat.continued(f"ask: sat on\nsay: {second}qask: a mat and then it\nsay: ", tokens)
    expect(said.splitlines()[2] == third, f"{said!r}: expected {third!r} at last")
    expect(says("chat.forgotten", count=1) in log, log)
    said, log = chat.say("x" * 100 + "\nthe cat\n", "--max-tokens", tokens, "--context", context)
    expect(len(said.splitlines()) == 1 and says("chat.too_long") in log, f"{said!r} {log}")


def a_model_without_a_template_is_refused(chat):
    done = run("chat", chat.model, text="hello\n")
    expect(done.returncode == 64 and says("chat.no_template") in done.stderr.decode() and done.stdout == b"",
           f"{done.returncode}: {done.stderr}")


def read_until(terminal, wanted, seconds=60):
    text, end = b"", time.monotonic() + seconds
    while wanted not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 4096)
    expect(wanted in text, f"{text[-500:]!r}: expected {wanted!r}")
    return text


def control_c_stops_an_answer(chat):
    child, terminal = pty.fork()
    if child == 0:
        os.execv(LOCKSTEP, [LOCKSTEP, "chat", str(chat.endless), "--template", str(chat.template), "--max-tokens",
                            "100000", *GREEDY])
    read_until(terminal, b"> ")
    os.write(terminal, b"the cat\n")
    answer = read_until(terminal, b"the cat\r\nc")  # it has begun
    os.kill(child, signal.SIGINT)
    answer += read_until(terminal, b"> ")
    expect(len(answer) < 8000, f"{len(answer)} bytes: an answer that Ctrl-C has stopped")
    os.write(terminal, b"half a line")
    read_until(terminal, b"half a line")
    os.write(terminal, b"\x03")
    read_until(terminal, b"> ")
    os.write(terminal, b"\x04")
    _, status = os.waitpid(child, 0)
    expect(os.waitstatus_to_exitcode(status) == 0, f"Ctrl-D ends normally: {status}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        chat = Chat(pathlib.Path(folder))
        answers_are_those_of_generate_on_the_conversation(chat)
        a_full_context_forgets_the_oldest_turns(chat)
        a_model_without_a_template_is_refused(chat)
        control_c_stops_an_answer(chat)
    print(len(failures), "failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
