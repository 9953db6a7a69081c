#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/planner/recomputation.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Whether a value is dropped between two touches, and how it is recomputed.
enum class Fate : std::uint8_t {
  kStays,          ///< In memory or in the store, as the swaps decide.
  kDrops,          ///< Recomputed; it stays from then on, also when others need it earlier.
  kDropsEachTime,  ///< Recomputed, for each need anew.
};

/// How `DropSpace::extended` weighs replays against transfers.
struct DropPressure {
  double share = 1.0;            ///< Share of the budget to fill.
  double transfer_weight = 1.0;  ///< Weight of a second of transfers, in seconds of replays.
};

/// All drops that can relieve a tape, and sets of them: one fate per drop. First come values that
/// can leave between two touches, by the first touch, then ingredients: values that are dead when
/// a replay needs them. Ingredients never stay in the original tape; computed once, they are kept
/// for further replays or not. Keeps references to tape and limits.
class DropSpace {
 public:
  DropSpace(const StepTape& tape, const SwapLimits& limits);

  bool empty() const { return candidates_.empty(); }
  std::size_t size() const { return candidates_.size() + ingredients_.size(); }
  bool is_ingredient(std::size_t index) const { return index >= candidates_.size(); }
  /// Nothing is dropped.
  std::vector<Fate> nothing() const;

  /// None where so much would run again that no step is faster for it.
  std::optional<std::vector<Replay>> replays(const std::vector<Fate>& fates) const;
  /// The fates that come nearest to a tape with replays, however these were found.
  std::vector<Fate> fates_in(const RewrittenTape& steps) const;
  /// Looks at the tape that fates lead to, and drops more where it is still too full: what can be
  /// dropped there and is cheaper to recompute than to move, at dual prices.
  std::vector<Fate> extended(const std::vector<Fate>& fates, const RewrittenTape& steps,
                             DropPressure pressure, std::size_t spared = kNoOp) const;
  /// The reverse: keeps what the tape has room for, the dearest to compute first.
  std::vector<Fate> pruned(const std::vector<Fate>& fates, const RewrittenTape& steps,
                           double share) const;

 private:
  struct Candidate {
    Drop drop;
    OpIndex next = 0;              ///< The operator that asks for it again.
    std::vector<OpIndex> replays;  ///< The least that runs again for it.
  };
  /// The value that can be dropped in an interval of a rewritten tape.
  struct Option {
    std::uint32_t drop = kNoOp;  ///< Among all drops; kNoOp: nothing.
    double seconds = 0.0;
  };

  /// A stretch of a rewritten tape in which a dropped value is away, and what that costs.
  struct Gap {
    std::uint32_t drop = 0;
    OpIndex first = 0;  ///< Operator of the rewritten tape.
    OpIndex end = 0;
    std::uint32_t pages = 0;
    double seconds = 0.0;
  };

  void find_candidates();
  void find_ingredients();
  void index_by_value();
  std::uint32_t drop_at(ValueIndex value, OpIndex before) const;
  std::vector<Option> options(const std::vector<Fate>& fates, const RewrittenTape& steps,
                              const struct TouchIntervals& touches) const;
  std::vector<Gap> gaps(const std::vector<Fate>& fates, const RewrittenTape& steps) const;

  const StepTape& tape_;
  const SwapLimits& limits_;
  const Recomputation all_;
  std::vector<Candidate> candidates_;
  std::vector<Drop> ingredients_;
  std::vector<std::uint32_t> first_of_value_;  ///< Into `of_value_`.
  std::vector<std::uint32_t> of_value_;        ///< Drops by value.
};

}  // namespace spillway::planner
