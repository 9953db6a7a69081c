#pragma once

#include <algorithm>
#include <vector>

#include "ranked_sums.h"
#include "whole_actions.h"

namespace spillway::planner {

/// A set of points of the layers so far: the one before, and what the last layer takes.
struct PointSet {
  double seconds = 0.0;
  double saved = 0.0;
  std::uint32_t before = 0;
  std::uint32_t point = 0;  ///< Of the layer's useful points.
};

/// What layers that are not decided yet can save. At the price of the last step that fractions
/// take, bytes per second, they save `free` more than they cost, whatever they take.
struct UndecidedLayers {
  double saved = 0.0;
  double free = 0.0;
  double price = 0.0;

  /// Returns the bytes that they save in so many seconds at most.
  double saved_in(double seconds) const {
    return price > 0.0 ? std::min(saved, free + price * seconds) : std::min(saved, free);
  }
};

/// The layers of a segment with something to recompute, and the search for the best set of their
/// points. A `Goal` has
///
///     double value(const PointSet&) const;                             // The less the better.
///     double bound(const PointSet&, const UndecidedLayers&) const;     // Of all that begin so.
///     bool is_enough(const PointSet&) const;                           // More does not help.
class PointSets {
 public:
  PointSets(const SegmentCosts& costs, Segment segment);

  /// The set of least value, if that is less than `below`; else any set.
  template <typename Goal>
  WholeActions best(const Goal& goal, double below) const {
    Rounded best = rounded(goal);
    double least = std::min(below, best.value);
    const std::vector<UndecidedLayers> rest = undecided(best.price);
    std::vector<std::vector<PointSet>> sets{{PointSet{}}};
    std::size_t best_layer = 0;  // 0: the rounded one.
    std::uint32_t best_set = 0;
    std::uint64_t looked = 0;
    std::vector<PointSet> all;
    for (std::size_t i = 0; i < choices_.size() && !sets[i].empty(); ++i) {
      all.clear();
      for (std::uint32_t s = 0; s < sets[i].size(); ++s) {
        // It takes nothing of this layer's, by the first point or as it is.
        for (std::uint32_t p = 0; p < choices_[i].points.size(); ++p) {
          const SumPair& point = choices_[i].points[p];
          const PointSet set{sets[i][s].seconds + point.a, sets[i][s].saved + point.b, s, p};
          if (goal.bound(set, rest[i + 1]) < least) all.push_back(set);
        }
      }
      looked += sets[i].size() * choices_[i].points.size();
      keep_useful(all);
      for (std::uint32_t s = 0; s < all.size(); ++s) {
        const double value = goal.value(all[s]);
        if (value < least) least = value, best_layer = i + 1, best_set = s;
      }
      sets.emplace_back(all.begin(), all.end());  // Without the room of those that are left out.
    }
    WholeActions actions =
        best_layer == 0 ? actions_of(best.places) : chosen(sets, best_layer, best_set);
    actions.sets = looked + choices_.size();
    return actions;
  }

 private:
  struct LayerChoice {
    LayerIndex layer = 0;
    std::vector<SumPair> points;  ///< On the stage's device: seconds, bytes saved.
    double density = 0.0;
  };

  /// The way from one point of a layer to its next one on the hull.
  struct Step {
    std::uint32_t choice = 0;
    std::uint32_t point = 0;  ///< Of the layer, which it leads to.
    SumPair size;
    double density = 0.0;
  };

  struct Rounded {
    std::vector<std::uint32_t> places;  ///< By choice: its point.
    double value = kNever;
    double price = 0.0;  ///< Of the step that was rounded.
  };

  /// Steps by bytes per second until they are enough; without the last one where that is better.
  template <typename Goal>
  Rounded rounded(const Goal& goal) const {
    Rounded best{std::vector<std::uint32_t>(choices_.size(), kAsItIs), goal.value({}), 0.0};
    std::vector<std::uint32_t> places = best.places;
    PointSet set;
    for (const Step& step : steps_) {
      if (step.density < kNever) best.price = step.density;
      const PointSet before = set;
      set.seconds += step.size.a;
      set.saved += step.size.b;
      if (goal.is_enough(set) && goal.value(before) < best.value)
        best.value = goal.value(before), best.places = places;
      places[step.choice] = step.point;
      if (goal.is_enough(set)) break;
    }
    if (goal.value(set) < best.value) best.value = goal.value(set), best.places = places;
    return best;
  }

  static constexpr std::uint32_t kAsItIs = 0xffff'ffff;

  std::vector<UndecidedLayers> undecided(double price) const;
  /// Drops sets that others beat, and every other one while there are too many.
  void keep_useful(std::vector<PointSet>& sets) const;
  WholeActions chosen(const std::vector<std::vector<PointSet>>& sets, std::size_t layer,
                      std::uint32_t set) const;
  WholeActions actions_of(const std::vector<std::uint32_t>& places) const;
  /// Returns the place of that point in the list of the layer itself.
  std::uint32_t index_of(const LayerChoice& choice, std::uint32_t point) const;

  const SegmentCosts& costs_;
  std::vector<LayerChoice> choices_;
  std::vector<Step> steps_;  ///< Of all choices, most bytes per second first.
  std::size_t most_sets_ = 0;
};

}  // namespace spillway::planner
