#!/usr/bin/env python3
"""Writes questions for `lockstep eval --choices` from a local copy of a benchmark.

usage: choices.py TASK INPUT... --out FILE.jsonl [--shots N --examples FILE...]

TASK and the fields of its INPUT, as the benchmark's authors or the Hugging Face hub distribute it:
  hellaswag    activity_label, ctx_a, ctx_b, endings, label
  arc          question {stem, choices: [{text, label}]}, answerKey; or question,
               choices {text: [], label: []}, answerKey (ARC-Easy and ARC-Challenge)
  piqa         goal, sol1, sol2, label; without label: --labels FILE, 0 or 1 per line
  winogrande   sentence, option1, option2, answer
  mmlu         question, choices, answer, subject; in a CSV file without header: question, A, B, C, D,
               answer, and the file name has the subject (anatomy_test.csv)

INPUT is a file of JSON lines (.jsonl), a JSON array (.json), CSV (.csv), or, if pyarrow is
installed, Parquet (.parquet). The texts equal those of lm_eval 0.4.13 (its tasks hellaswag, arc_easy,
arc_challenge, piqa, winogrande, mmlu). So do the N few-shot examples before each question. For mmlu
they are the first N of the subject. For other tasks, Python's random draws them from --examples, the
training set, with lm_eval's seed. The space that lm_eval puts before a choice is at the end of the
context here.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import random
import re
import sys

DELIMITER, BETWEEN = " ", "\n\n"  # of context and choice; of examples
MMLU_COLUMNS = ["question", "A", "B", "C", "D", "answer"]
# Tasks without a test split: lm_eval draws one more example, and leaves out the question itself.
LEAVES_OUT_ASKED = ("hellaswag", "piqa", "winogrande")


class Refused(Exception):
    """An invalid file. The text names the file and the place."""


# A question: its context, or one for each choice; its choices; the index of the right choice.
class Question:
    def __init__(self, choices, label, context=None, contexts=None, answer=None, subject=""):
        self.choices, self.label = choices, label
        self.context, self.contexts = context, contexts
        # Texts of the question as an example.
        self.asked = context if contexts is None else contexts[label]
        self.answer = choices[label] if answer is None else answer
        self.subject = subject
        self.row = None  # row of the input file


def cleaned(text):
    """Returns a text of HellaSwag without the marks of WikiHow's pages."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def hellaswag(row):
    context = row["ctx_a"] + " " + row["ctx_b"].capitalize()
    return Question([cleaned(ending) for ending in row["endings"]], int(row["label"]),
                    cleaned(row["activity_label"] + ": " + context))


def arc(row):
    question, choices = row["question"], row.get("choices")
    if isinstance(question, dict):
        choices = {key: [choice[key] for choice in question["choices"]] for key in ("text", "label")}
        question = question["stem"]
    return Question(list(choices["text"]), list(choices["label"]).index(row["answerKey"]),
                    f"Question: {question}\nAnswer:")


def piqa(row):
    return Question([row["sol1"], row["sol2"]], int(row["label"]),
                    f"Question: {row['goal']}\nAnswer:")


def winogrande(row):
    front, rest = row["sentence"].split("_", 1)
    rest = rest.strip()
    return Question([rest, rest], {"1": 0, "2": 1}[str(row["answer"])],
                    contexts=[front + row["option1"], front + row["option2"]])


def mmlu(row):
    letters = "ABCD"
    choices = list(row["choices"]) if "choices" in row else [row[letter] for letter in letters]
    answer = row["answer"]
    label = letters.index(answer) if answer in tuple(letters) else int(answer)
    listed = "".join(f"\n{letter}. {choice}" for letter, choice in zip(letters, choices[:4]))
    return Question(list(letters), label, f"{row['question'].strip()}{listed}\nAnswer:",
                    subject=row["subject"])


TASKS = dict(hellaswag=hellaswag, arc=arc, piqa=piqa, winogrande=winogrande, mmlu=mmlu)
IDS = ("id", "ind", "qID")
HALF_PAIR = re.compile("[\ud800-\udfff]")


def text_of(path):
    data = pathlib.Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(f"{path}: line {line}: byte {error.start} of the file is not UTF-8") from error


def json_lines(path):
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise Refused(f"{path}: line {number}: {error}") from error


def json_array(path):
    try:
        rows = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise Refused(f"{path}: {error}") from error
    if not isinstance(rows, list):
        raise Refused(f"{path}: line 1: expected an array of questions")
    return rows


def csv_rows(path):
    reader = csv.reader(io.StringIO(text_of(path), newline=""))
    rows = []
    try:
        for row in reader:
            rows.append((reader.line_num, row))
    except csv.Error as error:
        raise Refused(f"{path}: line {reader.line_num}: {error}") from error
    rows = [(line, row) for line, row in rows if row]
    if not rows:
        return []
    names = rows[0][1]
    if "question" not in names and len(names) == len(MMLU_COLUMNS):
        names = MMLU_COLUMNS
    else:
        rows = rows[1:]
    for line, row in rows:
        if len(row) != len(names):
            raise Refused(f"{path}: line {line}: {len(row)} columns, expected {len(names)}")
    return [dict(zip(names, row)) for _, row in rows]


