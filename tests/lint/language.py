#!/usr/bin/env python3
"""Checks the language of the repository: CONTRIBUTING.md, Language.

usage: language.py [ROOT]

Prints a line for each fault and exits with 1 if there is any:
  - a phrase of PHRASES in a text file;
  - a line of more than 100 columns in the prose of a document (tables, code and links are exempt);
  - a commit made after the rule whose subject has more than 72 characters.
"""

import pathlib
import re
import subprocess
import sys

# Phrases that readers had to decode, and what to write instead.
PHRASES = {
    r"\bgo(?:es|ing)? on (?:from|with|without)\b": "resume, continue",
    r"\bbehind (?:step|a step|the step|saves?|a save|checkpoints?)\b": "after",
    r"\bbut for\b": "except",
    r"\bdistant (?:data|datasets?|files?|paths?|shards?|storage)\b": "remote",
    r"\b(?:is|are|an?) ill\b": "faulty",
    r"\bnobody\b(?![;\"])": "no process, nothing",
    r"\bso (?:many|much)\b": "the number, the amount",
    r"\bno room\b": "not enough memory (or space)",
    r"\blikewise\b": "also",
    r"\bsays? nothing\b": "has no effect",
    r"\bstands? (?:behind|in front of)\b": "follows, precedes",
    r"\bstrangers?\b": "unauthenticated clients, unknown files",
    r"(?<!there )\bis no (?:number|file|name|directory|value|text|key|unit)\b": "is not a ...",
    r"\bwhat (?:is|was|lies) (?:there|here|behind)\b": "name the thing",
    r"\b(?:who|whoever) (?:asks|looks|reads|wants)\b": "name the reader",
}
# These files quote phrases.
QUOTING = {"CONTRIBUTING.md", "tests/lint/language.py", "tests/lint/language_test.py"}
SUFFIXES = {".c", ".cmake", ".cpp", ".cu", ".cuh", ".h", ".html", ".js", ".md", ".py", ".sbatch", ".sh", ".toml", ".txt", ".yaml", ".yml"}
RULE = "67703c86"  # the commit that brought the rule on subjects
MOST_COLUMNS, MOST_SUBJECT = 100, 72


def git(root, *words):
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout


def phrases(name, text):
    for pattern, better in PHRASES.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            yield f'{name}:{line}: "{match[0]}": write {better}'


def long_lines(name, text):
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        exempt = fenced or line.startswith(("|", "    ", "[", "!", "<")) or "](" in line or "http" in line
        if len(line) > MOST_COLUMNS and not exempt:
            yield f"{name}:{number}: {len(line)} columns, at most {MOST_COLUMNS}"


def subjects(root):
    """A clone without the commit of the rule, as a shallow one, has no subjects to check."""
    for line in git(root, "log", "--no-merges", "--format=%h %s", f"{RULE}..HEAD").splitlines():
        commit, subject = line.split(" ", 1)
        if len(subject) > MOST_SUBJECT:
            yield f"{commit}: the subject has {len(subject)} characters, at most {MOST_SUBJECT}"


def faults(root):
    for name in filter(None, git(root, "ls-files", "-z").split("\0")):
        path = root / name
        if path.suffix in SUFFIXES and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            if name not in QUOTING:
                yield from phrases(name, text)
            if path.suffix == ".md":
                yield from long_lines(name, text)
    yield from subjects(root)


if __name__ == "__main__":
    found = list(faults(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])))
    print("\n".join(found) if found else "language: no fault")
    sys.exit(1 if found else 0)
