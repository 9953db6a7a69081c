#pragma once

#include <cstdint>

#include "spillway/planner/schedule/generators.h"

namespace spillway::planner {

/// The order in which micro-batches follow each other.
enum class Repetition : std::uint8_t {
  kInGroups,  ///< A group goes through one stage of a rank, then through its next one.
  kEvenly,    ///< Each follows the one before by as much as a rank works for it.
};

/// The action lists of a rank with several stages as one pattern, the same for each micro-batch,
/// whose forwards of two stages in a row on a rank are `group` slots apart, and its backwards too;
/// a slot is a forward and both halves of a backward, each a tick long. The smaller the group, the
/// shorter a stash lives. Weight gradients come right behind their input gradients.
///
/// `group` is from half of the ranks, rounded up, to all of them: below, a micro-batch would not
/// be through the other ranks in time.
Schedule repeated_blocks(const ScheduleRequest& request, std::uint32_t group,
                         Repetition repetition);

}  // namespace spillway::planner
