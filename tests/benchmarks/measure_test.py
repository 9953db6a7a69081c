#!/usr/bin/env python3
"""What the benchmarks compute from their figures."""
import contextlib
import importlib.util
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

import golden

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from measure import cases, report, side_by_side, spread, training  # noqa: E402  pylint: disable=wrong-import-position


def script(folder):
    """The module of a benchmark; all of them are called main.py."""
    if str(BENCHMARKS / folder) not in sys.path:
        sys.path.append(str(BENCHMARKS / folder))  # As for a script.
    spec = importlib.util.spec_from_file_location(folder, BENCHMARKS / folder / "main.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[folder] = module
    spec.loader.exec_module(module)
    return module


class Spread(unittest.TestCase):
    def test_shows_median_lowest_and_highest(self):
        self.assertEqual(spread.Spread([3, 1, 2]).shown(1), "2.0 [1.0–3.0]")

    def test_ratio_leaves_first_steps_out(self):
        ratio = spread.ratio([[9, 2, 2], [9, 3, 3]], [[7, 1, 1], [7, 1, 1]], 1)
        self.assertEqual((ratio.median, ratio.lowest, ratio.highest), (2.5, 2, 3))

    def test_every_second_round_goes_backwards(self):
        self.assertEqual(list(spread.take_turns("ab", 2)),
                         [(0, "a"), (0, "b"), (1, "b"), (1, "a")])


class Report(unittest.TestCase):
    def test_replaces_only_what_is_between_the_markers(self):
        text = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
        self.assertEqual(report.replace_between_markers(text, "new \\1"),
                         f"before\n{report.BEGIN}\nnew \\1\n{report.END}\nafter\n")

    def test_appends_where_there_are_no_markers(self):
        text = report.replace_between_markers("text\n", "new")
        self.assertEqual(text, f"text\n\n{report.BEGIN}\nnew\n{report.END}\n")
        self.assertEqual(report.replace_between_markers(text, "new"), text)

    def test_readmes_of_all_questions_have_the_markers(self):
        for main in BENCHMARKS.glob("*/main.py"):
            text = (main.parent / "README.md").read_text(encoding="utf-8")
            self.assertEqual([text.count(marker) for marker in (report.BEGIN, report.END)], [1, 1], main)


class CommittedReports(unittest.TestCase):
    """READMEs show what the script of today makes of the figures beside them."""

    def test_are_made_again_from_their_figures(self):
        for results in sorted(BENCHMARKS.glob("*/results.json")):
            with self.subTest(results.parent.name):
                self.check(results.parent)

    def check(self, folder):
        module = script(folder.name)
        benchmark = next(kind for kind in vars(module).values() if isinstance(kind, type)
                         and issubclass(kind, report.Benchmark) and kind is not report.Benchmark)
        committed = (folder / "README.md").read_text(encoding="utf-8")
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        nothing = (mock.MagicMock(), mock.MagicMock())
        with tempfile.TemporaryDirectory() as place, \
                mock.patch.object(report, "drawing", return_value=nothing), \
                mock.patch.object(report, "save"), contextlib.redirect_stdout(io.StringIO()):
            copy = pathlib.Path(place) / "README.md"
            copy.write_text(committed, encoding="utf-8")
            benchmark().write_report(results, copy.parent)
            self.assertEqual(copy.read_text(encoding="utf-8"), committed)


class PlansThatAreTold(unittest.TestCase):
    """`do_plans_follow_the_disk` reads them from the log."""

    def test_are_understood_as_the_runtime_words_them(self):
        source = BENCHMARKS.parent / "src" / "runtime" / "learning" / "step_learner_steps.cpp"
        text = source.read_text(encoding="utf-8")
        lines = re.search(r'log_info\(\s*("\{\} plan for .*?"),\n', text, re.DOTALL)[1]
        words = "".join(re.findall(r'"([^"]*)"', lines))
        for again, count in (("37 operators", "37"), ("1 operator", "1")):
            told = words.format("renewed", "471 operators", "1 step", 0.75, "542 MiB", "1.01 GiB", again, 0.1,
                                "580 MiB", "580 MiB", "170 MiB")
            self.assertEqual(script("do_plans_follow_the_disk").PLAN.findall(f"spillway: {told}\n"),
                             [("0.75", "542 MiB", "1.01 GiB", count)])


class Benchmark(unittest.TestCase):
    def test_of_every_question_takes_the_options_that_all_have(self):
        for main in BENCHMARKS.glob("*/main.py"):
            module = script(main.parent.name)
            benchmark = next(kind for kind in vars(module).values() if isinstance(kind, type)
                             and issubclass(kind, report.Benchmark))()
            options = benchmark.parser.parse_args(["--tiny", "--quick"])
            self.assertTrue(options.tiny and options.quick, main)

    def test_sizes_a_case_and_looks_for_its_program(self):
        with tempfile.TemporaryDirectory() as folder:
            benchmark = report.Benchmark(__file__, "")
            options = benchmark.parser.parse_args(["--bin", folder, "--tiny"])
            with self.assertRaisesRegex(training.Failure, "brain_unet does not exist"):
                benchmark.sized(options, cases.BRAIN_UNET)
            (options.bin / "brain_unet").touch()
            self.assertIs(benchmark.sized(options, cases.BRAIN_UNET),
                          cases.TINY[cases.BRAIN_UNET])
            options.tiny = False
            self.assertIs(benchmark.sized(options, cases.BRAIN_UNET), cases.BRAIN_UNET)


class Train(unittest.TestCase):
    def run_lines(self, text, **arguments):
        return training.train([sys.executable, "-c", text], **arguments)

    def test_reads_steps_from_the_output(self):
        run = self.run_lines("print('step 1  loss 0.5  1.250 s/step  3 tokens/s\\nnoise')")
        self.assertEqual((run.status, run.step_seconds, run.losses), (0, [1.25], ["0.5"]))

    def test_names_the_signal_that_killed_it(self):
        run = self.run_lines("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(run.ending(), "killed by SIGKILL")
        with self.assertRaisesRegex(training.Failure, "name: killed by SIGKILL, 0 steps"):
            run.require_success("name")

    def test_requires_equal_losses_of_all_variants(self):
        training.require_equal_losses("name", [{"losses": ["0.5"]}, {"losses": ["0.5"]}])
        with self.assertRaisesRegex(training.Failure, "name: the losses of the variants differ"):
            training.require_equal_losses("name", [{"losses": ["0.5"]}, {"losses": ["0.25"]}])


class PredictedVsMeasuredStep(unittest.TestCase):
    def setUp(self):
        self.module = script("predicted_vs_measured_step")

    def table_of(self, *followed_seconds):
        """What is written of runs whose plan has predicted 1 s."""
        runs = [{"planned_step_seconds": 1, "followed_step_seconds": seconds, "planned_peak_bytes": 1 << 30,
                 "followed_peak_bytes": 1 << 30} for seconds in followed_seconds]
        with mock.patch.object(self.module.Predictions, "plot"):
            return self.module.Predictions().report({"cases": {"net": {"runs": {"50": runs}}}}, None)

    def test_tells_of_runs_that_no_plan_was_followed_in(self):
        golden.check_part(self, self.table_of(1.01, 0, 1.02), self.table_of(1.01, 1.02))

    def test_has_no_figures_of_nothing(self):
        golden.check_part(self, *(self.table_of(*followed) for followed in ((), (0, 0))))


class DoesItReachWhatKarmaClaims(unittest.TestCase):
    def test_takes_both_reasons_of_a_strategy_without_a_plan(self):
        refusal_in = script("does_it_reach_what_karma_claims").refusal_in
        told = "[spillway] error: the strategy 'rotor' {} (choose another one)\n"
        for reason in ("has no plan for 15 GiB: it has one block", "cannot plan this step: it would run "
                       "operator 0, aten::relu (float[1]), again"):
            self.assertEqual(refusal_in(told.format(reason)), f"the strategy 'rotor' {reason}")
        self.assertEqual(refusal_in("[spillway] error: cannot read x: No such file (name another)\n"), "")


class HowGoodAreThePartitions(unittest.TestCase):
    def setUp(self):
        self.module = script("how_good_are_the_partitions")

    def cell(self, **seconds):
        """One of 4 stages of 1 GB."""
        return {"workload": "net", "stages": 4, "swaps": False, "memory_bytes": 1e9, "seconds": seconds,
                "bytes": {"spillway": 5.0}}

    def test_tells_of_cells_where_ours_is_not_best(self):
        text = self.module.lost_cells([self.cell(spillway=2.0, even=2.0), self.cell(spillway=2.1, even=2.0)])
        golden.check_part(self, text)

    def test_compares_the_largest_models_by_parameters(self):
        def row(name, reduction, own, size):
            return {"partitioner": name, "memory_reduction": reduction, "own": own, "any_time": size, "in_time": 0}

        largest = self.module.largest_models
        sizes = largest.Sizes({"parameter_bytes_of_one": 4e9, "parameter_bytes_of_each_more": 8e9, "devices": {
            "4": [row("spillway", "swap and recompute", True, 8), row("even", "none", True, 2),
                  row("even", "swap and recompute", False, 0)]}}, False)
        self.assertEqual((sizes.of(4, "spillway"), sizes.of(4, "even")), (15, 3))
        self.assertEqual(largest.ratio_text({"net": sizes}, "even", None, "any_time"), "5.00 [5.00–5.00]")
        self.assertEqual(largest.ratio_text({"net": sizes}, "even", "swap and recompute", "any_time"), "–, 1 × nothing")


class SideBySide(unittest.TestCase):
    # Runs ahead of its reader until the pipe is full, as a trainer does that is stopped late.
    COUNTING = ("import itertools\n"
                "for i in itertools.count(1):\n"
                "    print(f'step {i}  loss {i / 2}  0.010 s/step', flush=True)\n")

    def live(self, text=COUNTING):
        live = side_by_side.Live("name", [sys.executable, "-c", text])
        self.addCleanup(live.__exit__, None, None, None)
        return live

    def test_a_stopped_trainer_makes_no_steps(self):
        live = self.live()
        self.assertEqual(live.turn(3), (0, 3))
        state = pathlib.Path(f"/proc/{live.process.pid}/stat").read_text().rpartition(") ")[2]
        self.assertEqual(state[0], "T")
        self.assertEqual(live.turn(2), (3, 5))
        run = live.finish()
        self.assertEqual(run.ending(), "killed by SIGTERM")
        self.assertEqual(run.losses[:5], ["0.5", "1.0", "1.5", "2.0", "2.5"])

    def test_a_pair_counts_no_step_into_which_a_pause_fell(self):
        reference, live = self.live(), self.live()
        live.turn(1)
        turn, after = side_by_side.pair(reference, live, steps=2)
        self.assertEqual(after, 0.01)
        self.assertEqual(turn["steps"], [2, 4])
        self.assertEqual(turn["seconds"], turn["reference"])

    def test_a_trainer_that_ends_in_its_turn_is_an_error(self):
        live = self.live("print('step 1  loss 0.5  0.010 s/step')")
        with self.assertRaisesRegex(training.Failure, "name: ended after 1 steps"):
            side_by_side.counted(live, 2)

    def test_a_trainer_that_fails_shows_why(self):
        live = self.live("raise SystemExit('no such thing')")
        with self.assertRaisesRegex(training.Failure, "(?s)name: exit status 1.*no such thing"):
            side_by_side.counted(live, 2)


if __name__ == "__main__":
    unittest.main()
