"""The lines of bindings/examples/planning.md, as a new user would type them."""
import json
import re
import unittest
import xml.dom.minidom

from page_lines import PageLines, lines_of

TRACES = ("dtr/unet-b6.log", "pipedream/vgg16.graph.txt", "piper/bert32a100.json")


class ExampleLines(PageLines):
    def check_example(self, trainer, name):
        self.require_data_of(trainer)
        (profile, plan, compare, link, frontier, store, follow, strategy,
         simulate) = lines_of(trainer)
        self.check_profile(name, self.run_line(profile))
        self.assertRegex(self.run_line(plan)[0], r"(?m)^bound +.* no plan is faster here")
        self.assertIn("karma", re.findall(r"(?m)^(\S+) +\d", self.run_line(compare)[0]))
        figures = json.loads(self.run_line(link)[0])
        self.assertEqual(figures["rates"]["write_bytes_per_second"], 12e9)
        self.assertGreater(figures["swapped_bytes"] + figures["recompute_seconds"], 0)
        self.assertEqual(self.run_line(frontier)[0].count(" spillway "), 9)
        picture = xml.dom.minidom.parse(str(self.folder / f"{name}.budgets.svg"))
        self.assertEqual(picture.documentElement.tagName, "svg")
        self.assertEqual(re.findall(r"(?m)^plan stored in (\S+);", self.run_line(store)[0]), [f"{name}.plan.json"])
        followed = re.search(r"was followed in (\d+) of", self.run_line(follow)[1])
        self.assertGreaterEqual(int(followed.group(1)), 4)
        self.run_line(strategy)
        self.assertEqual(self.json_of(f"{name}.dtr.json")["strategy"], "dtr")
        self.assertRegex(self.run_line(simulate)[0], r"(?m)^measured +step \d+ of the run: ")
        events = self.json_of(f"{name}.both.json")["traceEvents"]
        self.assertEqual({event["pid"] for event in events if event["ph"] == "X"}, {1, 2})

    def test_of_brain_unet(self):
        self.check_example("brain_unet", "unet")

    def test_of_photo_net(self):
        self.check_example("photo_net", "photo")

    def test_of_text_gpt(self):
        self.check_example("text_gpt", "gpt")

    def test_of_published_traces(self):
        self.copy_traces(TRACES)
        (*imports, bench, measured, by_name, two_tiers) = lines_of("Traces of others.*?")
        for line, name in zip(imports, ("dtr", "pipedream", "piper")):
            self.check_profile(name, self.run_line(line))
        self.run_line(bench)
        self.assertEqual(self.json_of("machine.json")["format"], "spillway disk rates")
        self.assertIn("(machine.json: ", self.run_line(measured)[0])
        figures = json.loads(self.run_line(by_name)[0])
        self.assertEqual(figures["strategy"], "karma")
        self.assertTrue(figures["rates"]["source"].startswith("machine.json: "))
        self.assertIn("8.00 GiB of host memory, then 3.00 GB/s out", self.run_line(two_tiers)[0])


if __name__ == "__main__":
    unittest.main()
