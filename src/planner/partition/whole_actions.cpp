#include "whole_actions.h"

#include <algorithm>
#include <limits>

#include "recompute_items.h"

namespace spillway::planner {
namespace {

constexpr std::size_t kMostSets = 2048;
constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// A set of points of the layers so far: the one before, and what the last layer takes.
struct PointSet {
  double seconds = 0.0;
  double saved = 0.0;
  std::uint32_t before = 0;
  std::uint32_t point = 0;  ///< Of the layer's useful points.
};

struct LayerChoice {
  LayerIndex layer = 0;
  std::vector<SumPair> points;  ///< On the stage's device.
  double density = 0.0;
};

/// All sets of points that no other one beats, layer by layer.
class PointSets {
 public:
  PointSets(const SegmentCosts& costs, Segment segment) : costs_(costs) {
    const PartitionProblem& problem = costs.problem();
    const std::vector<ModelLayer>& layers = problem.chain.layers;
    LayerIndex lead = 0;
    while (lead < layers.size() && layers[lead].is_frozen) ++lead;
    const double slowdown = problem.devices[segment.stage].slowdown;
    const LayerIndex end = costs.first_layer(segment.end);
    for (LayerIndex i = std::max(lead, costs.first_layer(segment.first)); i < end; ++i) {
      LayerChoice choice{i, useful_points(layers[i]), 0.0};
      if (choice.points.back().b <= 0.0) continue;
      for (SumPair& point : choice.points) {
        point.a *= slowdown;
        if (point.b > 0.0)
          choice.density =
              std::max(choice.density, point.a > 0.0 ? point.b / point.a : kImpossible);
      }
      choices_.push_back(std::move(choice));
    }
    // The best ones first, so that good sets come early and rule out others.
    std::stable_sort(choices_.begin(), choices_.end(),
                     [](const LayerChoice& one, const LayerChoice& other) {
                       return one.density > other.density;
                     });
  }

  /// The set with the least `seconds_of(set)`, among those that may still come below the best so
  /// far: `least_of(set, bytes that the rest saves at most)` is a lower bound of theirs.
  template <typename SecondsOf, typename LeastOf>
  WholeActions best(const SecondsOf& seconds_of, const LeastOf& least_of) {
    std::vector<double> rest(choices_.size() + 1, 0.0);
    for (std::size_t i = choices_.size(); i-- > 0;)
      rest[i] = rest[i + 1] + choices_[i].points.back().b;
    std::vector<std::vector<PointSet>> sets{{PointSet{}}};
    std::size_t best_layer = 0;
    std::uint32_t best_set = 0;
    double least = seconds_of(sets[0][0]);
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      std::vector<PointSet> all;
      for (std::uint32_t s = 0; s < sets[i].size(); ++s) {
        // It takes nothing of this layer's, by the first point or as it is.
        for (std::uint32_t p = 0; p < choices_[i].points.size(); ++p) {
          const SumPair& point = choices_[i].points[p];
          const PointSet set{sets[i][s].seconds + point.a, sets[i][s].saved + point.b, s, p};
          if (least_of(set, rest[i + 1]) < least) all.push_back(set);
        }
      }
      keep_useful(all);
      for (std::uint32_t s = 0; s < all.size(); ++s) {
        const double seconds = seconds_of(all[s]);
        if (seconds < least) least = seconds, best_layer = i + 1, best_set = s;
      }
      sets.push_back(std::move(all));
    }
    return chosen(sets, best_layer, best_set);
  }

 private:
  static void keep_useful(std::vector<PointSet>& sets) {
    std::sort(sets.begin(), sets.end(), [](const PointSet& one, const PointSet& other) {
      return one.seconds != other.seconds ? one.seconds < other.seconds : one.saved > other.saved;
    });
    std::size_t count = 0;
    double saved = -1.0;
    for (const PointSet& set : sets) {
      if (set.saved <= saved) continue;
      saved = set.saved;
      sets[count++] = set;
    }
    sets.resize(count);
    while (sets.size() > kMostSets) {
      std::size_t left = 0;
      for (std::size_t i = 0; i < sets.size(); i += 2) sets[left++] = sets[i];
      sets.resize(left);
    }
  }

