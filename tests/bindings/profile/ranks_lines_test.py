"""The lines of bindings/examples/many_ranks.md, as a new user would type them."""
import os
import re
import unittest

from mpi_launchers import mpi_launcher
from page_lines import PageLines, lines_of
from slow_cases import slow


class RanksLines(PageLines):
    def setUp(self):
        launcher = mpi_launcher(self, "MPICH")
        if os.path.basename(launcher) != "mpiexec.mpich":
            self.skipTest("MPICH's launcher has another name than on the page")
        super().setUp()

    def check_example(self, trainer, heading=None):
        self.require_data_of(trainer)
        return self.run_line(" && ".join(f"{{ {line}; }}" for line in lines_of(heading or trainer)))

    def check_rows(self, told, ranks):
        """Each run on ranks has ended with a table of all of them."""
        self.assertEqual(re.findall(r"\[spillway\] ranks .*?(\d+) ranks on 1 host", told),
                         [str(count) for count in ranks], told)

    def test_before_the_first_run(self):
        told, _ = self.run_line(" && ".join(lines_of("Before the first run")))
        ranks, links = re.search(r"(?m)^ok +ranks +(\d+ ranks on \d+ host)(?:.*\n)*\w+ +links in a host +(\w+) ",
                                 told).groups()
        self.assertEqual((ranks, links), ("2 ranks on 1 host", "latency"))
        self.assertEqual(self.json_of("machine.json")["node"]["devices"], 2)

    def test_of_brain_unet(self):
        self.check_rows("".join(self.check_example("brain_unet")), (2, 4, 2))

    @slow
    def test_of_shards(self):
        self.require_data_of("brain_unet")
        told = self.run_line(" && ".join(f"{{ {line}; }}" for line in lines_of("brain_unet in shards")))
        self.check_rows("".join(told), (4, 4))

    @slow
    def test_of_photo_net(self):
        self.check_rows("".join(self.check_example("photo_net")), (2, 4, 2))

    def test_of_a_picture(self):
        self.check_rows("".join(self.check_example("text_gpt", "As a picture")), (2,))
        rows = {event["args"]["name"].split(" (")[0] for event in self.json_of("ranks.json")["traceEvents"]
                if event["name"] == "process_name"}
        self.assertEqual(rows, {"rank 0", "rank 1"})

    def test_of_text_gpt(self):
        self.check_rows("".join(self.check_example("text_gpt")), (2, 4))

    def test_of_a_plan(self):
        self.check_rows("".join(self.check_example("text_gpt", "By a plan")), (2,))


if __name__ == "__main__":
    unittest.main()
