#pragma once

#include <cstdint>
#include <functional>

#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

/// Which way a replica walks through the ranks.
enum class GemsDirection : std::uint8_t {
  kSame,     ///< Stage s on rank s in every replica.
  kInTurns,  ///< Stage s on rank s in even replicas, on rank ranks − 1 − s in odd ones.
};

/// Replica by replica: all forwards of a rank's stage, then all its backwards in the same order.
/// Nothing else controls it: the rank that ends a replica's backward first begins the next one's
/// forward.
Schedule gems_chain(const ScheduleRequest& request, std::uint32_t replicas,
                    GemsDirection direction);

/// Why so many replicas cannot share the micro-batches evenly; `name` is that of the generator.
std::optional<std::string> fault_of_gems(const ScheduleRequest& request, std::uint32_t replicas,
                                         std::string_view name);

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

/// The ticks at which a rank works on micro-batch 0, each action one tick long: forward down the
/// ranks, forward back, backward of the way back, backward of the way down. Micro-batch i follows
/// 6·i ticks later, so no two of them may be equal modulo 6; two more are left for its weight
/// gradients.
struct VPattern {
  std::uint32_t forward_down = 0;
  std::uint32_t forward_back = 0;
  std::uint32_t backward_back = 0;
  std::uint32_t backward_down = 0;
};

/// Forwards and input gradients in the order of the repeated pattern, weight gradients where a rank
/// would wait, as long as none holds more than the repeated pattern does.
Schedule repeated_v(const ScheduleRequest& request,
                    const std::function<VPattern(std::uint32_t rank)>& pattern_of);

}  // namespace spillway::planner_schedule
