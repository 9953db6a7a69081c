#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/recomputation.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Whether a value that the program has freed stays, once it was recomputed for others.
enum class FreedValues : std::uint8_t {
  kStay,   ///< Until it is evicted.
  kLeave,  ///< Behind the operator that asked for them.
};

/// Runs a step under a budget as an on-line recomputation does: when room is missing, the value
/// with the least score goes, and what an operator lacks is recomputed first. The score is that
/// of DTR with equivalence classes: compute time of the value and of the evicted ones around it,
/// over its pages and the time since its last use.
///
/// Returns the operators that ran again until the step's end, or until the eviction stopped: where
/// nothing helps, where it runs in circles, and when it is told to stop.
std::vector<Replay> evicted_on_line(const StepTape& tape, const Recomputation& all,
                                    std::uint32_t budget_pages, FreedValues freed,
                                    const StopCheck& should_stop);

}  // namespace spillway::planner
