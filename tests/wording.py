#!/usr/bin/env python3
"""The wording of messages, for tests in Python and shell: each phrase stands once, in wording.txt.

usage: wording.py NAME [FIELD=VALUE]... [NAME [FIELD=VALUE]...]...

Prints a pattern for grep -P of a line that has these phrases in this order, with each VALUE as it is (wording.sh).
"""

import pathlib
import re
import sys

PATH = pathlib.Path(__file__).with_suffix(".txt")
FIELD = re.compile(r"\{(\w+)\}")


def read(path=PATH):
    """Phrases by name."""
    phrases = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, equals, phrase = line.partition(" = ")
        if not equals or not phrase or phrase != phrase.strip():
            raise ValueError(f"{path}:{number}: expected NAME = PHRASE")
        if name in phrases or phrase in phrases.values():
            raise ValueError(f"{path}:{number}: the name or the phrase stands there twice: {line}")
        phrases[name] = phrase
    return phrases


PHRASES = read()


def phrase_of(name, fields):
    if name not in PHRASES:
        raise KeyError(f"{PATH.name} has no {name}")
    unknown = set(fields) - set(FIELD.findall(PHRASES[name]))
    if unknown:
        raise KeyError(f"{name} has no {', '.join(sorted(unknown))}: {PHRASES[name]}")
    return PHRASES[name]


def says(name, /, **fields):
    """The phrase; each of its fields has to be given."""
    phrase = phrase_of(name, fields)
    missing = set(FIELD.findall(phrase)) - set(fields)
    if missing:
        raise KeyError(f"{name} needs {', '.join(sorted(missing))}: {phrase}")
    return FIELD.sub(lambda field: str(fields[field[1]]), phrase)


def pattern(name, /, **groups):
    """A regular expression: the phrase is literal, a field is what the caller gives, or any text of a line."""
    parts = FIELD.split(phrase_of(name, groups))  # text, field, text, ...
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = (str(groups.get(field, ".+?")) for field in parts[1::2])
    return "".join(parts)


def main():
    asked = []
    for argument in sys.argv[1:]:
        field, equals, value = argument.partition("=")
        if equals:
            asked[-1][1][field] = re.escape(value)
        else:
            asked.append((argument, {}))
    print(".*".join(pattern(name, **fields) for name, fields in asked))


if __name__ == "__main__":
    main()
