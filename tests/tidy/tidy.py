#!/usr/bin/env python3
"""The rules of the repository that no compiler checks.

Every rule is a function from a Tree to the problems it finds, each one line: where, and what to do.
Run by ctest through tidy_test.py, or by hand: tests/tidy/tidy.py [folder]
"""
import pathlib
import re
import sys
import urllib.parse

import function_lengths
import retired_words

TOP_LEVEL = {"src", "memory", "swap", "recompute", "pipeline", "allreduce", "bindings", "tests",
             "benchmarks"}
LINE_LIMIT, FUNCTION_LIMIT, HEADER_LIMIT = 120, 70, 250
DRAWER = re.compile(r"(^|_)(utils?|common|misc|helpers?|stuff|manager[0-9]+)(_|$)")
CPP = {".h", ".hpp", ".cpp", ".cc", ".c", ".cu", ".cuh"}
HEADER = {".h", ".hpp", ".cuh"}
CODE = CPP | {".py", ".sh", ".cmake"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]', re.MULTILINE)
CPP_SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(")
PYTHON_SLEEP = re.compile(r"\btime\.sleep\b|\bfrom time import.*\bsleep\b")
FENCED = re.compile(r"^ *(```+|~~~+).*?^ *\1", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
LINK = re.compile(r"\]\((?:<([^<>\n]*)>|((?:[^()\n]|\([^()\n]*\))*?))(?: +(?:\"[^\"\n]*\"|'[^'\n]*'))?\)")
TODO = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?:\([^)]*\))?:?[ \t]*(.*)")
MERGE_MARK = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)

# Who may include what: the header, its homes, and whether a public header may show it.
EMULATED_CUDA = ("tests/support/emulated_cuda", "tests/emulated_cuda", "tests/emulated_operators")
TORCH_HOMES = ("recompute", "pipeline", "bindings",
               "tests/recompute", "tests/pipeline", "tests/bindings", "tests/downstream",
               "tests/allreduce/torch", "tests/gpu", *EMULATED_CUDA,
               "benchmarks/what_does_interception_cost",
               "benchmarks/do_steps_follow_their_schedule",
               "benchmarks/what_does_ownership_cost",
               "benchmarks/does_it_reach_what_karma_claims")
GPU_BENCHMARK = "benchmarks/what_does_mapping_cost_on_a_gpu"
HOMES = [
    ("CUDA", re.compile(r"^(cuda|cu(blas|rand|fft|solver|sparse|file|dnn)|nvToolsExt|nvtx3/|nccl\.h)"),
     ("src/device/cuda", "bindings/torch_cuda", "tests/device/cuda", "tests/memory/cuda", "tests/bindings/torch_cuda",
      "tests/gpu", *EMULATED_CUDA, GPU_BENCHMARK)),
    ("LibTorch's CUDA part", re.compile(r"^(c10/cuda|ATen/cuda|torch/csrc/cuda)/"),
     ("bindings/torch_cuda", "tests/bindings/torch_cuda", *EMULATED_CUDA)),
    ("LibTorch", re.compile(r"^(torch|ATen|c10|caffe2)/"), TORCH_HOMES),
    ("hwloc", re.compile(r"^hwloc(/|\.h)"), ("src/topology",)),
    ("Clp", re.compile(r"^coin/"), ("src/planner/clp",)),
    ("MPI", re.compile(r"^mpi(-ext)?\.h$"), ("src/transport/mpi", "tests/transport")),
    ("liburing", re.compile(r"^liburing"), ("swap/store/io_uring",)),
    ("spdlog", re.compile(r"^(spdlog|fmt)/"), ("src/base",)),
    ("CLI11", re.compile(r"^CLI/"), ("bindings", "benchmarks")),
    ("GoogleTest", re.compile(r"^(gtest|gmock)/"), ("tests",)),
    ("Google Benchmark", re.compile(r"^benchmark/"), ("benchmarks",)),
    ("nifti", re.compile(r"^(nifti/|nifti1)"), ("bindings/examples", "tests/bindings")),
    ("turbojpeg", re.compile(r"^(turbojpeg|jpeglib)"), ("bindings/examples", "tests/bindings")),
]
NEVER_PUBLIC = re.compile(r"^(cuda|nccl|cufile|hwloc|coin/|mpi\.h|liburing|spdlog/|fmt/|nlohmann/|CLI/|gtest/"
                          r"|gmock/|benchmark/|xxhash|nifti|turbojpeg|jpeglib)")


