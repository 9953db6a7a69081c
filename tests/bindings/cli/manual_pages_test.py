"""The pages of the manual: as man finds and shows them, and against the help of the command."""
import re
import shutil
import subprocess
import unittest

from installed_share import InstalledShare, commands_of_help, help_of, options_of_help


def flat(text):
    return " ".join(text.split())


class ManualPages(InstalledShare):
    def setUp(self):
        super().setUp()
        self.pages = {path.name: path for path in (self.share / "man/man1").iterdir()}

    def shown(self, page):
        """The page as text, each paragraph in one line."""
        done = subprocess.run(["man", "--warnings", page], capture_output=True, text=True, check=False,
                              env={**self.environment, "MANPATH": str(self.share / "man"), "MANWIDTH": "2000",
                                   "MANROFFOPT": "-c"})
        self.assertEqual((done.returncode, done.stderr), (0, ""), page)
        return done.stdout

    def test_are_one_of_each_command_and_one_of_all(self):
        self.assertEqual(set(self.pages), {"spillway.1"} | {f"spillway-{name}.1" for name in commands_of_help()})

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_are_found_and_shown_without_warnings(self):
        for page in self.pages:
            text = self.shown(page.removesuffix(".1"))
            titles = re.findall(r"(?m)^([A-Z][A-Z ]+)$", text)
            self.assertEqual(len(titles), len(set(titles)), page)
            self.assertLessEqual({"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "ENVIRONMENT",
                                  "EXIT STATUS", "SEE ALSO"}, set(titles), page)

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_are_what_groff_has_no_warning_for(self):
        for page in self.pages.values():
            done = subprocess.run(["groff", "-mandoc", "-ww", "-z", "-Tutf8", page], capture_output=True, text=True,
                                  check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_have_every_option_of_the_help_with_its_meaning(self):
        for command in commands_of_help():
            text = self.shown(f"spillway-{command}")
            for name, value in options_of_help(command):
                self.assertRegex(text, rf"(?m)^ +(-\w, )?{re.escape(name)}(\[=.*\])?"
                                       rf"{re.escape(' ' + value) if value else ''}( |$)", command)
            helped = help_of(command).partition("Examples:")[0]
            for meaning in re.findall(r"(?m)^  (?:-\w,)?--[^\n]*\n((?:      [^\n]*\n)+)", helped):
                self.assertIn(flat(meaning), flat(text), command)

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_have_the_examples_and_the_exit_codes_of_the_help(self):
        for command in commands_of_help():
            text = flat(self.shown(f"spillway-{command}"))
            examples, _, codes = help_of(command).partition("Examples:")[2].partition("Exit codes:")
            found = re.findall(r"(?m)^  (\S.*?)(?:  .*)?$", examples)
            self.assertGreater(len(found), 1)
            for example in found:
                self.assertIn(flat(example.rstrip("\\")), text, command)
            self.assertIn(flat(codes)[1:], text)

    def test_point_to_nothing_that_only_the_sources_have(self):
        for name, path in self.pages.items():
            self.assertNotRegex(path.read_text(encoding="utf-8"), r"\b(src|bindings|tests)/", name)

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_name_the_variables_of_options(self):
        names = {name for name, _ in options_of_help("run")} - {"--help"}
        self.assertLessEqual({"SPILLWAY_" + name[2:].upper().replace("-", "_") for name in names},
                             set(re.findall(r"\bSPILLWAY_\w+", self.shown("spillway-run"))))


if __name__ == "__main__":
    unittest.main()
