#!/usr/bin/env python3
"""What does the exchange of gradients hide behind the backward? The clock of ranks in one process."""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, training  # noqa: E402  pylint: disable=wrong-import-position

NETWORKS = {"gpt": "GPT, 24 blocks", "gpt-tied": "the same, weights of words tied", "vgg16": "VGG-16"}
RANKS = (2, 4, 8, 16)
RATES = (10, 25, 100)  # Gbit/s.


class Exchange(report.Benchmark):
    """Each network on each number of ranks and each link; a simulation, so once."""

    rounds, quick_rounds = 1, 1
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)

    def measure(self, options):
        program = self.program(options, "spillway_what_does_the_exchange_hide")
        rows = []
        for network in NETWORKS:
            for ranks in RANKS[:1] if options.tiny else RANKS:
                for rate in RATES[-1:] if options.tiny else RATES:
                    command = [str(word) for word in (program, network, ranks, rate)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    if done.returncode != 0:
                        raise training.Failure(f"{command}: exit code {done.returncode}\n{done.stderr}")
                    rows.append(json.loads(done.stdout))
                    print(done.stdout.strip(), file=sys.stderr, flush=True)
        return {"steps_ms": rows}

    def report(self, results, folder):
        rows = []
        for step in results["steps_ms"]:
            backward, after, both = (step[key] for key in ("backward", "ordered_after", "ordered_both"))
            rows.append([NETWORKS[step["network"]], step["ranks"], step["gbit_per_s"],
                         *(f"{step[key]:.0f}" for key in ("backward", "ordered_after", "ordered_exchange",
                                                          "ordered_both", "fast_both", "bound")),
                         f"{100 * (after - both) / (after - backward):.0f} %"])
        return report.table(["network", "ranks", "Gbit/s", "backward, ms", "exchange and update after it",
                             "exchange phased", "update phased, too", "the same as a ring", "bound",
                             "hidden"], rows)


if __name__ == "__main__":
    Exchange().run()
