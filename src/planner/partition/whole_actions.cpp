#include "whole_actions.h"

#include <algorithm>
#include <vector>

#include "layer_figures.h"
#include "ranked_sums.h"
#include "spillway/base/assert.h"

namespace spillway::partition {
namespace {

constexpr std::size_t kMostSets = 2048;
constexpr std::size_t kFewestSets = 8;
/// Over all layers of a segment.
constexpr std::size_t kMostKept = std::size_t{1} << 19;

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
  PointSets(const SegmentCosts& costs, Segment segment) : costs_(costs) {
    const PartitionProblem& problem = costs.problem();
    const std::vector<ModelLayer>& layers = problem.chain.layers;
    const double slowdown = problem.devices[segment.stage].slowdown;
    const LayerIndex lead = leading_frozen_layers(problem.chain);
    const LayerIndex end = costs.first_layer(segment.end);
    for (LayerIndex i = std::max(lead, costs.first_layer(segment.first)); i < end; ++i) {
      LayerChoice choice{i, useful_points(layers[i]), 0.0};
      if (choice.points.back().b <= 0.0) continue;
      for (SumPair& point : choice.points) {
        point.a *= slowdown;
        if (point.b > 0.0) choice.density = std::max(choice.density, density_of(point));
      }
      choices_.push_back(std::move(choice));
    }
    // The best ones first, so that good sets come early and rule out others.
    std::stable_sort(choices_.begin(), choices_.end(),
                     [](const LayerChoice& one, const LayerChoice& other) {
                       return one.density > other.density;
                     });
    for (std::uint32_t c = 0; c < choices_.size(); ++c) {
      const std::vector<SumPair>& points = choices_[c].points;
      const std::vector<SumPair> hull = hull_of(points);
      std::uint32_t place = 0;
      for (std::size_t k = 1; k < hull.size(); ++k) {
        while (points[place].b < hull[k].b) ++place;  // Both grow.
        const SumPair size = hull[k] - hull[k - 1];
        steps_.push_back({c, place, size, density_of(size)});
      }
    }
    std::stable_sort(steps_.begin(), steps_.end(), [](const Step& one, const Step& other) {
      return one.density > other.density;
    });
    most_sets_ =
        std::clamp(kMostKept / std::max<std::size_t>(1, choices_.size()), kFewestSets, kMostSets);
  }

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

  std::vector<UndecidedLayers> undecided(double price) const {
    std::vector<UndecidedLayers> rest(choices_.size() + 1);
    rest.back().price = price;
    for (std::size_t i = choices_.size(); i-- > 0;) {
      double free = 0.0;
      for (const SumPair& point : choices_[i].points)
        free = std::max(free, point.b - price * point.a);
      rest[i] = {rest[i + 1].saved + choices_[i].points.back().b, rest[i + 1].free + free, price};
    }
    return rest;
  }

  /// Drops sets that others beat, and every other one while there are too many.
  void keep_useful(std::vector<PointSet>& sets) const {
    // To the last figure, since equal sets in another order would make another plan elsewhere.
    std::sort(sets.begin(), sets.end(), [](const PointSet& one, const PointSet& other) {
      if (one.seconds != other.seconds) return one.seconds < other.seconds;
      if (one.saved != other.saved) return one.saved > other.saved;
      return one.before != other.before ? one.before < other.before : one.point < other.point;
    });
    std::size_t count = 0;
    double saved = -1.0;
    for (const PointSet& set : sets) {
      // All before it take no longer, so it has to save more.
      if (set.saved <= saved) continue;
      saved = set.saved;
      sets[count++] = set;
    }
    sets.resize(count);
    // Neighbours are alike, so every other one still spans all times.
    while (sets.size() > most_sets_) {
      std::size_t left = 0;
      for (std::size_t i = 0; i < sets.size(); i += 2) sets[left++] = sets[i];
      sets.resize(left);
    }
  }

  WholeActions chosen(const std::vector<std::vector<PointSet>>& sets, std::size_t layer,
                      std::uint32_t set) const {
    std::vector<std::uint32_t> places(choices_.size(), kAsItIs);
    for (; layer > 0; --layer) {
      const PointSet& here = sets[layer][set];
      places[layer - 1] = here.point;
      set = here.before;
    }
    return actions_of(places);
  }

