#!/usr/bin/env python3
"""Checks rules for sources that no compiler checks: CHECKS lists them.

usage: structure.py [--lines] [ROOT]

Prints one line per fault. Exits with 1 if there is a fault. GRAPH is the graph of folders: a folder may include those
that it stands on, and all that these stand on. Its library is linked to theirs.
--lines prints the number of lines of each folder, without checks.
"""

import pathlib
import re
import subprocess
import sys

# Each folder that is a library, and the folders that it stands on directly. A folder within another is a separate
# library; the outer library has only the files directly in its folder.
GRAPH = {
    "core": [],
    "core/system": ["core"],
    "kernels": ["core"],
    "dist/topology": ["core"],
    "dist": ["core/system", "kernels", "dist/topology"],
    "dist/job": ["dist"],
    "dist/job/supervise": ["dist/job"],
    "model": ["dist"],
    "data": ["core"],
    "data/tokenizer": ["data"],
    "data/remote": ["data"],
    "data/pack": ["data/tokenizer", "data/remote"],
    "checkpoint": ["dist/job"],
    "train": ["model", "data", "checkpoint"],
    "train/step": ["train"],
    "train/observe": ["train/step", "data/remote"],
    "train/interop": ["train/step", "data/tokenizer", "data/remote"],
    "train/infer": ["train/interop"],
    "train/run": ["train/observe", "train/interop"],
    "launch/plan": ["train/run"],
    "launch/preflight": ["launch/plan"],
    "launch/report": ["train/observe"],
    "launch/watch": ["launch/report", "data/tokenizer"],
    "launch/supervise": ["dist/job/supervise", "train/run"],
    "launch": ["launch/plan", "launch/preflight", "launch/watch", "launch/supervise", "train/infer", "data/pack"],
}
LIBRARY = {folder: "lockstep_" + folder.replace("/", "_") for folder in GRAPH}
LIBRARIES = {library: folder for folder, library in LIBRARY.items()}
HEADERS = (".h", ".cuh")
SOURCES = (".h", ".cpp", ".cu", ".cuh")
# These two headers bracket code for one instruction set. They and the headers that the first includes have no guard.
BRACKETS = ("kernels/cpu_begin.h", "kernels/cpu_end.h")
# These libraries are slow to compile and to check, so one source file includes each.
SINGLE = {"toml++/": "toml++", "nlohmann/": "nlohmann", "CLI/": "CLI11", "xxhash.h": "xxHash", "openssl/": "OpenSSL",
          "pcre2.h": "PCRE2", "utf8proc.h": "utf8proc", "zlib.h": "zlib", "zstd.h": "libzstd",
          "curl/": "libcurl",
          "cudnn_frontend": "cuDNN's frontend"}
DEVICE_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|nccl|nvml|nvtx|mpi)", re.IGNORECASE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LINK = re.compile(r"target_link_libraries\(\s*(\w+)([^)]*)\)")
# Code writes a member of JSON as `.set("name", `, as `line.add("name", `, as `{"name", value}` of a Json::Object, or
# within a text as `"name": `.
MEMBER = re.compile(r'\.set\(\s*"(\w+)"|\bline\.add\(\s*"(\w+)"|\\"(\w+)\\": ')
OBJECT = re.compile(r"\bObject\{(?=\{)")
PAIR = re.compile(r'\{\s*"(\w+)",')
# These match definitions of types, and begin and end of namespaces: clang-format puts all in the first column.
TYPE = re.compile(r"^(?:class|struct|union|enum(?: class)?) (?:alignas\(\w+\) )?(\w+)(?: final)?\s*(?::[^;{]*)?\{", re.MULTILINE)
NAMESPACE = re.compile(r"^((?:inline )?namespace [\w:]+) \{|^(\})  // namespace", re.MULTILINE)
# These match the metrics for Prometheus, the members of metrics.jsonl, and the components that name some of both.
METRIC = re.compile(r'\btext\.(?:gauge|counter)s?\(\s*"(\w+)"')
LINE_MEMBER = re.compile(r'\bline\.add\("(\w+)"')
STEP_METRIC = re.compile(r'^ *X\((\w+), [^"]*"[^"]*", "(\w*)"', re.MULTILINE)  # member, name for Prometheus
COMPONENTS = re.compile(r"enum class Component\b[^{]*\{([^}]*)\}")
# These files write only messages between ranks of one program, which no file keeps.
MESSAGES = ("checkpoint/all_ranks.cpp", "checkpoint/background_copies.cpp", "checkpoint/checkpoint_copier.cpp",
            "checkpoint/partners.cpp", "dist/job/agent_socket.cpp", "dist/job/supervise/messages.cpp",
            "launch/preflight/health.cpp", "train/run/replay.cpp")
