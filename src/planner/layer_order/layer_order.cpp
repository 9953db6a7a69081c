#include "spillway/planner/layer_order/layer_order.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "set_costs.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "unit_graph.h"

namespace spillway::layer_order {
namespace {

/// By layer, its place in the order.
std::vector<partition::LayerIndex> places_of(const partition::ModelChain& chain,
                                             const LayerOrder& order) {
  const std::size_t count = chain.layers.size();
  if (order.size() != count)
    throw ConfigError("the order has {}, and the model {}; name each layer once",
                      counted(order.size(), "layer"), count);
  std::vector<partition::LayerIndex> places(count, static_cast<partition::LayerIndex>(count));
  for (partition::LayerIndex place = 0; place < count; ++place) {
    const partition::LayerIndex layer = order[place];
    if (layer >= count)
      throw ConfigError("place {} of the order names layer {}, and there are {}; layers count from "
                        "0",
                        place, layer, count);
    if (places[layer] != count)
      throw ConfigError("the order names layer {} at places {} and {}; name each layer once", layer,
                        places[layer], place);
    places[layer] = place;
  }
  return places;
}

bool is_recorded(const LayerOrder& order) {
  for (partition::LayerIndex place = 0; place < order.size(); ++place)
    if (order[place] != place) return false;
  return true;
}

void check_waits(const partition::ModelChain& chain,
                 const std::vector<partition::LayerIndex>& places, partition::LayerIndex before,
                 partition::LayerIndex after) {
  if (places[before] < places[after]) return;
  throw ConfigError("the order runs layer {} ('{}') before layer {} ('{}'), which it waits for; "
                    "keep to what layers read",
                    after, shown_text(chain.layers[after].name), before,
                    shown_text(chain.layers[before].name));
}

std::vector<partition::LayerIndex> checked_places(const partition::ModelChain& chain,
                                                  const LayerOrder& order) {
  std::vector<partition::LayerIndex> places = places_of(chain, order);
  if (!chain.may_reorder && !is_recorded(order))
    throw ConfigError("the layers of this model run as they stand, since nobody has told all that "
                      "they wait for; leave the order as it is");
  for (const partition::BorderTensor& border : chain.borders)
    for (const partition::LayerIndex consumer : border.consumers)
      check_waits(chain, places, border.producer, consumer);
  for (const partition::LayerDependence& each : chain.dependences)
    check_waits(chain, places, each.before, each.after);
  for (const partition::LayerRange& range : chain.together)
    for (partition::LayerIndex layer = range.first; layer < range.last; ++layer)
      if (places[layer + 1] != places[layer] + 1)
        throw ConfigError("the order tears layers {} and {} apart, which stay together; keep the "
                          "layers of a group in their order",
                          layer, layer + 1);
  return places;
}

/// Downsets before each stage and behind the last one, each inside the next.
struct DownsetCuts {
  std::vector<std::uint32_t> sets;
  double seconds = 0.0;  ///< Of the slowest stage.
};

struct DownsetSearch {
  std::optional<DownsetCuts> best;  ///< Nothing: none of these downsets is quicker than `below`.
  bool is_finished = true;  ///< False: the effort was spent before, and the best is unknown.
};

/// Sums of the same times in another order differ in the last bits.
constexpr double kRounding = 1e-12;
/// What looking at a pair costs, in comparisons of two downsets.
constexpr std::uint64_t kStepsPerCost = 100;

/// A downset at which stages can end so far, and what the slowest of them takes.
struct Reached {
  std::uint32_t set = 0;
  double worst = 0.0;
};

/// One that may be followed by a stage, and what both take at least.
struct Begin {
  double least = 0.0;
  std::uint32_t place = 0;  ///< In the list of reached ones.
};

class DownsetProgram {
 public:
  DownsetProgram(const SetCosts& costs, const Downsets& sets, double below,
                 std::uint64_t most_steps)
      : costs_(costs), sets_(sets), below_(below), left_(most_steps) {
    double speed = 0.0;
    speed_before_.push_back(0.0);
    for (std::uint32_t k = 0; k < costs.stages(); ++k)
      speed_before_.push_back(speed += 1.0 / costs.slowdown(k));
  }