  WholeActions actions_of(const std::vector<std::uint32_t>& places) const {
    WholeActions actions;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const LayerChoice& choice = choices_[i];
      if (places[i] == kAsItIs) continue;
      actions.recompute_seconds += choice.points[places[i]].a;
      actions.saved_bytes += choice.points[places[i]].b;
      if (choice.points[places[i]].b > 0.0)
        actions.points.push_back({choice.layer, index_of(choice, places[i])});
    }
    std::sort(
        actions.points.begin(), actions.points.end(),
        [](const ChosenPoint& one, const ChosenPoint& other) { return one.layer < other.layer; });
    return actions;
  }

  /// Returns the place of that point in the list of the layer itself.
  std::uint32_t index_of(const LayerChoice& choice, std::uint32_t point) const {
    const ModelLayer& layer = costs_.problem().chain.layers[choice.layer];
    const SumPair wanted = useful_points(layer)[point];
    // By the same arithmetic as there: a difference of counts is rounded elsewhere above 2^53.
    const auto found = std::find_if(
        layer.recompute.begin(), layer.recompute.end(), [&](const RecomputePoint& each) {
          return each.seconds == wanted.a &&
                 as_double(layer.stash) - as_double(each.stash) == wanted.b;
        });
    SPILLWAY_ASSERT(found != layer.recompute.end());
    return static_cast<std::uint32_t>(found - layer.recompute.begin());
  }

  const SegmentCosts& costs_;
  std::vector<LayerChoice> choices_;
  std::vector<Step> steps_;  ///< Of all choices, most bytes per second first.
  std::size_t most_sets_ = 0;
};

/// With so much recomputed. What must go per micro-batch is `excess`.
double time_of(SegmentLoad load, double recomputed, double saved, double excess) {
  const double rate = load.swap_rate.bytes_per_second();
  load.seconds += recomputed;
  const double seconds = load.busy_seconds();
  const double left = excess - saved;
  if (left <= 0.0) return seconds;
  // What recomputation leaves has to pass the link within the time of the stage.
  return rate > 0.0 ? std::max(seconds, left / rate) : kNever;
}

/// Least time: recomputation takes longer, and leaves less to the link.
struct LeastTime {
  SegmentLoad load;
  double excess = 0.0;

  double value(const PointSet& set) const { return time_of(load, set.seconds, set.saved, excess); }
  /// The least over the time that other layers recompute, with what they save in it at most: where
  /// the stage and its link are busy equally long.
  double bound(const PointSet& set, const UndecidedLayers& rest) const {
    const double rate = load.swap_rate.bytes_per_second();
    const double left = excess - set.saved;
    double more = 0.0;
    if (left > rest.saved_in(0.0) && rest.price > 0.0) {
      const double until_done = (std::min(left, rest.saved) - rest.free) / rest.price;
      const double until_even =
          (left - rest.free - rate * (load.seconds + set.seconds)) / (rate + rest.price);
      more = std::max(0.0, rate > 0.0 ? std::min(until_even, until_done) : until_done);
    }
    // Where there is no link, only what the rest cannot save at all rules it out, not rounding.
    if (rate <= 0.0) {
      if (left > rest.saved) return kNever;
      return time_of(load, set.seconds + more, left, left);
    }
    return time_of(load, set.seconds + more, set.saved + rest.saved_in(more), excess);
  }
  bool is_enough(const PointSet& set) const {
    const double left = excess - set.saved;
    if (left <= 0.0) return true;
    const double rate = load.swap_rate.bytes_per_second();
    return rate > 0.0 && (load.seconds + set.seconds) * rate >= left;
  }
};

/// Most bytes saved in a time.
struct MostSaved {
  double slack = 0.0;

  double value(const PointSet& set) const { return set.seconds <= slack ? -set.saved : kNever; }
  double bound(const PointSet& set, const UndecidedLayers& rest) const {
    return set.seconds <= slack ? -(set.saved + rest.saved_in(slack - set.seconds)) : kNever;
  }
  bool is_enough(const PointSet& set) const { return set.seconds > slack; }
};

}  // namespace

double seconds_with(const SegmentLoad& load, const WholeActions& actions, double bytes) {
  return time_of(load, actions.recompute_seconds, actions.saved_bytes, load.excess_bytes(bytes));
}

WholeActions quickest_actions(const SegmentCosts& costs, Segment segment, double bytes,
                              double below) {
  LeastTime goal{costs.load(segment)};
  goal.excess = goal.load.excess_bytes(bytes);
  if (goal.excess <= 0.0 || goal.excess == kNever) return {};
  return PointSets(costs, segment).best(goal, below);
}

WholeActions most_saving_actions(const SegmentCosts& costs, Segment segment, double seconds) {
  return PointSets(costs, segment).best(MostSaved{seconds - costs.load(segment).seconds}, kNever);
}

}  // namespace spillway::partition
