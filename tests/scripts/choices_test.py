#!/usr/bin/env python3
"""tools/choices.py makes of each benchmark's rows the texts that lm_eval's templates do.

What is expected was made by lm_eval itself (tests/oracle/make_choices_texts.py), or written from the
templates of lm_eval 0.4.13.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from wording import says  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "choices.py"
TEXTS = ROOT / "tests" / "oracle" / "fixtures" / "choices_texts.json"

HELLASWAG = {
    "ind": 24, "activity_label": "Roof shingle removal", "ctx_a": "A man is sitting on a roof.",
    "ctx_b": "he", "endings": ["is using wrap  to wrap skis [title] Next [step] Go.", " holds on. "],
    "label": "1"}
ARC = {
    "id": "Mercury_7220990", "question": "Which factor?", "answerKey": "B",
    "choices": {"text": ["heat", "the weight of the water", "light"], "label": ["A", "B", "C"]}}
ARC_STEM = {
    "id": "X1", "answerKey": "2", "question": {"stem": "Which one?", "choices": [
        {"text": "this", "label": "1"}, {"text": "that", "label": "2"}]}}
PIQA = {"goal": "To open a jar", "sol1": "Tap the lid.", "sol2": "Freeze it."}
WINOGRANDE = {
    "qID": "3", "sentence": "Sarah was better than Maria so _ got the easy cases.",
    "option1": "Sarah", "option2": "Maria", "answer": "2"}
MMLU = {
    "question": " What is the embryological origin of the hyoid bone? ", "subject": "human_aging",
    "choices": ["first", "second", "third", "fourth"], "answer": 3}


class Choices(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def file(self, name, *rows):
        text = "".join(json.dumps(row) + "\n" if isinstance(row, dict) else row for row in rows)
        (self.root / name).write_text(text)
        return str(self.root / name)

    def run_script(self, task, *arguments):
        out = self.root / "out.jsonl"
        done = subprocess.run([sys.executable, "-B", SCRIPT, task, *arguments, "--out", out],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.stderr
        return [json.loads(line) for line in out.read_text().splitlines()]

    def test_hellaswag_is_cleaned(self):
        self.assertEqual(self.run_script("hellaswag", self.file("a.jsonl", HELLASWAG)), [
            {"id": "24",
             "context": "Roof shingle removal: A man is sitting on a roof. He ",
             "choices": ["is using wrap to wrap skis. Next Go.", "holds on."], "label": 1}])

    def test_arc_of_both_forms(self):
        found = self.run_script("arc", self.file("a.jsonl", ARC, ARC_STEM))
        self.assertEqual(found, [
            {"id": "Mercury_7220990", "context": "Question: Which factor?\nAnswer: ",
             "choices": ["heat", "the weight of the water", "light"], "label": 1},
            {"id": "X1", "context": "Question: Which one?\nAnswer: ", "choices": ["this", "that"],
             "label": 1}])

    def test_piqa_with_labels_beside_or_within(self):
        line = {"id": "0", "context": "Question: To open a jar\nAnswer: ",
                "choices": ["Tap the lid.", "Freeze it."], "label": 1}
        labels = self.file("labels.lst", "1\n")
        self.assertEqual(self.run_script("piqa", self.file("a.jsonl", PIQA), "--labels", labels),
                         [line])
        array = self.file("a.json", json.dumps([{**PIQA, "label": 1}]))
        self.assertEqual(self.run_script("piqa", array), [line])
        self.assertIn(says("choices.labels", labels=1, questions=2), self.run_script(
            "piqa", self.file("b.jsonl", PIQA, PIQA), "--labels", labels))

    def test_winogrande_scores_what_follows_each_option(self):
        self.assertEqual(self.run_script("winogrande", self.file("a.jsonl", WINOGRANDE)), [
            {"id": "3",
             "choice_contexts": ["Sarah was better than Maria so Sarah ",
                                 "Sarah was better than Maria so Maria "],
             "choices": ["got the easy cases.", "got the easy cases."], "label": 1}])

    def test_mmlu_of_rows_and_of_csv(self):
        start = "The following are multiple choice questions (with answers) about human aging.\n\n"
        asked = ("What is the embryological origin of the hyoid bone?\nA. first\nB. second\n"
                 "C. third\nD. fourth\nAnswer:")
        line = {"id": "0", "context": start + asked + " ", "choices": list("ABCD"), "label": 3}
        self.assertEqual(self.run_script("mmlu", self.file("a.jsonl", MMLU)), [line])
        row = " What is the embryological origin of the hyoid bone? ,first,second,third,fourth,D\n"
        test = self.file("human_aging_test.csv", row)
        self.assertEqual(self.run_script("mmlu", test), [line])
        dev = self.file("human_aging_dev.csv", '"Two, or\nmore?",1,2,3,4,B\n', "Why?,a,b,c,d,A\n")
        found = self.run_script("mmlu", test, "--shots", "1", "--examples", dev)
        self.assertEqual(found[0]["context"],
                         start + "Two, or\nmore?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: B\n\n" + asked + " ")
        self.assertIn(says("choices.few_of_subject", count=2, subject="human_aging"),
                      self.run_script("mmlu", test, "--shots", "3", "--examples", dev))

    def test_texts_and_examples_are_lm_evals(self):
        for number, case in enumerate(json.loads(TEXTS.read_text())["cases"]):
            asked = self.file("asked.jsonl", *case["asked"])
            options = ["--shots", str(case["shots"]), "--examples",
                       self.file("train.jsonl", *case["examples"])]
            found = self.run_script(case["task"], asked, *options)
            self.assertEqual(len(found), len(case["expected"]), found)
            for line, pairs in zip(found, case["expected"]):
                contexts = line.get("choice_contexts") or [line["context"]] * len(line["choices"])
                # lm_eval has the delimiter in front of the choice.
                self.assertEqual([[context[:-1], context[-1] + choice] for context, choice
                                  in zip(contexts, line["choices"])], pairs, f"case {number}")

    def test_winograndes_examples_have_the_right_option(self):
        file = self.file("a.jsonl", WINOGRANDE)
        train = self.file("t.jsonl", {**WINOGRANDE, "qID": "7"}, {**WINOGRANDE, "qID": "8"})
        found = self.run_script("winogrande", file, "--shots", "1", "--examples", train)
        self.assertEqual(found[0]["choice_contexts"][0],
                         "Sarah was better than Maria so Maria got the easy cases.\n\n"
                         "Sarah was better than Maria so Sarah ")

    def test_what_is_no_question_is_refused_by_file_and_row(self):
        bad = self.file("a.jsonl", PIQA)
        self.assertIn(f"{bad}: row 0: {says('choices.no_question', task='piqa')}: KeyError: 'label'",
                      self.run_script("piqa", bad))
        self.assertIn("line 2", self.run_script("piqa", self.file("b.jsonl", ARC, "{\n")))
        hidden = self.file("c.jsonl", {**HELLASWAG, "label": ""})
        self.assertIn("row 0", self.run_script("hellaswag", hidden))
        self.assertIn(says("choices.ending"),
                      self.run_script("arc", self.file("d.txt", "x")))
        few = self.file("e.jsonl", *[{**PIQA, "label": 0}] * 3)
        self.assertIn(says("choices.few", count=0),
                      self.run_script("piqa", few, "--shots", "2", "--examples", few))

    def refused(self, what, task, name, *rows, encoded=None):
        """By one line, and no file is written or changed."""
        out = self.root / "out.jsonl"
        out.write_text("before")
        file = self.file(name, *rows)
        if encoded is not None:
            pathlib.Path(file).write_bytes(encoded)
        done = subprocess.run([sys.executable, "-B", SCRIPT, task, file, "--out", out],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn(what.format(file=file), done.stderr)
        self.assertEqual([p.name for p in self.root.glob("out*")], ["out.jsonl"])
        self.assertEqual(out.read_text(), "before")

    def test_files_that_are_wrong_are_refused_by_line(self):
        for answer in ("", "BC", "E"):
            self.refused("{file}: row 1: " + says("choices.no_question", task="mmlu"), "mmlu", "anatomy_test.csv",
                         f"Why?,1,2,3,4,A\nWhy?,1,2,3,4,{answer}\n")
        self.refused("{file}: line 2: " + says("choices.columns", found=5, count=6), "mmlu", "a_test.csv",
                     "Why?,1,2,3,4,A\nWhy?,1,2,3,A\n")
        self.refused("{file}: " + says("choices.empty"), "mmlu", "a.csv", "")
        self.refused("{file}: " + says("choices.empty"), "arc", "a.jsonl", "\n\n")
        self.refused("{file}: Expecting value: line 1 column 9", "arc", "a.json", '[{"id": }]')
        self.refused("{file}: line 1: " + says("choices.no_array"), "arc", "a.json", json.dumps(ARC))
        self.refused("{file}: row 0: " + says("pack.no_object"), "arc", "a.jsonl", "[1]\n")
        for name in ("a.jsonl", "a.json", "a.csv"):
            self.refused("{file}: line 2: " + says("choices.not_unicode", byte=4), "arc", name,
                         encoded=b"[1]\n\xff")
        self.refused("{file}: row 0: " + says("choices.no_question", task="piqa"), "piqa", "a.jsonl",
                     {**PIQA, "sol1": 1, "label": 0})

    def test_half_pairs_end_nothing_and_are_counted(self):
        rows = [{**PIQA, "goal": "a\ud800", "label": 0, "score": float("nan")}, {**PIQA, "label": 1}]
        file, out = self.file("a.jsonl", *rows), self.root / "out.jsonl"
        done = subprocess.run([sys.executable, "-B", SCRIPT, "piqa", file, "--out", out],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(says("choices.surrogates", count=1), done.stderr)
        first = json.loads(out.read_text(encoding="utf-8").splitlines()[0])
        self.assertIn("a\ufffd", first["context"])

    def test_an_output_that_cannot_be_written_is_refused(self):
        file = self.file("a.jsonl", ARC)
        done = subprocess.run([sys.executable, "-B", SCRIPT, "arc", file, "--out",
                               self.root / "none" / "out"], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)


if __name__ == "__main__":
    unittest.main()