# The decider and what it plans from are functions of their arguments: the same input, the same output, anywhere.
PURE = ("src/planner", "src/profile")
IMPURE_HEADER = re.compile(r"^(fstream|iostream|filesystem|thread|mutex|shared_mutex|condition_variable|future"
                           r"|ctime|(time|fcntl|pthread|unistd)\.h|sys/.*)$")
IMPURE_WORD = re.compile(r"\b(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday|getenv"
                         r"|random_device|f(?:re)?open|thread_local)\b")


class Tree:
    """The files below a folder, without what is built or hidden."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.folders = sorted(entry.name for entry in self.root.iterdir()
                              if entry.is_dir() and not entry.name.startswith("."))
        self.files = sorted(path for path in self.walk(self.root) if path.is_file())

    def walk(self, folder):
        for entry in folder.iterdir():
            if entry.name.startswith(".") or entry.name == "__pycache__":
                continue
            if entry.is_dir() and not entry.is_symlink():
                if not (folder == self.root and entry.name == "build"):
                    yield from self.walk(entry)
            else:
                yield entry

    def name(self, path):
        return path.relative_to(self.root).as_posix()

    def of(self, suffixes):
        return [path for path in self.files if path.suffix in suffixes]

    def code(self):
        return [path for path in self.files
                if path.suffix in CODE or path.name == "CMakeLists.txt"]


def text_of(path):
    return path.read_text(encoding="utf-8")


def is_below(name, folders):
    return any(name == folder or name.startswith(folder + "/") for folder in folders)


def is_public_header(name):
    return "/include/" in "/" + name


def lines_are_short(tree):
    for path in tree.code():
        for number, line in enumerate(text_of(path).splitlines(), 1):
            if len(line) > LINE_LIMIT:
                yield f"{tree.name(path)}:{number}: {len(line)} columns, limit {LINE_LIMIT}"


def functions_are_short(tree):
    for path in tree.of(CPP | {".py"}):
        find = function_lengths.python_functions if path.suffix == ".py" else (
            function_lengths.cpp_functions)
        for line, length, head in find(text_of(path)):
            if length > FUNCTION_LIMIT:
                yield f"{tree.name(path)}:{line}: {length} lines, limit {FUNCTION_LIMIT}: {head}"


def headers_are_short(tree):
    for path in tree.of(HEADER):
        length = len(text_of(path).splitlines())
        if length > HEADER_LIMIT:
            yield f"{tree.name(path)}: {length} lines, limit {HEADER_LIMIT} for a header"


def headers_are_guarded(tree):
    for path in tree.of(HEADER):
        if "#pragma once" not in text_of(path):
            yield f"{tree.name(path)}: no #pragma once"


def names_say_what_is_inside(tree):
    for path in tree.files:
        for part in path.relative_to(tree.root).parts:
            if DRAWER.search(part.partition(".")[0].lower()):
                yield f"{tree.name(path)}: '{part}' is a drawer; name what is inside"


def files_are_text(tree):
    """What was built or downloaded has no place among the sources."""
    for path in tree.files:
        name = tree.name(path)
        if path.suffix == ".gz" and name.startswith("benchmarks/"):
            continue  # Recorded data.
        with path.open("rb") as file:
            if b"\0" in file.read(4096):
                yield f"{name}: is no text; keep it elsewhere"


def top_level_is_fixed(tree):
    for folder in tree.folders:
        if folder not in TOP_LEVEL and folder != "build":
            yield f"{folder}/: no such top-level folder; there are {', '.join(sorted(TOP_LEVEL))}"


def includes_stay_at_home(tree):
    for path in tree.of(CPP):
        name = tree.name(path)
        for header in INCLUDE.findall(text_of(path)):
            for what, pattern, homes in HOMES:
                if pattern.search(header):
                    if not is_below(name, homes):
                        yield f"{name}: includes {header}; {what} lives in {', '.join(homes)} only"
                    break


def planning_is_pure(tree):
    for path in tree.of(CPP):
        name = tree.name(path)
        if not is_below(name, PURE):
            continue
        text = text_of(path)
        found = [f"includes {header}" for header in INCLUDE.findall(text) if IMPURE_HEADER.search(header)]
        found += [f"says {word}" for word in IMPURE_WORD.findall(function_lengths.without_text(text))]
        for what in found:
            yield f"{name}: {what}; {', '.join(PURE)} have no I/O, clock, threads or environment: make it an argument"


def cuda_sources_stay_at_home(tree):
    for path in tree.of({".cu", ".cuh"}):
        if not is_below(tree.name(path), ("src/device/cuda", "tests/device/cuda", GPU_BENCHMARK)):
            yield f"{tree.name(path)}: CUDA sources live in src/device/cuda and its tests and benchmark only"


def public_headers_show_no_third_party(tree):
    for path in tree.of(HEADER):
        name = tree.name(path)
        if is_public_header(name):
            for header in INCLUDE.findall(text_of(path)):
                if NEVER_PUBLIC.search(header):
                    yield f"{name}: a public header includes {header}; move it into the .cpp"


def public_headers_match_their_folder(tree):
    for path in tree.of(HEADER):
        folder, found, rest = tree.name(path).partition("/include/")
        if not found or folder.startswith(("bindings/", "tests/")):
            continue
        wanted = "spillway/" + folder.removeprefix("src/") + "/"
        if not rest.startswith(wanted):
            yield f"{tree.name(path)}: public headers of {folder} belong in include/{wanted}"


def torch_is_linked_at_home(tree):
    for path in tree.files:
        name = tree.name(path)
        if path.name != "CMakeLists.txt" or name == "CMakeLists.txt":
            continue
        code = re.sub(r"#.*", "", text_of(path))
        if re.search(r"\bspillway_torch\b", code) and not is_below(name, TORCH_HOMES):
            yield f"{name}: links spillway_torch; LibTorch lives in {', '.join(TORCH_HOMES)} only"


def todos_have_a_text(tree):
    for path in tree.code():
        if path.parent.name == "tidy":
            continue  # the rule itself has to spell the word
        for number, line in enumerate(text_of(path).splitlines(), 1):
            found = TODO.search(line)
            if found and len(found.group(1).strip()) < 10:
                yield f"{tree.name(path)}:{number}: say what is to be done, or do it"


def folders_have_a_readme(tree):
    for path in tree.files:
        name = tree.name(path)
        if path.name == "CMakeLists.txt" and not name.startswith("tests/"):
            if not (path.parent / "README.md").is_file():
                yield f"{tree.name(path.parent)}/: has a CMakeLists.txt but no README.md"


def anchors_of(page):
    """The fragments by which a page's headings are linked, as GitHub makes them: equal ones are numbered."""
    anchors = {}
    # Fences only: code in a heading is part of its name.
    for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", page), re.MULTILINE):
        name = anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        while anchor in anchors:
            anchors[name] += 1
            anchor = f"{name}-{anchors[name]}"
        anchors[anchor] = 0
    return anchors.keys()


