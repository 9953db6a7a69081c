#pragma once

#include <optional>
#include <vector>

#include "segment_goal.h"

namespace spillway::planner {

/// Cuts from `first` on that a stage can begin at.
struct ReachedCuts {
  static constexpr std::uint32_t kNone = 0xffff'ffff;

  void add(bool is_reached) {
    const auto place = static_cast<std::uint32_t>(latest.size());
    latest.push_back(is_reached ? place : latest.empty() ? kNone : latest.back());
  }
  bool is_empty() const { return latest.empty() || latest.back() == kNone; }
  /// The last one of all; there is one.
  std::uint32_t last() const { return first + latest.back(); }
  /// The last one before `cut`, or kNone.
  std::uint32_t last_before(std::uint32_t cut) const {
    if (cut <= first || latest.empty()) return kNone;
    const std::uint32_t place =
        latest[std::min(cut - first, static_cast<std::uint32_t>(latest.size())) - 1];
    return place == kNone ? kNone : first + place;
  }
  bool covers(std::uint32_t cut) const { return cut >= first && cut - first < latest.size(); }
  bool has(std::uint32_t cut) const { return latest[cut - first] == cut - first; }

  std::uint32_t first = 0;
  std::vector<std::uint32_t> latest;  ///< The last place up to here that some lead to.
};

/// What probes at other costs have found: what can be reached at less can be reached at more. This
/// leaves little to look at when two of them are near.
struct KnownCuts {
  std::vector<ReachedCuts> at_less, at_more;  ///< By stages before the cut; may end early.

  bool is_reached(std::uint32_t stages, std::uint32_t cut) const {
    return stages < at_less.size() && at_less[stages].covers(cut) && at_less[stages].has(cut);
  }
  bool is_beyond(std::uint32_t stages, std::uint32_t cut) const {
    return stages < at_more.size() && at_more[stages].covers(cut) && !at_more[stages].has(cut);
  }
};

struct ReachableCuts {
  std::optional<std::vector<std::uint32_t>> cuts;  ///< Stages + 1, no stage empty.
  double next_cost = kNever;                       ///< Without cuts: nothing below it has any.
  std::vector<ReachedCuts> reached;
};

/// Cuts whose segments cost at most `at`, whatever way costs change with the segment. Keeps, stage
/// by stage, the cuts that can be reached: a stage ends at j when it can begin at some i from which
/// its segment costs at most `at`. What the bounds of the costs rule out is not looked at: cuts
/// behind the filling from the left or before that from the right, and beginnings whose segment is
/// too long for the lower bound.
ReachableCuts reachable_cuts(const SegmentGoal& goal, const CutRange& range, double at,
                             const KnownCuts& known = {});

}  // namespace spillway::planner
