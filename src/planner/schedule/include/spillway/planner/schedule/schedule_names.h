#pragma once

#include "spillway/schedule/action_span.h"
#include "spillway/schedule/held_counts.h"
#include "spillway/schedule/schedule.h"
#include "spillway/schedule/stash_walk.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner_schedule {

// What generators, passes and the simulator of the planner work on.
using schedule::Action;
using schedule::ActionKind;
using schedule::ActionSpan;
using schedule::HeldCounts;
using schedule::kNoMicroBatch;
using schedule::Schedule;
using schedule::StashEffect;
using schedule::StashShares;
using schedule::StashWalk;
using schedule::WeightCopies;
using schedule::WeightRule;

}  // namespace spillway::planner_schedule