MOST_BYTES = 1 << 20
# THREAD matches starts of threads without start_thread() or start_task(), whose errors have a remedy. THREADS may
# have such starts.
THREAD = re.compile(r"std::(?:thread|async)\(|\bthread_\(\[|\b(?:threads_?|workers)\.(?:emplace|push)_back\((?!start_)")
THREADS = ("core/start_thread.h", "core/thread_pool.cpp")
# These headers declare functions of a verb for its tests. launch/verb.h declares the verb itself.
SEAM = re.compile(r"launch/\w+_verb\.h")
# The expression is split, so that this file has no path that it matches.
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|root(?!/[.]ssh)|farm|home/\w+)/" + r"|\.\./shared\b")


def below(folder):
    """Returns every folder that `folder` may include: itself and all that it stands on, directly or not."""
    allowed = {folder}
    for direct in GRAPH[folder]:
        allowed |= below(direct)
    return allowed


def folder_of(name):
    """Returns the innermost folder of GRAPH that holds a file; if there is none, its outermost folder."""
    for folder in map(str, pathlib.PurePosixPath(name).parents):
        if folder in GRAPH:
            return folder
    return name.split("/")[0]


def sources(root):
    for top in dict.fromkeys([*(folder.split("/")[0] for folder in GRAPH), "tests"]):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES:
                yield folder_of(path.relative_to(root).as_posix()), path


def check_includes(root):
    """Folders include along the graph, root-relative; headers stay free of device libraries."""
    for folder, path in sources(root):
        text = path.read_text(encoding="utf-8", errors="replace")
        name = path.relative_to(root)
        if "simt/include" in path.as_posix():
            continue  # these headers replace those of CUDA
        for quote, target in INCLUDE.findall(text):
            first = folder_of(target)
            is_own = first in GRAPH and target.endswith(".h")
            if path.suffix == ".h" and not is_own and DEVICE_HEADER.match(target.split("/")[-1]):
                yield f"{name}: a header includes <{target}>; forward-declare the handle"
            if quote != '"':
                if is_own:
                    yield f"{name}: <{target}> is a file of the repository; include it in quotes"
                continue
            if "/" not in target:
                yield f'{name}: "{target}" is not relative to the root of the repository'
            elif folder in GRAPH and first not in below(folder):
                allowed = ", ".join(sorted(below(folder)))
                yield f'{name}: {folder}/ includes "{target}", but may include only {allowed}'


def check_links(root):
    """CMake links the same graph: exactly the direct edges, with one library per folder."""
    for folder, direct in GRAPH.items():
        path = root / folder / "CMakeLists.txt"
        text = re.sub(r"#.*", "", path.read_text()) if path.is_file() else ""
        if f"lockstep_library({folder}" not in text:
            if any((root / folder).glob("*.cpp")):
                yield f"{folder}/CMakeLists.txt: no lockstep_library({folder} ...)"
            continue
        linked = set()
        for target, arguments in LINK.findall(text):
            libraries = {LIBRARIES[name] for name in re.findall(r"\blockstep_\w+", arguments) if name in LIBRARIES}
            if LIBRARIES.get(target) == folder:
                linked |= libraries
            elif not libraries <= below(folder):
                yield f"{folder}/CMakeLists.txt: {target} links {', '.join(sorted(libraries))}"
        if linked != set(direct):
            yield (f"{folder}/CMakeLists.txt: {LIBRARY[folder]} links {sorted(linked)}, "
                   f"expected {sorted(direct)}, as in GRAPH")


