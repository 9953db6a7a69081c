"""What is told of all ranks at the end, and by whom."""
import json
import re
import unittest

import golden
from ranks_case import COMMAND, TRAINER, RanksCase

TITLES = ["rank", "host", "threads", "budget", "stages", "parameters", "peak", "swapped", "busy", "waited"]


class Summary(RanksCase):
    def rows_of(self, errors):
        """The table's, cell by cell, below its titles."""
        lines = errors.splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("[spillway] ranks "))
        rows = [line[len("[spillway] "):].strip().split("  ") for line in lines[first + 1:]]
        rows = [[cell.strip() for cell in row if cell.strip()] for row in rows]
        self.assertEqual(rows[0], TITLES, errors)
        return [row for row in rows[1:] if row[0].isdigit()]

    def test_has_a_row_of_each_rank_from_the_first_one(self):
        run = self.split(2, "--stats", "run.%r.json", "--progress", "on")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr.count(" needed "), 1, run.stderr)
        self.assertEqual(run.stderr.count(" step 1 "), 1, run.stderr)
        self.check_told(*(golden.without(line, (r"\d+ %", "SHARE")) for line in run.stderr.splitlines()
                          if re.match(r"\[spillway\] (ranks |advice +one micro-batch)", line)))
        rows = self.rows_of(run.stderr)
        self.assertEqual([row[0] for row in rows], ["0", "1"])
        self.assertEqual([row[TITLES.index("stages")] for row in rows], ["0", "1"])
        first, second = (json.loads((self.folder / f"run.{rank}.json").read_text()) for rank in range(2))
        self.assertIsNone(second["ranks"])
        self.assertEqual([row["peak_bytes"] for row in first["ranks"]], [first["peak_bytes"], second["peak_bytes"]])
        for row in first["ranks"]:
            self.assertEqual((row["steps"], row["micro_batches"]), (2, 2))
            self.assertGreater(row["parameter_bytes"], 0)
            self.assertGreater(row["busy_seconds"], 0)
            parts = ("busy_seconds", "idle_for_ranks_seconds", "idle_for_reads_seconds", "idle_for_program_seconds")
            self.assertLessEqual(sum(row[part] for part in parts), row["seconds"] * (1 + 1e-9))
        # A rank may have the bytes before its program asks for them.
        self.assertIn("aten::_local_scalar_dense", [row["most_read_by"] for row in first["ranks"]])

    def test_says_which_stages_are_whose(self):
        run = self.split(4, "--schedule", "gems-mast", "--replicas", "2")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.check_told(*(line for line in run.stderr.splitlines() if line.startswith("[spillway] ranks ")))
        self.assertEqual([row[TITLES.index("stages")] for row in self.rows_of(run.stderr)], ["0,1"] * 4)

    def test_of_ranks_that_train_for_themselves_is_their_own(self):
        run = self.launch(2, COMMAND, "run", "--budget", "1GiB", "--", *TRAINER, "--steps", "2")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr.count(" needed "), 2, run.stderr)
        self.assertNotIn("[spillway] ranks", run.stderr)


if __name__ == "__main__":
    unittest.main()