def parquet_rows(path):
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise Refused(f"{path}: Parquet needs pyarrow (pip install pyarrow)") from error
    try:
        return pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise Refused(f"{path}: {str(error).splitlines()[0]}") from error


def rows_of(path):
    readers = {".jsonl": json_lines, ".csv": csv_rows, ".parquet": parquet_rows,
               ".json": json_array}
    reader = readers.get(pathlib.Path(path).suffix)
    if reader is None:
        raise Refused(f"{path}: expected a name that ends in {', '.join(readers)}")
    rows = list(reader(path))
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise Refused(f"{path}: row {number}: expected an object")
    if not rows:
        raise Refused(f"{path}: holds no question")
    return rows


def subject_of(path):
    """The subject in the name of a file of MMLU."""
    return re.sub(r"_(test|dev|val|validation)$", "", pathlib.Path(path).stem)


def questions_of(task, paths, labels=None):
    """Returns (id, Question) for all rows, in their order."""
    rows = [(path, number, row) for path in paths for number, row in enumerate(rows_of(path))]
    if labels is not None:
        given = text_of(labels).split()
        if len(given) != len(rows):
            raise Refused(f"{labels}: {len(given)} labels for {len(rows)} questions")
        rows = [(path, number, {**row, "label": label})
                for (path, number, row), label in zip(rows, given)]
    found = []
    for path, number, row in rows:
        try:
            question = TASKS[task]({"subject": subject_of(path), **row} if task == "mmlu" else row)
            question.row = row
            "".join([*(question.contexts or [question.context]), *question.choices])  # checks that they are texts
            if not 0 <= question.label < len(question.choices):
                raise IndexError(f"label {question.label}")
        except (KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
            raise Refused(f"{path}: row {number}: not a question of {task}: "
                          f"{type(error).__name__}: {error}") from error
        own = next((row[key] for key in IDS if key in row), len(found))
        found.append((own, question))
    return found


def examples_of(task, pool, shots, rng, question):
    if shots == 0:
        return []
    if task == "mmlu":  # lm_eval's sampler first_n
        pool = [example for example in pool if example.subject == question.subject]
    drawn = shots + (task in LEAVES_OUT_ASKED)
    if len(pool) < drawn:
        raise Refused(f"expected at least {drawn} examples in --examples, found {len(pool)}"
                      + (f" about {question.subject}" if task == "mmlu" else ""))
    if task == "mmlu":
        return pool[:shots]
    found = rng.sample(pool, drawn)
    if task not in LEAVES_OUT_ASKED:
        return found
    found = [example for example in found if example.row != question.row][:shots]
    if len(found) == shots:
        return found
    others = [example for example in pool if example.row != question.row]  # it occurs twice
    if len(others) < shots:
        raise Refused(f"expected at least {shots} other examples in --examples, found {len(others)}")
    return rng.sample(others, shots)


def description(task, question):
    if task != "mmlu":
        return ""
    return ("The following are multiple choice questions (with answers) about "
            f"{question.subject.replace('_', ' ')}.\n\n")


def lines_of(task, questions, pool=(), shots=0, seed=1234):
    """Yields the objects of `lockstep eval --choices`, in the order of the questions."""
    rng = random.Random(seed)
    for own, question in questions:
        front = description(task, question) + "".join(
            example.asked + DELIMITER + example.answer + BETWEEN
            for example in examples_of(task, pool, shots, rng, question))
        line = {"id": str(own)}
        if question.contexts is None:
            line["context"] = front + question.context + DELIMITER
        else:
            line["choice_contexts"] = [front + context + DELIMITER for context in question.contexts]
        yield {**line, "choices": question.choices, "label": question.label}


def write(path, text):
    """Writes a temporary file, and renames it to `path` when it is complete."""
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    finally:
        pathlib.Path(temporary).unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS, metavar="TASK")
    parser.add_argument("input", nargs="+", metavar="INPUT")
    parser.add_argument("--out", required=True, metavar="FILE.jsonl")
    parser.add_argument("--labels", metavar="FILE", help="labels for piqa, one per line")
    parser.add_argument("--shots", type=int, default=0, metavar="N",
                        help="number of few-shot examples (default 0)")
    parser.add_argument("--examples", nargs="+", default=[], metavar="FILE",
                        help="files with the examples: the training set; for mmlu, dev")
    parser.add_argument("--examples-labels", metavar="FILE",
                        help="labels for the --examples of piqa, one per line")
    parser.add_argument("--seed", type=int, default=1234, help="random seed (default 1234)")
    options = parser.parse_args()
    try:
        questions = questions_of(options.task, options.input, options.labels)
        pool = questions_of(options.task, options.examples, options.examples_labels)
        text = "".join(
            json.dumps(line, ensure_ascii=False) + "\n"
            for line in lines_of(options.task, questions, [example for _, example in pool],
                                 options.shots, options.seed))
        text, halves = HALF_PAIR.subn("\ufffd", text)
        write(options.out, text)
    except (Refused, OSError) as error:
        sys.exit(f"choices.py: {error}")
    print(f"{options.out}: {len(questions)} questions of {options.task}")
    if halves > 0:
        print(f"choices.py: lone surrogates replaced by U+FFFD: {halves}", file=sys.stderr)


if __name__ == "__main__":
    main()
