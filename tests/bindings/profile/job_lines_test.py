"""The lines of bindings/examples/many_devices.md, as a new user would type them."""
import re
import unittest
import xml.dom.minidom

from page_lines import PageLines, lines_of

TRACES = ("pipedream/vgg16.graph.txt", "pipedream/gnmt.graph.txt", "piper/bert32a100.json")
SCHEDULES = {"1f1b", "gpipe", "zb-v", "chimera", "gems-mast", "gems-master", "interleaved", "pipeoffload"}
PARTITIONERS = {"spillway", "even", "parameters", "torchgpipe", "gpipe", "pipedream", "mcap", "capslog",
                "vpipe", "dawnpiper", "piper", "obscura", "galvatron"}


class JobLines(PageLines):
    def check_step(self, output):
        """The step of the printed plan, in shares of its bound, is none that beats it."""
        above = re.search(r"(?m)^bound .* this is ([\d.]+) % above it", output)
        self.assertIsNotNone(above, output)
        self.assertGreaterEqual(float(above.group(1)), 0)

    def check_comparison(self, output):
        rows = {tuple(row) for row in re.findall(r"(?m)^([a-z0-9-]+)\S* +([a-z]+) +[\d-]+ +[\d-]+ ", output)}
        self.assertLessEqual(SCHEDULES, {schedule for schedule, _ in rows})
        self.assertEqual({partitioner for _, partitioner in rows}, PARTITIONERS)

    def check_whole(self, output):
        """No fault was found; `reports/check.txt` has all that is told then."""
        self.assertEqual(output.splitlines()[0].split(": ")[-1],
                         "nothing is missing, both sides of each message are in one order, and no deadlock even if "
                         "every send waits for its receive")

    def check_pipelines(self, output, counts):
        self.assertEqual(re.findall(r"(?m)^plan .*: (\d+) pipelines of (\d+) ranks", output), [counts], output)

    def check_example(self, trainer, name):
        self.require_data_of(trainer)
        profile, fastest, swapped, check, compare, groups, simulate = lines_of(trainer)
        self.check_profile(name, self.run_line(profile))
        self.check_step(self.run_line(fastest)[0])
        self.check_step(self.run_line(swapped)[0])
        picture = xml.dom.minidom.parse(str(self.folder / f"{name}.job.svg"))
        self.assertEqual(picture.documentElement.tagName, "svg")
        job = self.json_of(f"{name}.job.json")
        self.assertEqual((job["schedule"], len(job["stages"])), ("1f1b", 4))
        self.check_whole(self.run_line(check)[0])
        self.check_comparison(self.run_line(compare)[0])
        self.check_step(self.run_line(groups)[0])
        self.check_pipelines(self.run_line(simulate)[0], ("16", "4"))
        self.assertTrue(self.json_of(f"{name}.trace.json")["traceEvents"])

    def test_of_brain_unet(self):
        self.check_example("brain_unet", "unet")

    def test_of_photo_net(self):
        self.check_example("photo_net", "photo")

    def test_of_text_gpt(self):
        self.check_example("text_gpt", "gpt")

    def test_of_times_that_changed(self):
        self.require_data_of("brain_unet")
        first, plan, later, rebalance, check = lines_of("When times have changed")
        self.check_profile("first", self.run_line(first))
        self.check_step(self.run_line(plan)[0])
        self.check_profile("later", self.run_line(later))
        output = self.run_line(rebalance)[0]
        self.assertRegex(output, r"(?m)^times +a step took .* when it was planned, takes .* now as it is cut")
        self.assertRegex(output, r"(?m)^moves +(nothing: |\d.* in \d+ messages?, \d+ rounds? at the end of )")
        self.assertEqual(self.json_of("later.job.json")["layers"], self.json_of("first.job.json")["layers"])
        self.check_whole(self.run_line(check)[0])

    def test_of_published_profiles(self):
        self.copy_traces(TRACES)
        (vgg, gnmt, bert, swapped, compare, stages, both_ways, parked, machine,
         simulate, stragglers) = lines_of("Profiles that others.*?")
        for line, name in ((vgg, "vgg16"), (gnmt, "gnmt"), (bert, "bert")):
            self.check_profile(name, self.run_line(line))
        for line in (swapped, stages, both_ways, parked, machine):
            self.check_step(self.run_line(line)[0])
        self.check_comparison(self.run_line(compare)[0])
        self.assertEqual(self.json_of("bert.job.json")["data_parallel"], 8)
        self.check_pipelines(self.run_line(simulate)[0], ("128", "8"))
        self.assertRegex(self.run_line(stragglers)[0], r"(?m)^time +\S+ m?s per step; the plan says ")


if __name__ == "__main__":
    unittest.main()
