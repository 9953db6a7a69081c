#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tier_choice.h"

namespace spillway::planner {

// Limits of the search for the plan of one device's step, and what each is for. Effort is counted
// in simulated operators, not in time, so that who never stops it gets the same plan everywhere.
// search.md tells the whole way; that of jobs has its limits in job/search_limits.h.

// The whole search, as multiples of `SwapLimits::refinement_ops`. Who may stop it wants all that
// its time allows.
inline constexpr std::size_t kEffort = 4;
inline constexpr std::size_t kStoppableEffort = 40;
// A step that takes hardly longer than its operators needs no better plan.
inline constexpr double kAlmostCompute = 1.0005;
inline constexpr double kOnlyCompute = 1.0 + 1e-9;

// What must be gained to be preferred to what was tried before. Of swaps much: fuller plans leave
// less room for what the model does not know. Refining goes in smaller steps, and a single replay
// less is worth hardly more than a copy of the plan.
inline constexpr double kWorthwhileSwaps = 0.999;
inline constexpr double kWorthRefining = 0.9998;
inline constexpr double kWorthwhileDrops = 0.9999;
inline constexpr double kWorthwhileReplay = 0.99999;

// Swaps. Shares of the budget to fill beside the wanted one, how many of them are gone on with, and
// what is varied one by one around `TransferStyle`.
inline constexpr std::array<double, 4> kOtherShares{1.0, 0.96, 0.92, 0.8};
inline constexpr std::size_t kRefinedStarts = 3;
inline constexpr std::array<double, 3> kOtherLeads{0.0, 1.0, 8.0};
inline constexpr std::array<std::uint32_t, 2> kOtherReserveOps{1, 3};
inline constexpr std::array<TierRule, 3> kTierRules{TierRule::kShortest, TierRule::kLeastTime,
                                                    TierRule::kFirst};
// Plans that wait for so small a share of the step are good enough.
inline constexpr double kSmallStall = 0.005;
// What all ways of swapping for one set of drops count, in plans.
inline constexpr std::size_t kSwapTries = 30;

// Rounds in which prices of operators settle; where many drop sets are tried, near ones do. After
// so many the pace has halved.
inline constexpr int kPriceRounds = 160;
inline constexpr int kFewPriceRounds = 64;
inline constexpr double kCoolingRounds = 16.0;

// Drops. One that takes more operators than these is never worth it; a walk that takes so many for
// one value is given up, which bounds its recursion, too.
inline constexpr std::size_t kMostOpsOfDrop = 128;
inline constexpr std::size_t kMostReplays = 4096;
// Replays in a plan, of all operators on average; short steps have some more for free.
inline constexpr std::size_t kMostRounds = 4;
inline constexpr std::size_t kFreeReplays = 1000;
// Only what relieves operators that are fuller than this share of the budget is looked at: replays
// bring values back, so those near the budget may get too full.
inline constexpr double kFullShare = 0.85;

// The sweep. Shares of the budget, and what a second of transfers counts in seconds of replays, or
// one over it: from links that have time to spare to those that have none. Finer around the best.
inline constexpr std::array<double, 3> kDropShares{1.0, 0.94, 0.88};
inline constexpr double kMostWeight = 64.0;
inline constexpr double kWeightStep = 2.0;
inline constexpr std::array<double, 3> kFineWeights{0.7, 1.0, 1.4};
inline constexpr int kSweepRounds = 8;  // For one weight, until no operator is too full again.
inline constexpr std::size_t kStarts = 3;

// Plans of others: what one counts, in plans of ours; how many are starts, with the known plan;
// and operators up to which they are made where nobody stops the search, as some take long.
inline constexpr std::size_t kPublishedTries = 2;
inline constexpr std::size_t kGivenStarts = 1;
inline constexpr std::size_t kMostOpsUnstopped = 10000;
// On-line evictions: their room in budgets (what goes beyond is swapped), and the operators of
// steps up to which they run, since they look at all that is resident again and again. One that
// runs so much again goes in circles.
inline constexpr std::array<double, 7> kEvictionShares{1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0};
inline constexpr std::size_t kMostOpsEvicted = 5000;
inline constexpr std::size_t kMostReplaysPerOp = 20;
// So many of their lists go on, and lose needless replays for at most this share of the effort that
// is left. Those so far behind the best would not come near it by that.
inline constexpr std::size_t kLists = 3;
inline constexpr double kPruneShare = 0.1;
inline constexpr double kFarBehind = 1.1;

// The local search. Trying drops one by one may take this share of what is left; the rest is for
// moves that change several at once.
inline constexpr double kClimbShare = 0.3;
inline constexpr double kSlack = 0.003;  // By which it may lose at first; in the end by nothing.
inline constexpr std::size_t kTriesPerStyle = 200;
inline constexpr std::size_t kTriesPerStart = 50;
inline constexpr std::array<double, 5> kOtherWeights{0.25, 0.5, 1.0, 2.0, 4.0};
inline constexpr int kTakeBackRounds = 4;
inline constexpr int kPicks = 32;  // Until a random drop is one that is dropped.

}  // namespace spillway::planner
