#pragma once

#include <string>
#include <vector>

#include "spillway/schedule/action_span.h"
#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// Which micro-batch an action of one is for: its number. As each replica counts its own, with
/// several the number is that of the replica, and micro-batches are letters: "1b"; "1/26" behind z.
std::string micro_batch_label(const Schedule& schedule, const Action& action);

/// A schedule of so many seconds as people draw it: a line per rank, a column per
/// `seconds_per_column`. `spans`: when each action of each rank ran, or is to run.
///
///     r0: F0 F1 .. .. .. .. B1 B0
///     r1: .. F0 F1 .. .. B1 B0 ..
///
/// F, B, I, W, R (recomputed) and S (step) with the label of the micro-batch; small letters on a
/// rank's second stage, "F0.2" where ranks have more than two. What lasts several columns fills
/// them, what lasts less than half of one is not seen. Throws ConfigError for a picture of more
/// than a million cells.
std::string drawing(const Schedule& schedule, const std::vector<std::vector<ActionSpan>>& spans,
                    double seconds, double seconds_per_column);

}  // namespace spillway::schedule
