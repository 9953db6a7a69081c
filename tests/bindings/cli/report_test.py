"""What the command prints, whole: files of lines as they are typed, and of all that these print."""
import os
import pathlib
import shutil
import subprocess
import unittest

import golden
from command_case import WORLD, CommandCase

REPORT = pathlib.Path(os.environ["SPILLWAY_TEST_REPORT"])


def typed_lines(text):
    """[(comments before it, line)]; a line goes on where the next one begins with ">"."""
    lines, comments = [], []
    for line in text.splitlines():
        if line.startswith("# "):
            comments.append(line)
        elif line.startswith("$ "):
            lines.append(("".join(f"{comment}\n" for comment in comments), line))
            comments = []
        elif line.startswith("> ") and not comments:
            lines[-1] = (lines[-1][0], lines[-1][1] + "\n" + line)
    return lines


class Report(CommandCase):
    def printed(self, line):
        """Standard output, then the error output, then the exit code: 0 goes without saying, as does 2 of an error."""
        command = "\n".join(part[2:] for part in line.splitlines())
        folder = str(self.root / "work")
        outcome = subprocess.run(
            ["bash", "-c", command],
            env=self.environment({"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "WORLD": str(WORLD)}),
            cwd=folder, text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)
        text = golden.masked(outcome.stdout + outcome.stderr, (folder, "$PWD"), (str(self.root), "$HOME"),
                             (str(WORLD), "$WORLD"))
        self.assertFalse([each for each in text.splitlines() if each.startswith(("$ ", "# ", "> "))], text)
        expected = 2 if "[spillway] error: " in outcome.stderr else 0
        return text + (f"(exit code {outcome.returncode})\n" if outcome.returncode != expected else "")

    def test_is_what_its_file_shows(self):
        shutil.copytree(REPORT.with_name("inputs"), self.root / "work", dirs_exist_ok=True)
        text = "".join(f"{comments}{line}\n{self.printed(line)}"
                       for comments, line in typed_lines(REPORT.read_text(encoding="utf-8")))
        self.assertTrue(text)
        golden.check(self, REPORT, text)


if __name__ == "__main__":
    unittest.main()