  DownsetSearch run() {
    DownsetSearch search;
    std::vector<Reached> reached{{0, 0.0}};
    for (std::uint32_t k = 0; k < costs_.stages(); ++k) {
      reached = next_stage(k, reached);
      if (reached.empty()) break;
    }
    // Cut short, it has proven nothing: what it has not looked at may be faster.
    search.is_finished = left_ > 0;
    if (!search.is_finished || reached.empty()) return search;
    DownsetCuts cuts{{reached.front().set}, reached.front().worst};
    for (std::uint32_t k = costs_.stages(); k-- > 0;)
      cuts.sets.push_back(begins_[k][cuts.sets.back()]);
    std::reverse(cuts.sets.begin(), cuts.sets.end());
    search.best = std::move(cuts);
    return search;
  }

 private:
  /// Downsets at which stage k can end, by their time.
  std::vector<Reached> next_stage(std::uint32_t k, const std::vector<Reached>& reached) {
    begins_.emplace_back(sets_.count(), 0);
    std::vector<Reached> next;
    const std::uint32_t whole = sets_.count() - 1;
    const bool is_last = k + 1 == costs_.stages();
    for (std::uint32_t set = is_last ? whole : 1; set <= whole && left_ > 0; ++set) {
      if (!may_end(k, set)) continue;
      const Begin best = best_begin(k, set, reached);
      if (best.least >= below_) continue;
      next.push_back({set, best.least});
      begins_.back()[set] = reached[best.place].set;
    }
    // `best_begin` leaves out both ends of the list by its times.
    std::stable_sort(next.begin(), next.end(), [&](const Reached& one, const Reached& other) {
      return costs_.layer_seconds(one.set) < costs_.layer_seconds(other.set);
    });
    return next;
  }

  /// Enough units before and behind, and not too much work for the stages there.
  bool may_end(std::uint32_t k, std::uint32_t set) const {
    const std::uint32_t whole = sets_.count() - 1;
    const std::uint32_t behind = costs_.stages() - k - 1;
    if (sets_.size(set) < k + 1 || sets_.size(whole) - sets_.size(set) < behind) return false;
    const double speed_behind = speed_before_.back() - speed_before_[k + 1];
    const double done = costs_.layer_seconds(set);
    const double left = costs_.layer_seconds(whole) - done;
    const double most = below_ * (1.0 + kRounding);
    // The stages on each side together get done what they can at their speeds, in the time that is
    // to be beaten.
    return done <= most * speed_before_[k + 1] &&
           (behind == 0 || left <= most * speed_behind + kRounding * done);
  }

  Begin best_begin(std::uint32_t k, std::uint32_t set, const std::vector<Reached>& reached) {
    const double end = costs_.layer_seconds(set);
    const double longest = below_ * (1.0 + kRounding) / costs_.slowdown(k) + kRounding * end;
    // What is before that leaves this stage more work than it may have.
    const auto first = std::partition_point(
        reached.begin(), reached.end(),
        [&](const Reached& each) { return costs_.layer_seconds(each.set) < end - longest; });
    std::vector<Begin> begins;
    for (auto each = first; each != reached.end(); ++each) {
      spend(1);
      const double seconds = end - costs_.layer_seconds(each->set);
      // From here on they have more work than the set itself, and lie in it no more.
      if (seconds < -kRounding * end) break;
      if (sets_.size(each->set) >= sets_.size(set)) continue;
      const double least = std::max(each->worst, seconds * costs_.slowdown(k) * (1.0 - kRounding));
      if (least < below_ && sets_.is_inside(each->set, set))
        begins.push_back({least, static_cast<std::uint32_t>(each - reached.begin())});
    }
    // The likeliest first, since exact costs are dear and a good one rules out the rest.
    std::sort(begins.begin(), begins.end(), [](const Begin& one, const Begin& other) {
      return one.least != other.least ? one.least < other.least : one.place < other.place;
    });
    Begin best{below_, 0};
    for (const Begin& begin : begins) {
      if (begin.least >= best.least || left_ == 0) break;
      spend(kStepsPerCost);
      const Reached& from = reached[begin.place];
      const double seconds = std::max(from.worst, costs_.least_seconds(from.set, set, k));
      if (seconds < best.least) best = {seconds, begin.place};
    }
    return best;
  }

