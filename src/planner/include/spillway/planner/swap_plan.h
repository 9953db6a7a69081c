#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/profile/step_tape.h"
#include "spillway/profile/transfer_rates.h"

namespace spillway::planner {

using profile::FarTier;
using profile::OpIndex;
using profile::StepTape;
using profile::TransferRates;
using profile::ValueIndex;

/// Asked now and then; true ends the work soon with what there is. None: never. Once true, it stays
/// so.
using StopCheck = std::function<bool()>;

inline bool is_told(const StopCheck& should_stop) { return should_stop && should_stop(); }

/// Where copies of pages are.
enum class Tier : std::uint8_t {
  kNear,  ///< The only store, or the first one of two: a GPU's host memory.
  kFar,   ///< The tier behind it: a disk.
};

/// Limits of a plan.
struct SwapLimits {
  std::uint32_t budget_pages = 0;  ///< Pages that may be resident at once.
  Bytes page_size{std::uint64_t{2} << 20};
  TransferRates rates;  ///< Rates of the only store, or of the link to the near tier.
  std::optional<FarTier> far = std::nullopt;  ///< None: one store, without an end.
  double target_share = 0.88;  ///< Share of the budget to fill, the first one that is tried.
  /// Operators that may be simulated to refine the best plan swap by swap; bounds planning time.
  std::size_t refinement_ops = 500000;
};

/// Throws ConfigError for senseless ones: no budget, a rate of zero, a share above one.
void check(const SwapLimits& limits);

/// A disk behind a link as one store: the lower rates, both fixed costs and interferences, and the
/// larger share of the two directions.
TransferRates rates_behind(const TransferRates& link, const TransferRates& disk);

/// Distances in `SwapPlan` for values that are not used again.
inline constexpr std::uint32_t kDiesUnused = static_cast<std::uint32_t>(-1);
inline constexpr std::uint32_t kStaysUnused = static_cast<std::uint32_t>(-2);
inline constexpr OpIndex kNoOp = static_cast<OpIndex>(-1);

/// Some pages of a value leave after one operator and come back for another.
struct PlannedSwap {
  ValueIndex value = 0;         ///< As numbered where it leaves.
  ValueIndex fetch_value = 0;   ///< As numbered where its fetch starts; differs across the end.
  ValueIndex needed_value = 0;  ///< As numbered where it is used next.
  std::uint32_t pages = 0;      ///< The last ones of the value.
  OpIndex leave = 0;            ///< The write-out starts when this operator has finished.
  OpIndex fetch = kNoOp;        ///< The fetch starts before this operator; none for unused values.
  OpIndex needed = kNoOp;       ///< The operator that uses it next.
  OpIndex last_touch = 0;       ///< The operator that used it last.
  /// Another swap finds the copy that this one has made, and writes nothing.
  bool keeps_copy = false;
  /// Of its pages, the first ones: they go to the far tier. So does, of the others, what the near
  /// tier has no room for.
  std::uint32_t far_pages = 0;
  /// Operators from `leave` to the fetch, or to the end of an unused value: so long it is out. More
  /// than the step has, when it stays out for several steps.
  std::uint32_t out_ops = 0;
};

/// Prediction of the event model for one repetition of the step, once it has settled.
struct StepEstimate {
  double step_seconds = 0.0;   ///< Compute, stalls and interference.
  double stall_seconds = 0.0;  ///< Part of it: stalls for pages or for room.
  double interference_seconds =
      0.0;  ///< Part of it: slowdown of operators by transfers beside them.
  std::uint64_t written_pages = 0;
  std::uint64_t read_pages = 0;
  std::uint64_t far_written_pages = 0;  ///< Part of the written pages: to the far tier.
  std::uint64_t far_read_pages = 0;
  std::uint32_t near_peak_pages = 0;   ///< Most pages of the near tier taken, where there are two.
  std::uint32_t peak_pages = 0;        ///< Most pages resident at once.
  std::uint32_t demand_reads = 0;      ///< Values that an operator had to ask for itself.
  std::uint32_t forced_evictions = 0;  ///< Pages that left although the plan kept them.
  bool is_complete = true;             ///< False when the model gave up: the plan does not work.
  bool is_settled = true;  ///< False when no two repetitions were equal: a mean of several.
};

/// Lists per operator: entries first[i] to first[i + 1] belong to operator i.
struct PerOp {
  std::span<const std::uint32_t> of(OpIndex op) const {
    return {entries.data() + first[op], entries.data() + first[op + 1]};
  }

  std::vector<std::uint32_t> first;
  std::vector<std::uint32_t> entries;
};

/// Which values leave and come back during a repeating step, and when.
struct SwapPlan {
  std::vector<PlannedSwap> swaps;
  PerOp write_outs;  ///< Swaps by the operator after whose end they start.
  PerOp fetches;     ///< Swaps by the operator before which they start, most urgent first.
  /// Operators until the next use, parallel to `StepTape::uses`; the step repeats.
  std::vector<std::uint32_t> use_distance;
  /// The same from the birth of a value on; for carried-in values from before operator 0 on.
  std::vector<std::uint32_t> birth_distance;
  /// Pages that fetches started before operator i must leave free for the next operators.
  std::vector<std::uint32_t> reserve_pages;
  PerOp births;  ///< Values by the operator of their birth, in the order of allocation.

  StepEstimate estimate;
  std::uint32_t smallest_budget_pages = 0;  ///< Below it some operator cannot run.
  bool is_feasible = false;                 ///< Whether the budget reaches that.
  double filled_share = 0.0;                ///< Share of the budget that was chosen.
};

/// Runs the event model (see README.md) over the repeating step under a plan.
StepEstimate estimate_step(const StepTape& tape, const SwapPlan& plan, const SwapLimits& limits);

/// The smallest budget in pages under which every operator can run.
std::uint32_t smallest_budget(const StepTape& tape);

/// The first operator that sets it; kNoOp for an empty tape.
OpIndex neediest_operator(const StepTape& tape);

/// Most pages that the step holds without any swapping.
std::uint32_t live_peak(const StepTape& tape);

/// Decisions of a SwapPlan, from which it can be made again on its tape.
struct SwapChoices {
  std::vector<PlannedSwap> swaps;
  std::vector<std::uint32_t> write_outs;      ///< Every swap, in the order in which they leave.
  std::vector<std::uint32_t> fetches;         ///< Those that come back, in the order of fetches.
  std::vector<std::uint32_t> reserve_pages;   ///< Per operator.
  std::vector<std::uint32_t> use_distance;    ///< Empty: as the tape tells. Parallel to its uses.
  std::vector<std::uint32_t> birth_distance;  ///< The same, per value.
  double filled_share = 0.0;
};

SwapChoices choices_of(const StepTape& tape, const SwapPlan& plan);

/// The plan with these choices: everything else is found anew, so the estimate is that of the given
/// limits; without a bound. Throws PlanError with the first choice that the tape contradicts.
/// The limits must be sensible.
SwapPlan restore_swaps(const StepTape& tape, const SwapChoices& choices, const SwapLimits& limits);

}  // namespace spillway::planner
