#!/usr/bin/env python3
"""How fast do ranks train? Steps of the example trainers on two MPI ranks of one thread, against one process."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

GOAL_OF_ONE_THREAD, GOAL_OF_TWO_THREADS = 1.7, 0.95
# Layers move in the first steps of a split run. One process is as fast from its second step on.
STEPS_ALONE, SKIPPED_ALONE = 4, 1
ONE, TWO, SPLIT = "1 process x 1 thread", "1 process x 2 threads", "2 ranks x 1 thread"


def goal(value, least):
    return f"{value:.2f} ({report.against_goal(value, least, at_least=True)})"


class Speed(report.RanksBenchmark):
    """Seconds of the last steps of a run, when layers have moved to even out the stages."""

    rounds, steps, skipped = 3, 10, 6
    quick_rounds, quick_steps = 2, 9

    def __init__(self):
        super().__init__(__file__, __doc__)

    def train(self, options, case, prefix, threads):
        steps = options.steps if prefix else STEPS_ALONE
        command = [*prefix, *case.command(options.bin, steps, threads), "--micro-batches", 8]
        run = training.train(command, environment={"OMP_NUM_THREADS": str(threads)}, time_limit=3600)
        run.require_success(case.name)
        return run.losses, run.step_seconds

    def measure(self, options):
        split = self.split(options, 2, "8GiB", "--quiet", "--nvme", options.disk)
        models = {}
        for whole, smaller in cases.SMALLER.items():
            case = self.sized(options, whole if options.tiny else smaller)
            ways = {ONE: ([], 1), TWO: ([], 2), SPLIT: (split, 1)}
            seconds, losses = {way: [] for way in ways}, {}
            for _number, way in spread.take_turns(list(ways), options.rounds):
                losses[way], times = self.train(options, case, *ways[way])
                seconds[way].append(times)
                print(f"{case.name}, {way}: {times}", file=sys.stderr, flush=True)
            training.require_equal_losses(f"{case.name}, on two ranks and in one process",
                                          [{"losses": losses[way]} for way in (ONE, SPLIT)])
            models[case.name] = seconds
        return {"models": models}

    def report(self, results, folder):
        rows = []
        for name, runs in results["models"].items():
            seconds = {way: spread.Spread(spread.pooled(runs[way],
                                                        results["skipped"] if way == SPLIT else SKIPPED_ALONE))
                       for way in (ONE, TWO, SPLIT)}
            rows.append([name, *(each.shown() for each in seconds.values()),
                         goal(seconds[ONE].median / seconds[SPLIT].median, GOAL_OF_ONE_THREAD),
                         goal(seconds[TWO].median / seconds[SPLIT].median, GOAL_OF_TWO_THREADS)])
        self.plot(results, folder)
        return (report.table(["model", f"s a step, {ONE}", TWO, SPLIT, "times as fast as one thread",
                              "as two threads"], rows)
                + "\n![Seconds of each step](plot.svg)\n")

    def plot(self, results, folder):
        models = results["models"]
        figure, axes = report.drawing(12, 3, len(models))
        for axis, (name, seconds) in zip(axes[0], models.items()):
            for number, (way, runs) in enumerate(seconds.items()):
                for at, run in enumerate(runs):
                    axis.plot(run, color=f"C{number}", label=way if at == 0 else None, lw=1)
            axis.set_title(name, fontsize=8)
            axis.set_xlabel("step")
            axis.set_ylim(bottom=0)
        axes[0][0].set_ylabel("seconds")
        axes[0][0].legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    Speed().run()
