"""Medians and spreads, and the order in which variants take turns."""
import statistics


class Spread:
    """The median of some figures and the lowest and highest of them."""

    def __init__(self, values):
        self.values = list(values)
        self.median = statistics.median(self.values)
        self.lowest = min(self.values)
        self.highest = max(self.values)

    def shown(self, digits=2):
        return (f"{self.median:.{digits}f} "
                f"[{self.lowest:.{digits}f}–{self.highest:.{digits}f}]")


def pooled(rounds, skipped):
    """The figures of all rounds in one list, each round without its first ones."""
    return [value for values in rounds for value in values[skipped:]]


def ratio(rounds, base_rounds, skipped):
    """How much longer: the ratio of medians, with the lowest and highest of any one round."""
    by_round = [statistics.median(ours[skipped:]) / statistics.median(theirs[skipped:])
                for ours, theirs in zip(rounds, base_rounds)]
    result = Spread(by_round)
    result.median = (statistics.median(pooled(rounds, skipped))
                     / statistics.median(pooled(base_rounds, skipped)))
    result.lowest = min(result.lowest, result.median)
    result.highest = max(result.highest, result.median)
    return result


def take_turns(variants, rounds):
    """Yields (round, variant); every second round goes backwards, so a drift hits all alike."""
    for number in range(rounds):
        yield from ((number, variant) for variant in (variants if number % 2 == 0
                                                      else variants[::-1]))
