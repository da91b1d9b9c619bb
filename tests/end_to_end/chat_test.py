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
        # With large weights a text depends on every token before it. With small ones it repeats itself forever.
        for model, init_std in ((self.model, 0.3), (self.endless, 0.02)):
            done = run("train", configuration(folder, "llama3"), "--run", model, "--device", "cpu", "--set",
                       "model.max_positions=8192", "--set", "train.steps=1", "--set",
                       f"model.init_std={init_std}", "--set", "eval.every_steps=0")
            expect(done.returncode == 0, done.stderr)

    def say(self, text, *options):
        """Returns the answers to the lines of a text."""
        done = run("chat", self.model, "--template", self.template, *GREEDY, *options, text=text)
        expect(done.returncode == 0, f"{text!r}: {done.returncode}: {done.stderr}")
        return done.stdout.decode(), done.stderr.decode()

    def answers(self, questions, tokens, system=""):
        """What generate writes behind each question, after the conversation before it."""
        whole, answers = system, []
        for question in questions:
            whole += f"ask: {question}\nsay: "
            prompt = whole.encode(errors="surrogateescape")
            done = subprocess.run([LOCKSTEP, "generate", self.model, *GREEDY, "--prompt", prompt, "--tokens",
                                   str(tokens), "--stop", "q"], capture_output=True, timeout=120, check=False)
            expect(done.returncode == 0 and done.stdout.startswith(prompt), f"{prompt}: {done.stderr}")
            answers.append(done.stdout[len(prompt):-1].decode(errors="surrogateescape"))
            whole += answers[-1] + "q"
        return answers


def shown(answers):
    """The output of chat, which is valid UTF-8."""
    return "".join(answer.encode(errors="surrogateescape").decode(errors="replace") + "\n" for answer in answers)


def answers_are_those_of_generate_on_the_conversation(chat):
    """The cache holds earlier turns; generate computes each conversation from its start."""
    questions, system, tokens = ["the cat sat", "ran", "on a mat and then"], "be brief\n", 12
    expected = chat.answers(questions, tokens, system)
    expect(len(set(expected)) == 3, f"{expected}: answers that differ")
    options = ["--system", "be brief", "--max-tokens", tokens]
    said, _ = chat.say("\n".join(questions), *options)
    expect(said == shown(expected), f"{said!r}, expected {expected}")
    # /reset forgets the turns, not the system message; nothing behind /quit is answered.
    said, _ = chat.say("x\n\n/reset\nthe cat sat\r\n/quit\nran\n", *options)
    expected = [*chat.answers("x", tokens, system), expected[0]]
    expect(said == shown(expected), f"{said!r}, expected {expected}: after /reset as at the start")


def a_full_context_forgets_the_oldest_turns(chat):
    """With room for two turns, the third answer equals that without the first turn."""
    tokens, context = 8, 72
    said, log = chat.say("the cat\nsat on\na mat and then it\n", "--max-tokens", tokens, "--context", context)
    first_two = chat.answers(["the cat", "sat on"], tokens)
    whole = f"ask: sat on\nsay: {first_two[1]}q"
    third = chat.answers(["a mat and then it"], tokens, whole)
    expect(said == shown([*first_two, *third]), f"{said!r}, expected {first_two} {third}")
    expect(says("chat.dropped", count=1) in log, log)
    said, log = chat.say("x" * 100 + "\nthe cat\n", "--max-tokens", tokens, "--context", context)
    expect(said == shown(first_two[:1]) and says("chat.too_long") in log, f"{said!r} {log}")


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
    answer = read_until(terminal, b"the cat\r\n")
    while answer.endswith(b"the cat\r\n"):  # until it has begun
        answer += os.read(terminal, 4096)
    os.kill(child, signal.SIGINT)
    answer += read_until(terminal, b"> ")
    length = len(answer.decode(errors="replace"))
    expect(length < 8000, f"{length} characters: an answer that Ctrl-C has stopped")
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
