#include "spillway/pipeline/balance/balancer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::pipeline {
namespace {

using partition::Cuts;
using partition::SegmentCosts;

/// The least of them counts: other programs on the machine make a step slower, never faster.
constexpr std::size_t kSteps = 3;
constexpr std::size_t kFewestSteps = 2;

std::size_t stage_of(const std::vector<std::size_t>& first_of_stage, std::size_t unit) {
  const auto behind = std::upper_bound(first_of_stage.begin(), first_of_stage.end(), unit);
  return static_cast<std::size_t>(behind - first_of_stage.begin() - 1);
}

/// Cuts that the partitioner may have made; nothing where they part what belongs together or leave
/// a stage empty.
std::optional<Cuts> cuts_of(const SegmentCosts& costs,
                            const std::vector<std::size_t>& first_of_stage) {
  Cuts cuts;
  std::uint32_t unit = 0;
  for (const std::size_t first : first_of_stage) {
    while (unit < costs.units() && costs.first_layer(unit) < first) ++unit;
    if (unit == costs.units() || costs.first_layer(unit) != first) return std::nullopt;
    if (!cuts.empty() && cuts.back() == unit) return std::nullopt;
    cuts.push_back(unit);
  }
  cuts.push_back(costs.units());
  return cuts;
}

double seconds_of(const SegmentCosts& costs, const Cuts& cuts) {
  double worst = 0;
  for (std::uint32_t stage = 0; stage + 1 < cuts.size(); ++stage)
    worst = std::max(worst, costs.least_seconds({cuts[stage], cuts[stage + 1], stage},
                                                costs.device_bytes(stage)));
  return worst;
}

/// Of the slowest stage, for cuts of any kind.
double layer_seconds_of(const partition::PartitionProblem& problem,
                        const std::vector<std::size_t>& first_of_stage) {
  std::vector<double> seconds(first_of_stage.size());
  for (std::size_t unit = 0; unit < problem.chain.layers.size(); ++unit) {
    const partition::ModelLayer& layer = problem.chain.layers[unit];
    const std::size_t stage = stage_of(first_of_stage, unit);
    seconds[stage] +=
        (layer.forward_seconds + layer.backward_seconds) * problem.devices[stage].slowdown;
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

struct NewCuts {
  std::vector<std::size_t> first_of_stage;
  double seconds_before = 0, seconds_after = 0;
};

/// The nearest cuts that are about as quick as the quickest; the present ones where these are.
/// Nothing where none fit.
std::optional<NewCuts> quicker_cuts(const SegmentCosts& costs,
                                    const std::vector<std::size_t>& first_of_stage) {
  constexpr double kAbout = 1.02;
  NewCuts made;
  Cuts chosen;
  if (const auto now = cuts_of(costs, first_of_stage)) {
    chosen = *now;
    made.seconds_before = made.seconds_after = seconds_of(costs, *now);
    std::vector<partition::SolvedCuts> choices = partition::rebalance_choices(costs, *now);
    double least = made.seconds_before;
    for (const partition::SolvedCuts& one : choices) least = std::min(least, one.worst);
    if (least == partition::kNever) return std::nullopt;
    for (partition::SolvedCuts& one : choices) {
      if (one.worst > kAbout * least) continue;
      chosen = std::move(one.cuts);
      made.seconds_after = one.worst;
      break;
    }
  } else {
    made.seconds_before = layer_seconds_of(costs.problem(), first_of_stage);
    const auto solved = partition::balanced_time_cuts(costs);
    if (!solved) return std::nullopt;
    chosen = solved->cuts;
    made.seconds_after = solved->worst;
  }
  for (std::uint32_t stage = 0; stage < costs.stages(); ++stage)
    made.first_of_stage.push_back(costs.first_layer(chosen[stage]));
  return made;
}

partition::ModelChain chain_of(const std::vector<ModelUnit>& units,
                               const std::vector<UnitBorder>& borders,
                               const std::vector<UnitSeconds>& seconds) {
  partition::ModelChain chain;
  for (std::uint32_t i = 0; i < units.size(); ++i) {
    partition::ModelLayer layer;
    layer.name = message("parameter {}", i);
    // Of no known time: a parameter that is new, or gone.
    const bool is_known = seconds[i].forward >= 0 && !units[i].has_ended;
    layer.forward_seconds = is_known ? static_cast<double>(seconds[i].forward) : 0.0;
    layer.backward_seconds = is_known ? static_cast<double>(seconds[i].backward) : 0.0;
    layer.parameters = units[i].parameter;
    layer.buffers = units[i].kept - units[i].parameter;
    layer.stash = units[i].stash;
    chain.layers.push_back(std::move(layer));
    if (!units[i].is_joined) continue;
    if (chain.together.empty() || chain.together.back().last + 1 != i)
      chain.together.push_back({i - 1, i});
    else
      chain.together.back().last = i;
  }
  for (const UnitBorder& border : borders)
    chain.borders.push_back({border.producer, border.consumers, border.bytes});
  return chain;
}

}  // namespace

Balancer::Balancer(Placement placement, BalancerOptions options)
    : placement_(std::move(placement)),
      options_(std::move(options)),
      slowdowns_(placement_.ranks(), 1.0) {
  SPILLWAY_ASSERT(
      options_.budgets.size() == placement_.ranks() &&
      options_.in_flight.size() == placement_.stages() &&
      (options_.link_rates.empty() || options_.link_rates.size() + 1 == placement_.stages()));
}

void Balancer::set_budgets(std::vector<Bytes> budgets) {
  SPILLWAY_ASSERT(budgets.size() == placement_.ranks());
  options_.budgets = std::move(budgets);
}

bool Balancer::knows_enough() const { return steps_.size() >= kFewestSteps; }

void Balancer::add(MeasuredStep step) {
  steps_.push_back(std::move(step));
  if (steps_.size() > kSteps) steps_.pop_front();
}

void Balancer::forget_model() {
  steps_.clear();
  first_.clear();
  slowdowns_.assign(slowdowns_.size(), 1.0);
}

/// How many micro-batches of a step a rank computes a stage for.
std::uint64_t Balancer::turns_of(Rank rank, std::uint32_t stage,
                                 std::uint64_t micro_batches) const {
  std::uint64_t turns = 0;
  for (std::uint64_t i = 0; i < micro_batches; ++i)
    turns += placement_.rank_of(stage, i) == rank ? 1 : 0;
  return turns;
}

/// The least of a rank for a micro-batch; nothing: it has computed none of that unit lately.
std::optional<UnitSeconds> Balancer::least_of(Rank rank, std::size_t unit,
                                              std::uint32_t stage) const {
  std::optional<UnitSeconds> least;
  for (const MeasuredStep& step : steps_) {
    const std::vector<UnitSeconds>& seconds = step.seconds[rank.value()];
    const auto turns = static_cast<float>(turns_of(rank, stage, step.micro_batches));
    if (unit >= seconds.size() || turns == 0) continue;
    const UnitSeconds one{seconds[unit].forward / turns, seconds[unit].backward / turns};
    const float sum = one.forward + one.backward;
    if (sum > 0 && (!least || sum < least->forward + least->backward)) least = one;
  }
  return least;
}

void Balancer::take_times(const std::vector<std::size_t>& first_of_stage,
                          const std::vector<ModelUnit>& units) {
  first_.resize(units.size(), {-1, -1});
  for (std::uint32_t i = 0; i < placement_.ranks(); ++i) {
    const Rank rank(i);
    double now = 0, at_first = 0;
    std::vector<std::pair<std::size_t, UnitSeconds>> unknown;
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      if (units[unit].has_ended) continue;
      const auto least =
          least_of(rank, unit, static_cast<std::uint32_t>(stage_of(first_of_stage, unit)));
      if (!least) continue;
      if (first_[unit].forward < 0) {
        unknown.emplace_back(unit, *least);
        continue;
      }
      now += least->forward + least->backward;
      at_first += first_[unit].forward + first_[unit].backward;
    }
    if (at_first > 0) slowdowns_[i] = now / at_first;
    for (const auto& [unit, seconds] : unknown) {
      const auto slowdown = static_cast<float>(slowdowns_[i]);
      first_[unit] = {seconds.forward / slowdown, seconds.backward / slowdown};
    }
  }
}

partition::PartitionProblem Balancer::problem_of(const std::vector<ModelUnit>& units,
                                                 const std::vector<UnitBorder>& borders,
                                                 bool has_limits) const {
  partition::PartitionProblem problem;
  problem.chain = chain_of(units, borders, first_);
  for (std::uint32_t stage = 0; stage < placement_.stages(); ++stage) {
    partition::StageDevice device;
    device.slowdown = 0;
    for (std::uint32_t turn = 0; turn < placement_.turns(); ++turn) {
      const Rank rank = placement_.rank_of(stage, turn);
      device.slowdown = std::max(device.slowdown, slowdowns_[rank.value()]);
      if (!has_limits) continue;
      const std::size_t stages = placement_.stages_of(rank).size();
      device.memory =
          std::min(device.memory, Bytes(options_.budgets[rank.value()].count() / stages));
    }
    device.swap_rate = options_.swap_rate;
    const auto most = static_cast<double>(steps_.back().micro_batches);
    device.held.in_flight = std::min(options_.in_flight[stage], most);
    problem.devices.push_back(device);
    if (stage > 0 && !options_.link_rates.empty())
      problem.links.push_back({0.0, options_.link_rates[stage - 1]});
  }
  return problem;
}

std::optional<Recut> Balancer::look(const std::vector<ModelUnit>& units,
                                    const std::vector<UnitBorder>& borders,
                                    const std::vector<std::size_t>& first_of_stage) {
  const std::uint32_t stages = placement_.stages();
  const auto groups = std::count_if(units.begin(), units.end(),
                                    [](const ModelUnit& unit) { return !unit.is_joined; });
  if (!knows_enough() || static_cast<std::size_t>(groups) < stages || stages < 2)
    return std::nullopt;
  take_times(first_of_stage, units);
  slowest_seconds_ = layer_seconds_of(problem_of(units, borders, false), first_of_stage);
  std::optional<NewCuts> found;
  try {
    found = quicker_cuts(SegmentCosts(problem_of(units, borders, true)), first_of_stage);
  } catch (const ConfigError&) {
    // A unit is larger than any budget: it pages, whatever the cuts.
  }
  if (!found) found = quicker_cuts(SegmentCosts(problem_of(units, borders, false)), first_of_stage);
  if (!found || found->seconds_after > (1 - options_.least_gain) * found->seconds_before)
    return std::nullopt;
  Recut recut{found->first_of_stage, found->seconds_before, found->seconds_after, 0, Bytes()};
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    if (stage_of(first_of_stage, unit) == stage_of(recut.first_of_stage, unit)) continue;
    ++recut.units;
    recut.bytes += units[unit].kept;
  }
  if (recut.units == 0) return std::nullopt;
  return recut;
}

}  // namespace spillway::pipeline
