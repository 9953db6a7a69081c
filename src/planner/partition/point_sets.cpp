#include "point_sets.h"

#include "recompute_items.h"
#include "spillway/base/assert.h"

namespace spillway::planner {
namespace {

constexpr std::size_t kMostSets = 2048;
constexpr std::size_t kFewestSets = 8;
/// Over all layers of a segment.
constexpr std::size_t kMostKept = std::size_t{1} << 19;

double density_of(const SumPair& pair) { return pair.a > 0.0 ? pair.b / pair.a : kNever; }

}  // namespace

PointSets::PointSets(const SegmentCosts& costs, Segment segment) : costs_(costs) {
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
  std::stable_sort(
      choices_.begin(), choices_.end(),
      [](const LayerChoice& one, const LayerChoice& other) { return one.density > other.density; });
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
  std::stable_sort(steps_.begin(), steps_.end(),
                   [](const Step& one, const Step& other) { return one.density > other.density; });
  most_sets_ =
      std::clamp(kMostKept / std::max<std::size_t>(1, choices_.size()), kFewestSets, kMostSets);
}

std::vector<UndecidedLayers> PointSets::undecided(double price) const {
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

void PointSets::keep_useful(std::vector<PointSet>& sets) const {
  std::sort(sets.begin(), sets.end(), [](const PointSet& one, const PointSet& other) {
    if (one.seconds != other.seconds) return one.seconds < other.seconds;
    if (one.saved != other.saved) return one.saved > other.saved;
    return one.before != other.before ? one.before < other.before : one.point < other.point;
  });
  std::size_t count = 0;
  double saved = -1.0;
  for (const PointSet& set : sets) {
    if (set.saved <= saved) continue;
    saved = set.saved;
    sets[count++] = set;
  }
  sets.resize(count);
  while (sets.size() > most_sets_) {
    std::size_t left = 0;
    for (std::size_t i = 0; i < sets.size(); i += 2) sets[left++] = sets[i];
    sets.resize(left);
  }
}

WholeActions PointSets::chosen(const std::vector<std::vector<PointSet>>& sets, std::size_t layer,
                               std::uint32_t set) const {
  std::vector<std::uint32_t> places(choices_.size(), kAsItIs);
  for (; layer > 0; --layer) {
    const PointSet& here = sets[layer][set];
    places[layer - 1] = here.point;
    set = here.before;
  }
  return actions_of(places);
}

WholeActions PointSets::actions_of(const std::vector<std::uint32_t>& places) const {
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

std::uint32_t PointSets::index_of(const LayerChoice& choice, std::uint32_t point) const {
  const ModelLayer& layer = costs_.problem().chain.layers[choice.layer];
  const SumPair wanted = useful_points(layer)[point];
  // By the same arithmetic as there: a difference of counts is rounded elsewhere above 2^53.
  const auto found =
      std::find_if(layer.recompute.begin(), layer.recompute.end(), [&](const RecomputePoint& each) {
        return each.seconds == wanted.a &&
               as_double(layer.stash) - as_double(each.stash) == wanted.b;
      });
  SPILLWAY_ASSERT(found != layer.recompute.end());
  return static_cast<std::uint32_t>(found - layer.recompute.begin());
}

}  // namespace spillway::planner