def targets_of(page):
    """Where a page's links lead, and whether a space keeps one from being a link: [a](b.md "c"), [a](<b c.md>)."""
    for in_angles, bare in LINK.findall(SPAN.sub("", FENCED.sub("", page))):
        yield in_angles or bare, " " in bare


def links_lead_somewhere(tree):
    for path in tree.of({".md"}):
        for target, is_broken in targets_of(text_of(path)):
            place, _, anchor = urllib.parse.unquote(target).partition("#")
            page = path.parent / place if place else path
            shown = page / "README.md" if page.is_dir() else page
            if is_broken:
                yield f"{tree.name(path)}: '{target}' has a space and is no link; write <{target}>"
            elif re.match(r"[a-z]+:", target):
                continue
            elif not page.exists():
                yield f"{tree.name(path)}: links to {target}, which is not there"
            elif anchor and shown.suffix == ".md" and anchor not in anchors_of(text_of(shown)):
                yield f"{tree.name(path)}: links to {target}, a heading that is not there"


def tests_do_not_sleep(tree):
    for path in tree.of(CPP | {".py"}):
        if not tree.name(path).startswith("tests/"):
            continue
        text, calls = text_of(path), PYTHON_SLEEP  # Also those of programs in its strings.
        if path.suffix in CPP:
            text, calls = function_lengths.without_text(text), CPP_SLEEP
        for number, line in enumerate(text.splitlines(), 1):
            if calls.search(line):
                yield f"{tree.name(path)}:{number}: sleeps; use a manual clock or a sequence point"


