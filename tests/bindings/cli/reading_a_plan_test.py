"""The page that explains what `plan-job` prints shows what it prints."""
import pathlib
import re
import unittest

from command_case import CommandCase
from reference_data import reference_file

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / "bindings/cli/planning/reading_a_plan.md"
TRACE = "pipedream/vgg16.graph.txt"


def blocks_of(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def without_search_time(text):
    return re.sub(r"(?m)^(planned +in) .*", r"\1 SECONDS", text)


class ReadingAPlan(CommandCase):
    def test_explains_each_line_and_column_of_its_sample(self):
        sample = blocks_of("text")[0]
        lines, _, stages_and_ranks = sample.partition("\n\n")
        text = PAGE.read_text(encoding="utf-8").replace(sample, "")
        labels = {line.split()[0] for line in lines.splitlines()}
        self.assertLessEqual({"model", "time", "bound", "idle", "peak", "hosts"}, labels)
        heads = [line for line in stages_and_ranks.splitlines() if re.match(r"(stage|rank) ", line)]
        self.assertEqual(len(heads), 2)
        columns = {word for head in heads for word in re.split(r"  +", head)}
        self.assertLessEqual(labels | columns - {"stage", "rank", "begins with"}, set(re.findall(r"`([^`\n]+)`", text)))

    def test_shows_what_its_lines_print(self):
        trace = reference_file(TRACE)
        self.write(trace.name, trace.read_text(encoding="utf-8"))
        outputs = []
        for line in blocks_of("sh")[0].replace("\\\n", "").splitlines():
            program, *words = line.split()
            self.assertEqual(program, "spillway")
            code, output, errors = self.spillway(*words)
            self.assertEqual((code, errors), (0, ""), line)
            outputs.append(output)
        self.assertEqual(without_search_time(outputs[-1]), without_search_time(blocks_of("text")[0]))
        code, _, errors = self.spillway("check", "vgg16.job.json")
        self.assertEqual((code, errors), (0, ""))


if __name__ == "__main__":
    unittest.main()
