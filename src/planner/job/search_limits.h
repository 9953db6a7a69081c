#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/planner/schedule/schedule_passes.h"

namespace spillway::job {

// Limits of the search for the plan of a job, and what each is for. All are counts, so that the
// same plan is found on every machine. A pass is one micro-batch through one stage.

/// Passes of all default candidates, and of all variants: some 40 s each.
inline constexpr std::uint64_t kMostPasses = std::uint64_t{1} << 21U;
/// Variants that are tried: what they win becomes less, and each takes as long as a default one.
inline constexpr std::uint64_t kMostVariants = 128;
/// Next smaller numbers of micro-batches: fewer ones only pay where each costs something itself.
inline constexpr std::size_t kMostFewerCounts = 3;
/// Deferred candidates: the likeliest win, and nobody has seen one win behind so many.
inline constexpr std::uint64_t kMostDeferred = 40;
/// Passes of the candidates that see the cuts of all partitioners after their first cuts, of which
/// there are 13.
inline constexpr std::uint64_t kMostPassesAgain = 2048;

/// Passes of an action list up to which it sees the cuts of all partitioners, and up to which it
/// sees these for less memory too, four times as many.
inline constexpr std::uint64_t kMostPassesOfAllCuts = 4096;
inline constexpr std::uint64_t kMostPassesForLess = 256;
/// How much faster a step may become by other cuts than those that are made with unlimited memory,
/// or for the slowest stage: a step is more than that. Seen: a fifth.
inline constexpr double kMostGainOfCuts = 1.25;
/// Stages up to which the cuts that count messages are balanced: beyond, that takes seconds.
inline constexpr std::uint32_t kMostBalancedWithMessages = 128;

/// Steps in which room is taken away from the stages of a full rank. Two do where it has two.
inline constexpr std::size_t kMostBudgetSteps = 4;

/// Passes of an action list up to which swaps in idle time are looked for.
inline constexpr std::uint64_t kMostPassesOfOffload = 1U << 14U;
/// Passes of all simulations of that search: longer lists get fewer simulations than
/// `kMostOffloadRuns`, so that the search takes no longer.
inline constexpr std::uint64_t kMostPassesOfOffloadRuns = 1024 * planner_schedule::kMostOffloadRuns;

}  // namespace spillway::job
