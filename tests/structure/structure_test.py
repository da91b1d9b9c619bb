#!/usr/bin/env python3
"""Each check of structure.py finds its fault in a small tree, and none in a correct tree."""

import pathlib
import tempfile
import unittest

import structure


OBSERVE = ("lockstep_library(train/observe a.cpp)\n"
           "target_link_libraries(lockstep_train_observe PUBLIC lockstep_train_step lockstep_data_remote)\n")


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("core/error.h", "#pragma once\n#include <string>\n")
        self.write("core/error.cpp", '#include "core/error.h"\n' + "".join(
            f"#include <{prefix}>\n" for prefix in structure.SINGLE))
        self.write("core/CMakeLists.txt", "lockstep_library(core error.cpp)\n"
                   "target_link_libraries(lockstep_core PUBLIC Threads::Threads)\n")
        self.write("kernels/gelu.cpp", '#include "core/error.h"\n')
        self.write("kernels/CMakeLists.txt", "lockstep_library(kernels gelu.cpp)\n"
                   "target_link_libraries(lockstep_kernels PUBLIC lockstep_core)\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def expect(self, *words):
        """Expects exactly one fault, with each of `words`."""
        found = structure.faults(self.root)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_correct_tree_has_no_fault(self):
        self.assertEqual(structure.faults(self.root), [])

    def test_a_member_of_json_that_the_documents_do_not_name(self):
        for source in ('json.set("colour", 1);', 'record.set(\n    "colour", 1);', 'line.add("colour", value);',
                       'return Json::Object{{"name", 1},\n  {"colour", Json::Object{{"name", 2}}}};',
                       'text += "\\"colour\\": ";'):
            self.write("docs/formats.md", "`name`, and colour\n\n| `other` |\n")
            self.write("core/json.cpp", "\n" + source)
            self.expect("core/json.cpp:2", '"colour"')
            for named in ("`colour`", "`{colour, x}`", '    {"colour": 1}'):
                self.write("docs/formats.md", f"`name`\n\n{named}\n")
                self.assertEqual(structure.faults(self.root), [], named)

    def test_a_list_of_keys_of_a_configuration_documents_no_member(self):
        self.write("docs/configuration.md", "`colour`\n")
        self.write("core/json.cpp", 'json.set("colour", 1);')
        self.expect("core/json.cpp:1", '"colour"')

    def test_messages_between_ranks_need_not_be_documented(self):
        self.write(structure.MESSAGES[0], 'json.set("colour", 1);')
        self.write("checkpoint/CMakeLists.txt", "lockstep_library(checkpoint all_ranks.cpp)\n"
                   "target_link_libraries(lockstep_checkpoint PUBLIC lockstep_dist_job)\n")
        self.assertEqual(structure.faults(self.root), [])

    def write_metrics(self, metrics, listed, asked="lockstep_loss"):
        self.write("train/observe/prometheus.cpp", "".join(f'text.gauge("{name}", "Help.", 1);\n' for name in metrics))
        self.write("docs/observability.md", "## Prometheus and Grafana\n\n| name | is |\n|---|---|\n" +
                   "".join(f"| `{name}` | `other` |\n" for name in listed) + "\n## Energy\n\n| `else` | |\n")
        self.write("launch/grafana/alerts.yml", f"\nexpr: {asked} > 1\n")
        self.write("train/observe/CMakeLists.txt", OBSERVE)

    def test_metrics_are_those_that_the_documents_list(self):
        self.write_metrics(["loss", "mfu_ratio"], ["loss", "mfu_ratio"])
        self.assertEqual(structure.faults(self.root), [])
        self.write_metrics(["loss", "mfu_ratio"], ["loss"])
        self.expect("train/observe/prometheus.cpp", '"mfu_ratio"', "does not list")
        self.write_metrics(["loss"], ["loss", "mfu_ratio"])
        self.expect("docs/observability.md:6", '"mfu_ratio"', "does not write")

    def test_rows_of_step_metrics_are_members_and_metrics(self):
        self.write_metrics(["loss"], ["loss", "rate"])
        self.write("train/observe/step_metrics.h", '#pragma once\n  X(rate, r.rate, "tag", "rate", "Help.") \\\n'
                   '  X(more, r.more, "", "", "")\n')
        self.write("train/observe/a.cpp", '#include "train/observe/step_metrics.h"\n')
        self.write("docs/formats.md", "### metrics.jsonl\n\n| `rate` | |\n")
        self.expect("train/observe/metrics_log.cpp", '"more"')

    def test_a_dashboard_queries_only_metrics_that_exist(self):
        self.write_metrics(["loss"], ["loss"], "lockstep_los")
        self.expect("launch/grafana/alerts.yml:2", "lockstep_los,")

    def test_members_of_metrics_jsonl_are_those_that_the_documents_list(self):
        self.write("core/component.h", "#pragma once\nenum class Component : int {\n  products,\n  other\n};\n")
        self.write("train/observe/metrics_log.cpp", 'line.add("loss", r.loss);\n')
        self.write("train/observe/CMakeLists.txt", OBSERVE)
        rows = ["| `loss` | nats |\n", "| `products_seconds`, `other_seconds` | s |\n"]
        self.write("docs/formats.md", "### metrics.jsonl\n\n" + "".join(rows))
        self.assertEqual(structure.faults(self.root), [])
        self.write("docs/formats.md", "`other_seconds`\n\n### metrics.jsonl\n\n" + rows[0] + "| `products_seconds` | s |\n")
        self.expect("train/observe/metrics_log.cpp", '"other_seconds"')
        self.write("docs/formats.md", "### metrics.jsonl\n\n" + "".join(rows) + "| `grad_norm` | |\n")
        self.expect("docs/formats.md:5", '"grad_norm"')

    def test_a_phrase_that_no_test_looks_for(self):
        self.write("tests/wording.txt", "# By command\n\na.used = one {step}\na.unused = two\n")
        self.write("tests/a_test.py", 'says("a.used", step=2)\n')
        self.expect("tests/wording.txt:4", "a.unused")
        self.write("tests/a_test.sh", "says out a.unused\n")
        self.assertEqual(structure.faults(self.root), [])

    def test_a_file_that_is_too_large(self):
        self.write("tools/linter", "x" * structure.MOST_BYTES)
        self.assertEqual(structure.faults(self.root), [])
        self.write("tools/linter", "x" * (structure.MOST_BYTES + 1))
        self.expect("tools/linter: 1048577 bytes")

    def test_a_thread_that_is_started_without_start_thread(self):
        for source in ("thread_ = std::thread([] {});", "auto taken =\n    std::async(std::launch::async, act);",
                       "A::A() : thread_([this] { run(); }) {}", "threads.emplace_back(run, rank);"):
            self.write("core/queue.cpp", source)
            self.expect("core/queue.cpp:", "start_thread()")
        self.write("core/queue.cpp", "std::thread thread_;\nstd::thread::id id;\nthreads_.push_back(start_thread(act));\n")
        self.assertEqual(structure.faults(self.root), [])

    def test_an_include_against_the_graph(self):
        self.write("core/tensor.cpp", '#include "kernels/gelu.h"\n')
        self.expect("core/tensor.cpp", "kernels/gelu.h", "may include only core")

    def test_data_may_not_include_kernels(self):
        self.write("data/loader.h", '#pragma once\n#include "kernels/gelu.h"\n')
        self.expect("data/loader.h", "kernels/gelu.h")

    def test_the_engine_may_not_include_its_tests(self):
        self.write("core/tensor.h", '#pragma once\n#include "tests/testing.h"\n')
        self.expect("core/tensor.h", "tests/testing.h")

    def test_a_folder_may_include_only_the_folders_it_stands_on(self):
        self.write("train/run/a.h", "#pragma once\n" + "".join(
            f'#include "{f}/x.h"\n' for f in ("core", "dist/job", "data/remote", "train", "train/observe", "train/run")))
        self.assertEqual(structure.faults(self.root), [])
        for other in ("launch", "launch/plan", "data/pack", "train/infer"):
            self.write("train/run/a.h", f'#pragma once\n#include "{other}/x.h"\n')
            self.expect("train/run/a.h", f"{other}/x.h")
        self.write("train/run/a.h", "#pragma once\n")
        self.write("core/b.h", '#pragma once\n#include "core/system/machine.h"\n')  # the folder within is another one
        self.expect("core/b.h", "core/system/machine.h", "may include only core")

    def test_the_map_is_the_graph(self):
        rows = [f"| `{f}/` | {', '.join(f'`{on}`' for on in below)} | it |\n" for f, below in structure.GRAPH.items()]
        nodes = {f: f.replace("/", "_") for f in structure.GRAPH}
        drawing = "".join(f'    {node}["{f}"]\n' for f, node in nodes.items()) + "".join(
            f"  {' & '.join(nodes[on] for on in below)} --> {nodes[f]}\n" for f, below in structure.GRAPH.items() if below)
        page = "".join(rows) + "\n" + drawing
        self.write("ARCHITECTURE.md", page)
        self.assertEqual(structure.faults(self.root), [])
        for old, new, fault in ((rows[0], "", "tables: core stands on ['not there']"),
                                ("| `data/` | `core` |", "| `data/` | `kernels` |", "tables: data stands on ['kernels']"),
                                ('    core["core"]\n', "", "drawing: core stands on ['not there']"),
                                ("  core --> data\n", "  kernels --> data\n", "drawing: data stands on ['kernels']")):
            self.write("ARCHITECTURE.md", page.replace(old, new))
            self.expect(fault)

    def test_an_include_that_is_not_root_relative(self):
        self.write("tests/x_test.cpp", '#include "testing.h"\n')
        self.expect("tests/x_test.cpp", "testing.h")

    def test_an_own_file_in_angle_brackets(self):
        self.write("kernels/gelu.cpp", "#include <core/error.h>\n")
        self.expect("kernels/gelu.cpp", "<core/error.h>", "quotes")

    def test_a_device_header_in_a_header(self):
        for name in ("cuda_runtime.h", "nccl.h", "mpi.h", "cublasLt.h"):
            self.write("core/stream.h", f"#pragma once\n#include <{name}>\n")
            self.expect("core/stream.h", name)
        self.write("core/stream.h", "#pragma once\n")
        self.write("core/stream.cu", "#include <cuda_runtime.h>\n")
        self.assertEqual(structure.faults(self.root), [])

    def test_a_link_against_the_graph(self):
        self.write("core/CMakeLists.txt", "lockstep_library(core error.cpp)\n"
                   "target_link_libraries(lockstep_core PUBLIC lockstep_kernels)\n")
        self.expect("core/CMakeLists.txt", "kernels")

    def test_a_missing_link(self):
        self.write("kernels/CMakeLists.txt", "lockstep_library(kernels gelu.cpp)\n"
                   "# target_link_libraries(lockstep_kernels PUBLIC lockstep_core)\n")
        self.expect("kernels/CMakeLists.txt", "expected ['core']")

    def test_an_excerpt_is_code(self):
        self.write("core/run.cpp", "void run() {\n  begin();\n  step();\n  end();\n}\n")
        self.write("core/end.cpp", "  end();\n")
        excerpt = "From `core/run.cpp`:\n\n```cpp\n  begin();\n  // ...\n  end();\n```\n"
        self.write("docs/training_step.md", excerpt)
        self.assertEqual(structure.faults(self.root), [])
        for old, new, fault in (("begin();", "begins();", "begins(); ..."), ("  // ...\n", "", "begin(); ..."),
                                (":", ", then `core/end.cpp`:", "core/end.cpp")):
            self.write("docs/training_step.md", excerpt.replace(old, new, 1))
            self.expect("docs/training_step.md", fault)
        self.write("docs/training_step.md", "```cpp\n  begin();\n```\n")
        self.expect("docs/training_step.md", "no source")

    def test_a_header_that_only_tests_include(self):
        self.write("core/toy.h", "#pragma once\n")
        self.write("core/toy.cpp", '#include "core/toy.h"\n')
        self.write("core/toy_none.cpp", '#include "core/toy.h"\n')
        self.write("tests/core/toy_test.cpp", '#include "core/toy.h"\n')
        self.expect("core/toy.h: the product includes it only in")
        self.write("kernels/gelu.cpp", '#include "core/error.h"\n#include "core/toy.h"\n')
        self.assertEqual(structure.faults(self.root), [])

    def test_sources_without_a_library(self):
        self.write("dist/topology/mesh.cpp", "")
        self.expect("dist/topology/CMakeLists.txt", "lockstep_library(dist/topology")

    def test_a_program_may_link_only_the_folders_below(self):
        self.write("core/CMakeLists.txt", "lockstep_library(core error.cpp)\n"
                   "target_link_libraries(tool PRIVATE lockstep_kernels)\n")
        self.expect("tool links kernels")

    def test_a_slow_library_twice(self):
        self.write("core/json.cpp", "#include <nlohmann/json.hpp>\n")
        self.expect("nlohmann", "core/error.cpp", "core/json.cpp")

    def test_a_slow_library_in_a_header(self):
        self.write("core/config.h", "#pragma once\n#include <toml++/toml.h>\n")
        self.write("core/error.cpp", "".join(
            f"#include <{prefix}>\n" for prefix in structure.SINGLE if prefix != "toml++/"))
        self.expect("core/config.h", "toml++")

    def test_a_slow_library_nowhere(self):
        self.write("core/error.cpp", "".join(
            f"#include <{prefix}>\n" for prefix in structure.SINGLE if prefix != "CLI/"))
        self.expect("CLI11", "no file")

    def test_the_brackets_of_an_instruction_set_need_no_guard(self):
        self.write("kernels/cpu_begin.h", '#include "kernels/simd.h"\n')
        self.write("kernels/simd.h", "// no guard\n")
        self.assertEqual(structure.faults(self.root), [])
        self.write("kernels/other.h", "// no guard\n")
        self.expect("kernels/other.h", "pragma once")

    def test_text(self):
        self.write("core/a.cpp", "// caf\u00e9\n")
        self.expect("core/a.cpp:1", "ASCII")
        self.write("core/a.cpp", "// TO" + "DO: later\n")
        self.expect("core/a.cpp:1", "number")
        self.write("core/a.cpp", "// TO" + "DO(#12): later\n")
        self.write("core/b.h", "// nothing\n")
        self.expect("core/b.h", "pragma once")

    def test_a_type_that_two_headers_define(self):
        head = "#pragma once\nnamespace lockstep {\n"
        self.write("core/a.h", head + "class Progress;\nstruct Place {\n  struct Inner {\n  };\n};\n}  // namespace lockstep\n")
        for other in ("struct Place {\n};\n", "class Place final : public Other {\n};\n", "enum class Place : int { here };\n",
                      "namespace cpu {\nclass Stream {\n};\n}  // namespace cpu\nunion Place {\n};\n",
                      "template <class T>\nstruct Place {\n};\n"):
            self.write("kernels/b.h", head + other + "}  // namespace lockstep\n")
            self.expect("kernels/b.h", "lockstep::Place", "core/a.h")
        for other in ("struct Place;\n", "struct Inner {\n};\n", "class Progress {\n};\n",
                      "namespace cpu {\nclass Place {\n};\n}  // namespace cpu\n"):
            self.write("kernels/b.h", head + other + "}  // namespace lockstep\n")
            self.assertEqual(structure.faults(self.root), [], other)
        self.write("tests/b.h", head + "struct Place {\n};\n}  // namespace lockstep\n")
        self.assertEqual(structure.faults(self.root), [])

    def test_a_path_of_one_machine(self):
        self.write("docs/a.md", "see /" + "work/notes\n")
        self.expect("docs/a.md:1", "path of one machine")
        self.write("docs/a.md", "see .." + "/shared/design\n")
        self.expect("docs/a.md:1")
        self.write("docs/a.md", "network/work/ and ${HOME}/work/ are no absolute paths, /root/.ssh is in images\n")
        self.assertEqual(structure.faults(self.root), [])


if __name__ == "__main__":
    unittest.main()