def kept_texts_have_a_test(tree):
    """Each part of a told.txt (tests/support/golden_part.h); the test tells of a part that it lacks."""
    for path in tree.files:
        if path.name != "told.txt":
            continue
        folder = path.parents[1]
        sources = "".join(text_of(source) for source in folder.iterdir() if source.suffix in {".cpp", ".h", ".py"})
        for suite, case in re.findall(r"(?m)^== (?:\w+/)?(\w+)\.(\w+)", text_of(path)):
            if f"({suite}, {case})" not in sources and f"def {case}(" not in sources:
                yield f"{tree.name(path)}: no test is named {suite}.{case} any more; take its part out"


def merges_leave_no_marks(tree):
    """A line of ======= alone is none: it underlines headings, too."""
    for path in tree.files:
        for mark in MERGE_MARK.finditer(path.read_bytes()):
            number = mark.string.count(b"\n", 0, mark.start()) + 1
            yield f"{tree.name(path)}:{number}: a conflict that a merge has left; resolve it"


def products_do_not_link_tests(tree):
    for path in tree.files:
        name = tree.name(path)
        if path.name == "CMakeLists.txt" and not name.startswith(("tests/", "benchmarks/")):
            if re.search(r"\bspillway(::|_)test_support\b|\bGTest::", text_of(path)):
                yield f"{name}: a product target links test code"


def retired_words_are_gone(tree):
    """Also from the names of files."""
    for path in tree.files:
        name = tree.name(path)
        if name.startswith(retired_words.UNREAD) or path.suffix not in retired_words.READ:
            continue
        for _, word, say in retired_words.used(name.replace("/", " ").replace(".", " ")):
            yield f"{name}: '{word}' in its name is retired; say: {say}"
        for number, word, say in retired_words.used(text_of(path)):
            yield f"{name}:{number}: '{word}' is retired; say: {say}"


RULES = [
    lines_are_short, functions_are_short, headers_are_short, headers_are_guarded,
    names_say_what_is_inside, files_are_text, top_level_is_fixed, includes_stay_at_home, planning_is_pure,
    cuda_sources_stay_at_home,
    public_headers_show_no_third_party, public_headers_match_their_folder, torch_is_linked_at_home,
    todos_have_a_text, folders_have_a_readme, links_lead_somewhere, tests_do_not_sleep,
    kept_texts_have_a_test, merges_leave_no_marks, products_do_not_link_tests, retired_words_are_gone,
]


def main(arguments):
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parents[2]
    tree = Tree(root)
    problems = [(rule.__name__, problem) for rule in RULES for problem in rule(tree)]
    for rule, problem in problems:
        print(f"{problem}  [{rule}]")
    print(f"{len(tree.files)} files, {len(RULES)} rules, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
