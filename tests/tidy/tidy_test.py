"""Holds the repository to the rules of tidy.py, and shows of each rule that it can fail."""
import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import check_format
import clang_tidy
import function_lengths
import golden
import retired_words
import tidy

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


class Repository(unittest.TestCase):
    def hold(self, rule):
        problems = list(rule(tidy.Tree(REPOSITORY)))
        self.assertEqual(problems, [], "\n" + "\n".join(problems))

    def test_lines_are_short(self):
        self.hold(tidy.lines_are_short)

    def test_functions_are_short(self):
        self.hold(tidy.functions_are_short)

    def test_headers_are_short(self):
        self.hold(tidy.headers_are_short)

    def test_headers_are_guarded(self):
        self.hold(tidy.headers_are_guarded)

    def test_names_say_what_is_inside(self):
        self.hold(tidy.names_say_what_is_inside)

    def test_files_are_text(self):
        self.hold(tidy.files_are_text)

    def test_top_level_is_fixed(self):
        self.hold(tidy.top_level_is_fixed)

    def test_includes_stay_at_home(self):
        self.hold(tidy.includes_stay_at_home)

    def test_planning_is_pure(self):
        self.hold(tidy.planning_is_pure)

    def test_cuda_sources_stay_at_home(self):
        self.hold(tidy.cuda_sources_stay_at_home)

    def test_public_headers_show_no_third_party(self):
        self.hold(tidy.public_headers_show_no_third_party)

    def test_public_headers_match_their_folder(self):
        self.hold(tidy.public_headers_match_their_folder)

    def test_torch_is_linked_at_home(self):
        self.hold(tidy.torch_is_linked_at_home)

    def test_todos_have_a_text(self):
        self.hold(tidy.todos_have_a_text)

    def test_folders_have_a_readme(self):
        self.hold(tidy.folders_have_a_readme)

    def test_links_lead_somewhere(self):
        self.hold(tidy.links_lead_somewhere)

    def test_tests_do_not_sleep(self):
        self.hold(tidy.tests_do_not_sleep)

    def test_kept_texts_have_a_test(self):
        self.hold(tidy.kept_texts_have_a_test)

    def test_merges_leave_no_marks(self):
        self.hold(tidy.merges_leave_no_marks)

    def test_products_do_not_link_tests(self):
        self.hold(tidy.products_do_not_link_tests)

    def test_retired_words_are_gone(self):
        self.hold(tidy.retired_words_are_gone)


