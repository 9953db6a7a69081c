#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// Actions that come into an action list, each before the one at a position; of one position in the
/// order in which they were added.
class Insertions {
 public:
  void add(std::size_t before, const Action& action) { entries_.push_back({before, action}); }

  void apply(std::vector<Action>& list) {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.before < b.before; });
    std::vector<Action> longer;
    longer.reserve(list.size() + entries_.size());
    auto entry = entries_.begin();
    for (std::size_t i = 0; i <= list.size(); ++i) {
      for (; entry != entries_.end() && entry->before == i; ++entry)
        longer.push_back(entry->action);
      if (i < list.size()) longer.push_back(list[i]);
    }
    list = std::move(longer);
  }

 private:
  struct Entry {
    std::size_t before = 0;
    Action action;
  };

  std::vector<Entry> entries_;
};

/// Another action of the same micro-batch on the same stage.
inline Action as(ActionKind kind, Action action) {
  action.kind = kind;
  action.overlaps_next = false;
  return action;
}

/// The position before the receives that stand right before `i`, or before what runs as one with
/// it.
inline std::size_t before_receives(const std::vector<Action>& list, std::size_t i) {
  if (i > 0 && list[i - 1].overlaps_next) --i;
  while (i > 0 && is_receive(list[i - 1].kind)) --i;
  return i;
}

/// The position behind the sends of what the action at `i` has made.
inline std::size_t behind_sends(const std::vector<Action>& list, std::size_t i) {
  if (list[i].overlaps_next) ++i;
  do ++i;
  while (i < list.size() && is_send(list[i].kind));
  return i;
}

/// The latest places of copies back in an action list that let them start in time: the list starts
/// them when the compute before is over.
class LatestStarts {
 public:
  LatestStarts(const std::vector<Action>& list, const std::vector<ActionSpan>& spans)
      : spans_(spans) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (is_compute(list[i].kind) && !list[i].overlaps_next) computes_.push_back(i);
  }

  /// The last position before that of `use` where a copy starts by `seconds`.
  std::size_t before(std::size_t use, double seconds) const {
    const auto behind = std::partition_point(
        computes_.begin(), computes_.end(),
        [&](std::size_t i) { return i < use && spans_[i].end_seconds <= seconds; });
    return behind == computes_.begin() ? 0 : *std::prev(behind) + 1;
  }

 private:
  const std::vector<ActionSpan>& spans_;
  std::vector<std::size_t> computes_;  // Positions; they end one after the other.
};

}  // namespace spillway::planner