  void spend(std::uint64_t steps) { left_ -= std::min(left_, steps); }

  const SetCosts& costs_;
  const Downsets& sets_;
  const double below_;
  std::uint64_t left_;
  std::vector<double> speed_before_;                ///< Of the stages before each one.
  std::vector<std::vector<std::uint32_t>> begins_;  ///< By stage and downset.
};

/// The least time of the slowest stage over all ways from the empty downset to the whole graph, no
/// stage empty, where that is below so many seconds: the dynamic program of Tarnawski et al.
/// ("Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020), with times
/// after swaps and recomputation, and without what can no more become quicker than `below`.
/// `most_steps`: how many pairs of downsets are compared; some nanoseconds each, a pair whose
/// memory is looked at counts for many.
DownsetSearch least_time_downsets(const SetCosts& costs, const Downsets& sets, double below,
                                  std::uint64_t most_steps) {
  constexpr std::uint64_t kMostCells = 20'000'000;  // Some 80 MB.
  if (std::uint64_t{sets.count()} * costs.stages() > kMostCells) return {std::nullopt, false};
  return DownsetProgram(costs, sets, below, most_steps).run();
}

/// Times closer than that count as equal.
constexpr double kSame = 1e-9;
/// Units beyond which named orders alone take longer than all the cutting.
constexpr std::uint32_t kMostUnits = 20'000;
/// Units beyond which sets of them take too much room.
constexpr std::uint32_t kMostUnitsOfSets = 4'096;

double least_seconds(const partition::PartitionProblem& problem) {
  const auto solved = partition::least_time_cuts(partition::SegmentCosts(problem));
  return solved ? solved->worst : partition::kNever;
}

class OrderSearch {
 public:
  OrderSearch(const partition::PartitionProblem& problem, const UnitGraph& graph)
      : problem_(problem), graph_(graph), costs_(problem, graph) {
    choice_.seconds = choice_.recorded_seconds = least_seconds(problem);
    choice_.bound_seconds = costs_.bound_seconds();
  }

  OrderChoice find(const OrderEffort& effort) {
    // One way from the empty set to all of them takes so many.
    const bool may_count = effort.downsets > graph_.units();
    const std::vector<UnitOrder> orders =
        graph_.units() <= kMostUnits ? unit_orders(graph_) : std::vector<UnitOrder>();
    // The first one is the recorded order, which is the one to beat already.
    for (std::size_t i = 1; i < orders.size() && !is_at_bound(); ++i)
      consider(orders[i].name, orders[i].units);
    if (!is_at_bound() && may_count && graph_.units() <= kMostUnitsOfSets) search(orders, effort);
    // No order is faster than the bound, however it was found.
    if (is_at_bound()) choice_.is_exact = true;
    if (choice_.is_exact) choice_.bound_seconds = choice_.seconds;
    return std::move(choice_);
  }

 private:
  bool is_at_bound() const { return choice_.seconds <= choice_.bound_seconds * (1.0 + kSame); }

  void consider(std::string_view name, const std::vector<std::uint32_t>& units) {
    partition::PartitionProblem other = problem_;
    LayerOrder layers = graph_.layers_of(units);
    other.chain = reordered(problem_.chain, layers);
    const double seconds = least_seconds(other);
    // Of equals the first stays, which is the recorded order where that will do.
    if (seconds >= choice_.seconds * (1.0 - kSame)) return;
    choice_.name = name;
    choice_.layers = std::move(layers);
    choice_.seconds = seconds;
  }