  WholeActions chosen(const std::vector<std::vector<PointSet>>& sets, std::size_t layer,
                      std::uint32_t set) const {
    WholeActions actions;
    actions.recompute_seconds = sets[layer][set].seconds;
    actions.saved_bytes = sets[layer][set].saved;
    for (; layer > 0; --layer) {
      const PointSet& here = sets[layer][set];
      const LayerChoice& choice = choices_[layer - 1];
      if (choice.points[here.point].b > 0.0)
        actions.points.push_back({choice.layer, index_of(choice, here.point)});
      set = here.before;
    }
    std::sort(
        actions.points.begin(), actions.points.end(),
        [](const ChosenPoint& one, const ChosenPoint& other) { return one.layer < other.layer; });
    return actions;
  }

  /// Where the layer itself lists that point.
  std::uint32_t index_of(const LayerChoice& choice, std::uint32_t point) const {
    const ModelLayer& layer = costs_.problem().chain.layers[choice.layer];
    const SumPair wanted = useful_points(layer)[point];
    for (std::uint32_t i = 0; i < layer.recompute.size(); ++i) {
      const RecomputePoint& each = layer.recompute[i];
      const auto saved = static_cast<double>((layer.stash - each.stash).count());
      if (each.seconds == wanted.a && saved == wanted.b) return i;
    }
    return 0;
  }

  const SegmentCosts& costs_;
  std::vector<LayerChoice> choices_;
};

/// With so much recomputed. What must go per micro-batch is `excess`.
double time_of(const SegmentLoad& load, double recomputed, double saved, double excess,
               double rate) {
  double seconds = std::max(load.seconds + recomputed, load.link_seconds);
  if (load.transfer_bytes > 0.0)
    seconds = std::max(seconds, load.transfer_bytes / load.swap_bytes_per_second);
  const double left = excess - saved;
  if (left <= 0.0) return seconds;
  return rate > 0.0 ? std::max(seconds, (left + load.transfer_bytes) / rate) : kImpossible;
}

double excess_of(const SegmentLoad& load, double bytes) {
  if (bytes == kImpossible) return 0.0;
  if (load.fixed_bytes > bytes) return kImpossible;
  return load.stash_bytes - (bytes - load.fixed_bytes) / load.in_flight;
}

}  // namespace

double seconds_with(const SegmentLoad& load, const WholeActions& actions, double bytes,
                    double swap_bytes_per_second) {
  return time_of(load, actions.recompute_seconds, actions.saved_bytes, excess_of(load, bytes),
                 swap_bytes_per_second);
}

WholeActions quickest_actions(const SegmentCosts& costs, Segment segment, double bytes,
                              double swap_bytes_per_second) {
  SegmentLoad load = costs.load(segment);
  load.swap_bytes_per_second = swap_bytes_per_second;
  const double excess = excess_of(load, bytes);
  if (excess <= 0.0 || excess == kImpossible) return {};
  const auto seconds = [&](const PointSet& set, double saved) {
    return time_of(load, set.seconds, saved, excess, swap_bytes_per_second);
  };
  return PointSets(costs, segment)
      .best([&](const PointSet& set) { return seconds(set, set.saved); },
            [&](const PointSet& set, double rest) { return seconds(set, set.saved + rest); });
}

WholeActions most_saving_actions(const SegmentCosts& costs, Segment segment, double seconds) {
  const double slack = seconds - costs.load(segment).seconds;
  const auto minus_saved = [&](const PointSet& set, double rest) {
    return set.seconds <= slack ? -(set.saved + rest) : kImpossible;
  };
  return PointSets(costs, segment)
      .best([&](const PointSet& set) { return minus_saved(set, 0.0); }, minus_saved);
}

}  // namespace spillway::planner