def stem(name):
    """Returns the name of a source without its kind: kernels/gelu for kernels/gelu_cpu.cpp."""
    return re.sub(r"(_none|_cpu|_cuda)?\.\w+$", "", name)


def check_used(root):
    """Another file of the product includes each header of the product. A header that only tests use is in tests/."""
    users = {}
    for folder, path in sources(root):
        if folder != "tests":
            name = path.relative_to(root).as_posix()
            for _, target in INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
                users.setdefault(target, set()).add(stem(name))
    for folder, path in sources(root):
        name = path.relative_to(root).as_posix()
        if folder != "tests" and path.suffix in HEADERS and users.get(name, set()) == {stem(name)}:
            if not SEAM.fullmatch(name):
                yield f"{name}: the product includes it only in {stem(name)}*; move what only tests use to tests/"


def check_map(root):
    """The tables of folders and the drawing in ARCHITECTURE.md equal the graph."""
    page = root / "ARCHITECTURE.md"
    if not page.is_file():
        return
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+)/` \| ((?:`[\w/]+`(?:, )?)*) *\|", text, re.MULTILINE)
    tables = {folder: re.findall(r"`([\w/]+)`", on) for folder, on in rows}
    nodes = dict(re.findall(r'^ *(\w+)\["([\w/]+)"\]$', text, re.MULTILINE))
    drawing = {folder: [] for folder in nodes.values()}
    for on, folder in re.findall(r"^  ([\w &]+) --> (\w+)$", text, re.MULTILINE):
        drawing.setdefault(nodes.get(folder, folder), []).extend(nodes.get(node, node) for node in on.split(" & "))
    for part, said in (("tables", tables), ("drawing", drawing)):
        for folder in sorted(said.keys() | GRAPH.keys()):
            if sorted(said.get(folder, ["not there"])) != sorted(GRAPH.get(folder, ["no library"])):
                yield (f"ARCHITECTURE.md, {part}: {folder} stands on {said.get(folder, ['not there'])}, "
                       f"expected {GRAPH.get(folder, 'no library')}, as in GRAPH")


def check_excerpts(root):
    """The last .cpp that docs/training_step.md names before an excerpt of C++ has its lines.

    A line `// ...` marks omitted lines.
    """
    page = root / "docs" / "training_step.md"
    if not page.is_file():
        return
    text = page.read_text(encoding="utf-8")
    for excerpt in re.finditer(r"^```cpp\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        named = [name for name in re.findall(r"`([\w/]+\.cpp)`", text[:excerpt.start()]) if (root / name).is_file()]
        source = (root / named[-1]).read_text(encoding="utf-8") if named else ""
        for part in re.split(r"^ *// \.\.\.\n", excerpt[1], flags=re.MULTILINE):
            if part not in source:
                yield (f"docs/training_step.md: {named[-1] if named else 'no source'}, the last source named before it, "
                       f"does not have these lines in a row: {part.strip().splitlines()[0].strip()} ...")


def check_single(root):
    """One .cpp, and no header, includes each library of SINGLE."""
    for prefix, library in SINGLE.items():
        users = [path.relative_to(root) for _, path in sources(root)
                 if any(target.startswith(prefix) for _, target in
                        INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")))]
        for path in users:
            if path.suffix in HEADERS:
                yield f"{path}: a header includes {library}"
        if len(users) != 1:
            places = ", ".join(map(str, users)) or "no file"
            yield f"{library}: expected one .cpp that includes it, got {places}"


def check_text(root):
    """Sources are ASCII, headers have guards, and each open task has the number of an issue."""
    begin = root / BRACKETS[0]
    inside = INCLUDE.findall(begin.read_text()) if begin.is_file() else []
    brackets = {*BRACKETS, *(target for _, target in inside)}
    for _, path in sources(root):
        name = path.relative_to(root)
        data = path.read_bytes()
        for number, line in enumerate(data.split(b"\n"), 1):
            if not line.isascii():
                yield f"{name}:{number}: not ASCII"
            if re.search(rb"\b(TODO|FIXME|XXX)\b(?!\(#\d)", line):
                yield f"{name}:{number}: a task without the number of an issue"
        guarded = re.search(rb"^#pragma once$", data, re.MULTILINE) or str(name) in brackets
        if path.suffix in HEADERS and not guarded:
            yield f"{name}: no #pragma once"


def types_defined(text):
    """Yields each class, struct, union and enum that a header defines, with its namespace."""
    for match in TYPE.finditer(text):
        inside = []
        for opens, closes in NAMESPACE.findall(text[:match.start()]):
            if closes:
                inside = inside[:-1]
            else:
                inside.append(opens.split()[-1])
        yield "::".join([*inside, match.group(1)])


def check_types(root):
    """No two headers of the product define the same type of a namespace, because a program may include both."""
    first = {}
    for folder, path in sources(root):
        if folder == "tests" or path.suffix not in HEADERS:
            continue
        name = path.relative_to(root)
        for defined in types_defined(path.read_text(encoding="utf-8", errors="replace")):
            if first.setdefault(defined, name) != name:
                yield f"{name}: defines {defined}, which {first[defined]} defines too"


def tracked(root):
    """Returns the files that git tracks; outside a checkout (a release archive) all files."""
    done = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    if done.returncode == 0 and done.stdout:
        return [root / name for name in done.stdout.decode().split("\0") if name]
    skipped = {"build", "datasets", "runs", "install", ".git"}
    return [path for path in root.rglob("*")
            if path.is_file() and path.relative_to(root).parts[0] not in skipped]


def check_paths(root):
    """No file names a path that exists only on one machine."""
    for path in tracked(root):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8", errors="replace").split("\n"), 1):
            if MACHINE_PATH.search(line):
                yield f"{path.relative_to(root)}:{number}: a path of one machine: {line.strip()}"


def check_sizes(root):
    """No file is as large as a program or a dataset, because the history keeps it forever."""
    for path in tracked(root):
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            yield (f"{path.relative_to(root)}: {path.stat().st_size} bytes, expected at most {MOST_BYTES}; "
                   "let a script make or download it")


def check_threads(root):
    """core/start_thread.h starts all threads. If it cannot start one, its error names the limits."""
    for folder, path in sources(root):
        name = path.relative_to(root).as_posix()
        if folder == "tests" or name in THREADS:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
            if THREAD.search(line):
                yield f"{name}:{number}: starts a thread; use start_thread() or start_task()"


def braced(text, at):
    """Returns the text in braces that starts at `at`."""
    depth = 0
    for end in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0 and text[end] == "}":
            return text[at:end + 1]
    return text[at:]


def written_members(text):
    """Yields the names of members of JSON that a source writes, and their offsets."""
    for match in MEMBER.finditer(text):
        yield next(filter(None, match.groups())), match.start()
    for match in OBJECT.finditer(text):
        for pair in PAIR.finditer(braced(text, match.end() - 1)):
            yield pair.group(1), match.start()


def documented_words(root):
    """Returns the words in backticks and in examples of JSON in docs/, except docs/configuration.md."""
    words = set()
    for page in (root / "docs").glob("*.md"):
        if page.name == "configuration.md":
            continue
        text = page.read_text(encoding="utf-8")
        for quoted in re.findall(r"`([^`]+)`", text):
            words.update(re.findall(r"\w+", quoted))
        for line in text.split("\n"):
            words.update(re.findall(r'"(\w+)":', line))
    return words


def check_json_members(root):
    """docs/ names each member of JSON that the product writes."""
    words = documented_words(root)
    for folder, path in sources(root):
        name = path.relative_to(root)
        if folder == "tests" or name.as_posix() in MESSAGES:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        missing = {}
        for member, at in written_members(text):
            if member not in words:
                missing.setdefault(member, at)
        for member, at in missing.items():
            yield (f"{name}:{text.count(chr(10), 0, at) + 1}: writes a member \"{member}\" of JSON, which docs/ does not "
                   "name; add it in backticks or in an example, as in docs/formats.md")


def listed_names(root, page, heading):
    """Returns the names in backticks of the first column of the tables below a heading, and their lines."""
    path = root / "docs" / page
    names, inside = {}, False
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n") if path.is_file() else [], 1):
        if line.startswith("#"):
            inside = line.strip("# ") == heading
        elif inside and line.startswith("| `"):
            names.update((name, number) for name in re.findall(r"`(\w+)`", line.split("|")[1]))
    return names


def check_lists(root, source, written, page, heading):
    """A source writes exactly the names in the tables below a heading of docs/."""
    listed = listed_names(root, page, heading)
    for name in sorted(written - set(listed)):
        yield f'{source}: writes "{name}", which docs/{page}, "{heading}", does not list'
    for name in sorted(set(listed) - written):
        yield f'docs/{page}:{listed[name]}: lists "{name}", which {source} does not write'


def check_metrics(root):
    """docs/ lists the metrics that train writes, and the dashboard and the alerts query only these."""
    def text_of(name):
        return (root / name).read_text() if (root / name).is_file() else ""
    lines, prometheus = "train/observe/metrics_log.cpp", "train/observe/prometheus.cpp"
    found = COMPONENTS.search(text_of("core/component.h"))
    components = {f"{name}_seconds" for name in re.findall(r"\w+", found.group(1))} if found else set()
    rows = STEP_METRIC.findall(text_of("train/observe/step_metrics.h"))
    members = components | {member for member, _ in rows} | set(LINE_MEMBER.findall(text_of(lines)))
    yield from check_lists(root, lines, members, "formats.md", "metrics.jsonl")
    metrics = {name for _, name in rows if name} | set(METRIC.findall(text_of(prometheus)))
    yield from check_lists(root, prometheus, metrics, "observability.md", "Prometheus and Grafana")
    for path in sorted((root / "launch" / "grafana").glob("*")):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            for name in set(re.findall(r"\blockstep_(\w+)", line)) - metrics:
                yield f"{path.relative_to(root)}:{number}: queries lockstep_{name}, which {prometheus} does not write"


def check_wording(root):
    """A test in Python or shell looks for each phrase of tests/wording.txt."""
    path = root / "tests" / "wording.txt"
    words = {word for test in (root / "tests").rglob("*") if test.suffix in (".py", ".sh")
             for word in re.findall(r"\w+(?:\.\w+)*", test.read_text(encoding="utf-8"))}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n") if path.is_file() else [], 1):
        name, equals, _ = line.partition(" = ")
        if equals and not line.startswith("#") and name not in words:
            yield f"tests/wording.txt:{number}: no test looks for {name}"


CHECKS = [check_excerpts, check_map, check_used, check_types, check_json_members, check_metrics, check_wording, check_includes, check_links, check_single, check_text, check_paths, check_sizes, check_threads]


def faults(root):
    return [fault for check in CHECKS for fault in check(root)]


def print_lines(root):
    lines = dict.fromkeys(GRAPH, 0)
    for folder, path in sources(root):
        if folder in lines:
            lines[folder] += path.read_bytes().count(b"\n")
    for folder, count in lines.items():
        print(f"{folder:18} {count:6}")
    print(f"{'all':18} {sum(lines.values()):6}")


def main():
    arguments = sys.argv[1:]
    wants_lines = "--lines" in arguments
    named = [name for name in arguments if name != "--lines"]
    root = pathlib.Path(named[0] if named else pathlib.Path(__file__).parents[2]).resolve()
    if wants_lines:
        return print_lines(root)
    found = faults(root)
    print("\n".join(found) if found else "structure: no fault")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