  /// All downsets where there are few enough, else some: better ways between those may exist.
  void search(const std::vector<UnitOrder>& orders, const OrderEffort& effort) {
    const Downsets sets(graph_, orders, effort.downsets);
    const DownsetSearch found = least_time_downsets(SetCosts(costs_, sets), sets,
                                                    choice_.seconds * (1.0 - kSame), effort.steps);
    choice_.downsets = sets.count();
    if (found.best) {
      std::vector<std::uint32_t> units;
      for (std::size_t k = 0; k + 1 < found.best->sets.size(); ++k)
        for (const std::uint32_t unit : sets.between(found.best->sets[k], found.best->sets[k + 1]))
          units.push_back(unit);
      consider("downsets", units);
    }
    // Both times were compared with a tolerance of their own.
    choice_.is_exact = found.is_finished && sets.are_all() &&
                       (!found.best || choice_.seconds <= found.best->seconds * (1.0 + 2 * kSame));
  }

  const partition::PartitionProblem& problem_;
  const UnitGraph& graph_;
  const UnitCosts costs_;
  OrderChoice choice_;
};

}  // namespace

void check(const partition::ModelChain& chain, const LayerOrder& order) {
  if (!order.empty()) checked_places(chain, order);
}

partition::ModelChain reordered(const partition::ModelChain& chain, const LayerOrder& order) {
  if (order.empty()) return chain;
  const std::vector<partition::LayerIndex> places = checked_places(chain, order);
  partition::ModelChain result;
  result.may_reorder = chain.may_reorder;
  for (const partition::LayerIndex layer : order) result.layers.push_back(chain.layers[layer]);
  for (const partition::BorderTensor& border : chain.borders) {
    partition::BorderTensor moved{places[border.producer], {}, border.bytes};
    for (const partition::LayerIndex consumer : border.consumers)
      moved.consumers.push_back(places[consumer]);
    std::sort(moved.consumers.begin(), moved.consumers.end());
    result.borders.push_back(std::move(moved));
  }
  for (const partition::TiedWeights& tie : chain.ties) {
    partition::TiedWeights moved{{}, tie.bytes};
    for (const partition::LayerIndex layer : tie.layers) moved.layers.push_back(places[layer]);
    std::sort(moved.layers.begin(), moved.layers.end());
    result.ties.push_back(std::move(moved));
  }
  for (const partition::LayerRange& range : chain.together)
    result.together.push_back({places[range.first], places[range.last]});
  for (const partition::LayerDependence& each : chain.dependences)
    result.dependences.push_back({places[each.before], places[each.after]});
  return result;
}

std::vector<partition::LayerRange> layers_at(const LayerOrder& order, partition::LayerIndex first,
                                             partition::LayerIndex last) {
  if (order.empty()) return {{first, last}};
  LayerOrder layers(order.begin() + first, order.begin() + last + 1);
  std::sort(layers.begin(), layers.end());
  std::vector<partition::LayerRange> ranges;
  for (const partition::LayerIndex layer : layers) {
    if (!ranges.empty() && ranges.back().last + 1 == layer)
      ranges.back().last = layer;
    else
      ranges.push_back({layer, layer});
  }
  return ranges;
}

std::vector<NamedOrder> named_orders(const partition::ModelChain& chain) {
  partition::check(chain);
  if (!chain.may_reorder) {
    LayerOrder recorded(chain.layers.size());
    std::iota(recorded.begin(), recorded.end(), 0U);
    return {{"recorded", std::move(recorded)}};
  }
  const UnitGraph graph(chain);
  std::vector<NamedOrder> orders;
  for (const UnitOrder& each : unit_orders(graph))
    orders.push_back({each.name, graph.layers_of(each.units)});
  return orders;
}

OrderChoice choose_order(const partition::PartitionProblem& problem, const OrderEffort& effort) {
  partition::check(problem);
  const UnitGraph graph(problem.chain);
  if (problem.chain.may_reorder && !graph.has_one_order())
    return OrderSearch(problem, graph).find(effort);
  OrderChoice only;
  only.seconds = only.recorded_seconds = only.bound_seconds = least_seconds(problem);
  only.is_exact = true;
  return only;
}

}  // namespace spillway::layer_order