class Rules(unittest.TestCase):
    """Each rule accepts a tree that keeps it and names the file that breaks it."""

    def problems(self, rule, files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = pathlib.Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return list(rule(tidy.Tree(root)))

    def check(self, rule, good, bad):
        self.assertEqual(self.problems(rule, good), [])
        problems = self.problems(rule, bad)
        self.assertEqual(len(problems), len(bad), problems)
        for name in bad:
            self.assertTrue(any(problem.startswith(name.partition("/")[0]) for problem in problems))

    def test_every_rule_is_run_and_shown_to_fail(self):
        names = {rule.__name__ for rule in tidy.RULES}
        for case in (Repository, Rules):
            tested = {method.removeprefix("test_") for method in dir(case)
                      if method.startswith("test_")}
            self.assertLessEqual(names, tested)

    def test_lines_are_short(self):
        self.check(tidy.lines_are_short, {"src/a.cpp": "x" * 120}, {"src/a.cpp": "x" * 121})

    def test_functions_are_short(self):
        self.check(tidy.functions_are_short,
                   {"src/a.cpp": "void f() {\n" + "g();\n" * 68 + "}\n",
                    "src/b.py": "def f():\n" + "    g()\n" * 69},
                   {"src/a.cpp": "void f() {\n" + "g();\n" * 69 + "}\n",
                    "src/b.py": "def f():\n" + "    g()\n" * 70})

    def test_headers_are_short(self):
        self.check(tidy.headers_are_short, {"src/a.h": "\n" * 250}, {"src/a.h": "\n" * 251})

    def test_headers_are_guarded(self):
        self.check(tidy.headers_are_guarded, {"src/a.h": "#pragma once\n"}, {"src/a.h": "int a;\n"})

    def test_names_say_what_is_inside(self):
        self.check(tidy.names_say_what_is_inside,
                   {"src/commonality.h": "", "src/utility_curve.cpp": ""},
                   {"src/common/a.h": "", "src/string_utils.cpp": "", "swap/misc.h": ""})

    def test_files_are_text(self):
        self.check(tidy.files_are_text,
                   {"README.md": "text", "benchmarks/asked/recorded.json.gz": "\0"},
                   {"some-1.0.whl": "PK\0\0", "src/a.gz": "\0", "tests/picture.png": "\0"})

    def test_top_level_is_fixed(self):
        self.check(tidy.top_level_is_fixed,
                   {"src/a.h": "", "build/x": "", ".ci/run": "", "README.md": ""},
                   {"scripts/a.sh": "", "docs/a.md": ""})

    def test_includes_stay_at_home(self):
        self.check(tidy.includes_stay_at_home,
                   {"recompute/a.cpp": "#include <torch/torch.h>\n",
                    "bindings/torch_cuda/a.cpp": "#include <c10/cuda/CUDAStream.h>\n",
                    "src/device/cuda/a.cpp": "#include <cuda_runtime.h>\n",
                    f"{tidy.GPU_BENCHMARK}/a.cu": "#include <cuda.h>\n",
                    "src/topology/a.cpp": "#include <hwloc.h>\n",
                    "tests/base/a.cpp": "#include <gtest/gtest.h>\n",
                    "swap/store/io_uring/a.cpp": "#include <liburing.h>\n"},
                   {"memory/a.cpp": "#include <torch/torch.h>\n",
                    "bindings/torch/a.cpp": "#include <c10/cuda/CUDAStream.h>\n",
                    "recompute/a.cpp": "# include <cuda_runtime.h>\n",
                    "src/planner/a.cpp": "#include <hwloc.h>\n",
                    "src/base/a.cpp": "#include <gtest/gtest.h>\n",
                    "swap/store/posix/a.cpp": "#include <liburing.h>\n"})

    def test_planning_is_pure(self):
        self.check(tidy.planning_is_pure,
                   {"src/planner/a.cpp": "#include <chrono>\n// No getenv, no steady_clock.\nf(\"getenv\");\n",
                    "src/planners/a.cpp": "#include <thread>\n",
                    "src/runtime/a.cpp": "#include <fstream>\nauto now = std::chrono::steady_clock::now();\n"},
                   {"src/planner/a.cpp": "#include <fstream>\n",
                    "src/planner/strategies/a.cpp": "# include <thread>\n",
                    "src/planner/a.h": "#include <mutex>\n",
                    "src/planner/clp/a.cpp": "#include <iostream>\n",
                    "src/profile/include/spillway/profile/a.h": "#include <filesystem>\n",
                    "src/profile/a.cpp": "auto now = std::chrono::steady_clock::now();\n",
                    "src/profile/b.cpp": "auto now = std::chrono::system_clock::now();\n",
                    "src/profile/c.cpp": "const char* home = std::getenv(\"HOME\");\n"})

    def test_cuda_sources_stay_at_home(self):
        self.check(tidy.cuda_sources_stay_at_home,
                   {"src/device/cuda/a.cu": "", f"{tidy.GPU_BENCHMARK}/a.cu": ""},
                   {"swap/a.cu": "", "benchmarks/is_the_disk_busy/a.cu": ""})

    def test_public_headers_show_no_third_party(self):
        self.check(tidy.public_headers_show_no_third_party,
                   {"src/base/include/spillway/base/a.h": "#include <string>\n",
                    "src/base/private.h": "#include <spdlog/spdlog.h>\n"},
                   {"src/base/include/spillway/base/a.h": "#include <spdlog/spdlog.h>\n"})

    def test_public_headers_match_their_folder(self):
        self.check(tidy.public_headers_match_their_folder,
                   {"src/base/include/spillway/base/a.h": "",
                    "src/device/cuda/include/spillway/device/cuda/a.h": "",
                    "swap/include/spillway/swap/a.h": ""},
                   {"src/base/include/spillway/a.h": "", "swap/include/spillway/memory/a.h": ""})

    def test_torch_is_linked_at_home(self):
        self.check(tidy.torch_is_linked_at_home,
                   {"recompute/CMakeLists.txt": "f(DEPENDS spillway_torch)",
                    "swap/CMakeLists.txt": "# no spillway_torch here\n"},
                   {"swap/CMakeLists.txt": "f(DEPENDS spillway_torch)"})

    def test_todos_have_a_text(self):
        self.check(tidy.todos_have_a_text,
                   {"src/a.cpp": "// TODO: measure with huge pages\n"},
                   {"src/a.cpp": "// TODO\n", "src/b.py": "# FIXME: this\n"})

    def test_folders_have_a_readme(self):
        self.check(tidy.folders_have_a_readme,
                   {"swap/CMakeLists.txt": "", "swap/README.md": "", "tests/a/CMakeLists.txt": ""},
                   {"swap/CMakeLists.txt": ""})

    def test_links_lead_somewhere(self):
        pages = {"README.md": "[a](swap/README.md#how-it-goes) [b](swap) [c](https://a.b/c#d) [d](#e)\n\n## E\n"}
        self.check(tidy.links_lead_somewhere,
                   {**pages, "swap/README.md": "## How it goes\n"},
                   {**pages, "swap/README.md": "```\n## How it goes\n```\n[a](b.md)\n"})

    def test_links_with_titles_spaces_and_parentheses_are_judged(self):
        page = "[a](b.md '1') [b](<c d.md#e>) [c](c%20d.md) [d](d(1).md \"2\")\n"
        self.check(tidy.links_lead_somewhere,
                   {"README.md": page + "`[this](int a)`\n  ```cpp\n[this](int b)\n  ```\n", "b.md": "",
                    "c d.md": "# E\n", "d(1).md": ""},
                   {})
        self.assertEqual(self.problems(tidy.links_lead_somewhere, {"README.md": page + "[e](f g.md)\n"}),
                         ["README.md: links to b.md, which is not there",
                          "README.md: links to c d.md#e, which is not there",
                          "README.md: links to c%20d.md, which is not there",
                          "README.md: links to d(1).md, which is not there",
                          "README.md: 'f g.md' has a space and is no link; write <f g.md>"])

    def test_headings_of_one_name_are_numbered(self):
        headings = "# A\n# A\n# A-1\n# A\n"
        self.check(tidy.links_lead_somewhere,
                   {"README.md": "[1](#a) [2](#a-1) [3](#a-1-1) [4](#a-2) [5](swap#b-1)\n" + headings,
                    "swap/README.md": "# B\n# B\n"},
                   {"README.md": "[1](#a-3)\n" + headings})

    def test_tests_do_not_sleep(self):
        self.check(tidy.tests_do_not_sleep,
                   {"tests/a.cpp": "// no sleep(1) here\n", "src/a.cpp": "usleep(3);\n"},
                   {"tests/a.cpp": "std::this_thread::sleep_for(1ms);\n"})
        self.check(tidy.tests_do_not_sleep,
                   {"tests/a.py": "sleeping(1)\n", "benchmarks/a.py": "time." "sleep(1)\n"},
                   {"tests/a.py": "RUN = 'import time; time." "sleep(1)'\n"})

    def test_kept_texts_have_a_test(self):
        self.check(tidy.kept_texts_have_a_test,
                   {"tests/a/texts/told.txt": "== A.Is\nx\n\n== B.test_is\ny\n",
                    "tests/a/a_test.cpp": "TEST(A, Is) {}\n", "tests/a/b_test.py": "def test_is(self):\n"},
                   {"tests/a/texts/told.txt": "== A.Is\nx\n"})

    def test_merges_leave_no_marks(self):
        self.check(tidy.merges_leave_no_marks,
                   {"README.md": "A page\n=======\n", "src/a.cpp": "  s <<<<<<< HEAD\n"},
                   {"tests/a/texts/told.txt": "== A.Is\n<<<<<<< HEAD\nx\n",
                    "README.md": "x\n>>>>>>> branch\n"})

    def test_products_do_not_link_tests(self):
        self.check(tidy.products_do_not_link_tests,
                   {"tests/a/CMakeLists.txt": "f(GTest::gmock)", "swap/CMakeLists.txt": ""},
                   {"swap/CMakeLists.txt": "f(spillway::test_support)"})

    def test_retired_words_are_gone(self):
        self.check(tidy.retired_words_are_gone,
                   {"src/a.cpp": "int skipped = roominess;  // A fair turn: the judge left, out again.\n",
                    "README.md": "To judge from that, it is put off no longer, and leaves again.\n",
                    "CHANGELOG.md": "`relief` is called memory reduction.\n"},
                   {"src/a.cpp": "int left_out = 0;\n", "swap/b.h": "struct StageRooms;\n",
                    "memory/c.py": "kHopelessCases = 1\n", "benchmarks/d.md": "The referee says so.\n",
                    "tests/job_relief_test.cpp": "\n"})

    def test_each_retired_word_is_refused(self):
        samples = {r"\breliefs?\b|\brelieved\b": "relieved", r"\breferees?\b": "referee", r"\bhopeless\b": "hopeless",
                   r"\bfrozen stem\b": "frozen stem", r"\bidle windows?\b": "idle windows",
                   r"(?<![\w-])--(?:groups|data-parallel) (?:COUNT|\d)": "--data-parallel 2",
                   r"(?<![\w-])--topology [A-Za-z]": "--topology N",
                   r"\bplan (?:[\w.]+ )?--(?:ranks|check|rebalance|costs)\b": "plan --ranks",
                   r"\bdata.parallel groups?\b": "data parallel group",
                   r"\bcomput(?:e[sd]?|ing) again\b": "computed again", r"\bdoorbells?\b": "doorbell",
                   r"\bjudged?\(": "judged(",
                   r"\bcame otherwise than planned\b": "came otherwise than planned"}
        for entry in retired_words.RETIRED:
            word, where, say = entry
            spelt = [samples[word]] if where == "text" else [
                "is_" + word.replace(" ", "_"), "k" + word.title().replace(" ", "") + "Count"]
            for text in spelt:
                with self.subTest(text):
                    self.assertEqual([(1, text, say)], list(retired_words.used(f"// {text};", [entry])))


class FunctionLengths(unittest.TestCase):
    def lengths(self, source):
        return [length for _line, length, _head in function_lengths.cpp_functions(source)]

    def test_containers_are_not_functions(self):
        self.assertEqual(self.lengths(
            "namespace a::b {\nclass C final : public D {\n public:\n  int f() const {\n"
            "    return 1;\n  }\n};\nenum class E : int { kA };\n}  // namespace a::b\n"), [3])

    def test_brace_initialised_members_belong_to_the_constructor(self):
        self.assertEqual(self.lengths("A::A()\n    : a_{1},\n      b_{2} {\n  f();\n}\n"), [5])

    def test_lambdas_belong_to_their_function(self):
        self.assertEqual(self.lengths("int f() {\n  g([] {\n    h();\n  });\n  return 1;\n}\n"), [6])

    def test_braces_in_text_do_not_count(self):
        self.assertEqual(self.lengths(
            "void f() {\n  g(\"{\", '{', R\"(\n{\n)\");  // {\n  /* { */\n#define X {\n}\n"), [7])

    def test_values_are_not_functions(self):
        self.assertEqual(self.lengths("constexpr int kA[] = {\n1,\n2,\n};\nint f() { return 1; }\n"),
                         [1])

    def test_templates_and_attributes_are_seen_through(self):
        self.assertEqual(self.lengths(
            "template <typename T = std::pair<int, int>>\nstruct alignas(64) S {\n  int a;\n};\n"
            "template <class T>\nT f(T x) {\n  return x;\n}\n"), [4])

    def test_digit_separators_are_not_characters(self):
        self.assertEqual(self.lengths("int f() {\n  return 1'000'000;\n}\nint g() {\n}\n"), [3, 2])


class Format(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def check(self, *options):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = check_format.main([*options, str(self.root)])
        return status, output.getvalue()

    def check_told(self, *texts):
        """The texts of this case are those of its part of texts/told.txt."""
        golden.check_told(self, texts, (str(self.root), "ROOT"))

    def require_program(self):
        reason = check_format.find_program("clang-format", check_format.VERSION)[1]
        if reason:
            self.skipTest(reason)

    def test_is_told_with_the_line_and_mended(self):
        self.require_program()
        (self.root / ".clang-format").write_text("BasedOnStyle: Google\n", encoding="utf-8")
        unit = self.root / "unit.cpp"
        unit.write_text("int f();\nint  g( );\n", encoding="utf-8")
        status, output = self.check()
        self.assertEqual(status, 1)
        self.check_told(output)
        self.assertEqual(self.check("--fix")[0], 0)
        self.assertEqual(unit.read_text(encoding="utf-8"), "int f();\nint g();\n")
        self.assertEqual(self.check()[0], 0)

    def test_is_not_judged_by_another_version(self):
        program = self.root / "clang-format"
        program.write_text("#!/bin/sh\necho Debian clang-format version 19.1.7\n", encoding="utf-8")
        program.chmod(0o755)
        told = []
        for folder in (self.root, "/none"):
            with unittest.mock.patch.dict(os.environ, PATH=str(folder)):
                status, output = self.check()
            self.assertEqual(status, check_format.SKIPPED)
            told.append(output)
        self.check_told(*told)


class ClangTidy(unittest.TestCase):
    def test_leaves_out_libtorch_and_other_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder)
            entries = [("swap/a.cpp", "c++ a.cpp"), ("swap/a.cpp", "c++ -include /b/cmake_pch.hxx a.cpp"),
                       ("bindings/torch/b.cpp", "c++ -isystem /x/torch/include b.cpp"),
                       ("tests/swap/c.cpp", "c++ c.cpp")]
            (build / "compile_commands.json").write_text(json.dumps(
                [{"file": str(REPOSITORY / file), "command": command}
                 for file, command in entries]), encoding="utf-8")
            commands = clang_tidy.commands_of(build)
        self.assertEqual([entry["command"] for entry in commands if "swap/a" in entry["file"]],
                         ["c++ a.cpp", "c++ a.cpp"])
        self.assertEqual(clang_tidy.units_of(commands, ["swap", "bindings"]),
                         [REPOSITORY / "swap/a.cpp"])


if __name__ == "__main__":
    unittest.main()
