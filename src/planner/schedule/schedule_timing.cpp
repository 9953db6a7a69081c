#include "spillway/planner/schedule/schedule_timing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "schedule_run.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_links.h"

namespace spillway::planner_schedule {
namespace {

/// The links of each pair of ranks, and of each rank to its host, for themselves. Each carries one
/// transfer at a time, in the order in which they are asked for; latency comes on top and does not
/// occupy them. So each end is known at once.
class PrivateLinks final : public ScheduleLinks {
 public:
  /// Of one pipeline; `costs` must outlive it.
  PrivateLinks(const Schedule& schedule, const ScheduleCosts& costs)
      : ScheduleLinks(/*knows_ends=*/true),
        costs_(costs),
        pipelines_(schedule.data_parallel),
        host_free_(2 * schedule.ranks.size(), 0.0),
        reduce_free_(schedule.ranks.size(), 0.0),
        sums_passed_(schedule.ranks.size(), 0.0) {}

  Transfer send(std::uint32_t from, std::uint32_t to, Bytes size, double now) override {
    // Each direction of a pair is a channel of its own.
    double& free = channel_free_[std::uint64_t{from} << 32U | to];
    const double start = std::max(now, free);
    free = start + costs_.peer.rate.seconds_for(size);
    return {start, free + costs_.peer.latency_seconds};
  }

  Transfer copy(std::uint32_t rank, bool is_out, Bytes size, double since, Id after) override {
    double& free = host_free(rank, is_out);
    // What comes back has to be out first, whenever its direction is free.
    const double earliest = after == kNone ? since : std::max(since, copy_ends_[after]);
    const double start = std::max(free, earliest);
    free = start + costs_.host.rate.seconds_for(size);
    copy_ends_.push_back(free + costs_.host.latency_seconds);
    return {start, copy_ends_.back(), static_cast<Id>(copy_ends_.size() - 1)};
  }

  Id join(std::uint32_t /*rank*/, std::uint32_t /*stage*/) override { return kNone; }
  /// A ring over the members, in the order of ranks, and as many ranks of each further pipeline.
  /// Sums of one rank come one after the other.
  Transfer sum(std::uint32_t stage, std::span<const std::uint32_t> members, double now) override {
    double start = now;
    // A rank takes part in one sum at a time.
    for (const std::uint32_t rank : members) start = std::max(start, reduce_free_[rank]);
    const double ring = static_cast<double>(members.size()) * pipelines_;
    // Once around to sum, once around to hand out, an n-th of the bytes in each round.
    const double rounds = 2.0 * (ring - 1.0);
    const double bytes = rounds / ring * count_of(costs_.stages[stage].gradients);
    const double shared = pass_shared(members, costs_.shared_sums.rate.seconds_for(bytes), now);
    const double end = rounds * costs_.reduce.latency_seconds +
                       std::max(start + costs_.reduce.rate.seconds_for(bytes), shared);
    for (const std::uint32_t rank : members) reduce_free_[rank] = end;
    return {start, end};
  }

  double next_end(double /*now*/) override { return kUnknown; }
  void take_ended(double /*now*/, std::vector<Id>& /*ended*/) override {}

 private:
  /// When what all sums share has carried another one of these members.
  double pass_shared(std::span<const std::uint32_t> members, double seconds, double now) {
    double end = now;
    std::size_t last = sums_passed_.size();
    for (const std::uint32_t rank : members) {
      const std::size_t link = rank / costs_.shared_sums.ranks;
      // Members come in the order of ranks, so those of one link are neighbours.
      if (link == last) continue;
      last = link;
      sums_passed_[link] = std::max(sums_passed_[link], now) + seconds;
      end = std::max(end, sums_passed_[link]);
    }
    return end;
  }

  double& host_free(std::uint32_t rank, bool is_out) {
    return host_free_[2 * std::size_t{rank} + (is_out ? 0 : 1)];
  }

  const ScheduleCosts& costs_;
  std::uint32_t pipelines_;
  std::unordered_map<std::uint64_t, double> channel_free_;  // By sender and receiver.
  std::vector<double> host_free_;                           // By rank, out and in.
  std::vector<double> reduce_free_;
  std::vector<double> sums_passed_;  // By `shared_sums`: all that were asked for.
  std::vector<double> copy_ends_;    // By number.
};

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0.0; }

void check_seconds(std::string_view what, std::size_t stage, double seconds) {
  if (!is_time(seconds))
    throw ConfigError("{} of stage {} cannot be {} s (give 0 or more)", what, stage, seconds);
}

void check_link(std::string_view what, const LinkCosts& link) {
  if (!is_time(link.latency_seconds))
    throw ConfigError("the latency of {} cannot be {} s (give 0 or more)", what,
                      link.latency_seconds);
  if (link.rate.is_none())
    throw ConfigError("{} cannot carry {} bytes/s (give more than 0)", what,
                      link.rate.bytes_per_second());
}

void check_share(std::string_view what, double share) {
  if (!(share >= 0.0 && share <= 1.0))
    throw ConfigError("{} cannot be {} of the stash (give 0 to 1)", what, share);
}

void check_costs(const Schedule& schedule, const ScheduleCosts& costs) {
  if (costs.stages.size() != schedule.stages)
    throw ConfigError("there are costs of {} stages for the {} of the schedule",
                      costs.stages.size(), schedule.stages);
  for (std::size_t i = 0; i < costs.stages.size(); ++i) {
    const StageCosts& stage = costs.stages[i];
    check_seconds("forward", i, stage.forward_seconds);
    check_seconds("input gradient", i, stage.input_gradient_seconds);
    check_seconds("weight gradient", i, stage.weight_gradient_seconds);
    check_seconds("recomputation", i, stage.recompute_seconds);
    check_seconds("step", i, stage.step_seconds);
  }
  check_link("the link between ranks", costs.peer);
  check_link("the link to the host", costs.host);
  check_link("the link for reductions", costs.reduce);
  if (costs.shared_sums.ranks == 0 || costs.shared_sums.rate.is_none())
    throw ConfigError("a link cannot carry {} bytes/s of the sums of {} ranks (give more than 0)",
                      costs.shared_sums.rate.bytes_per_second(), costs.shared_sums.ranks);
  check_share("the kept input", costs.shares.input);
  check_share("what is kept after the input gradient", costs.shares.after_input_gradient);
}

}  // namespace

bool swaps_parts(const std::vector<StageCosts>& stages) {
  return std::any_of(stages.begin(), stages.end(),
                     [](const StageCosts& stage) { return stage.swapped > Bytes(0); });
}

double seconds_of(const StageCosts& stage, ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return stage.forward_seconds;
    case ActionKind::kInputGradient: return stage.input_gradient_seconds;
    case ActionKind::kWeightGradient: return stage.weight_gradient_seconds;
    case ActionKind::kRecompute: return stage.recompute_seconds;
    case ActionKind::kStep: return stage.step_seconds;
    default: return stage.input_gradient_seconds + stage.weight_gradient_seconds;
  }
}

ScheduleCosts even_costs(const Schedule& schedule, double forward_seconds,
                         double input_gradient_seconds, double weight_gradient_seconds) {
  ScheduleCosts costs;
  StageCosts stage;
  stage.forward_seconds = forward_seconds;
  stage.input_gradient_seconds = input_gradient_seconds;
  stage.weight_gradient_seconds = weight_gradient_seconds;
  stage.recompute_seconds = forward_seconds;
  costs.stages.assign(schedule.stages, stage);
  return costs;
}

/// Micro-batches of each further repetition are further ones.
static Schedule repeated(const Schedule& schedule, std::uint32_t repetitions) {
  Schedule lists = schedule;
  lists.micro_batches *= repetitions;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (std::uint32_t i = 1; i < repetitions; ++i)
      for (Action action : schedule.ranks[rank]) {
        // Else a stash of one repetition would be taken for that of another.
        if (action.micro_batch != kNoMicroBatch) action.micro_batch += i * schedule.micro_batches;
        lists.ranks[rank].push_back(action);
      }
  return lists;
}

RunTiming run_schedule(const Schedule& schedule, const ScheduleCosts& costs, ScheduleLinks& links,
                       const RunOptions& options) {
  schedule::check_shape(schedule);
  check_costs(schedule, costs);
  if (options.repetitions == 1) return ScheduleRun(schedule, schedule, costs, links, options).run();
  const Schedule lists = repeated(schedule, options.repetitions);
  return ScheduleRun(schedule, lists, costs, links, options).run();
}

ScheduleTiming time_schedule(const Schedule& schedule, const ScheduleCosts& costs) {
  PrivateLinks links(schedule, costs);
  return run_schedule(schedule, costs, links).schedule;
}

}  // namespace spillway::planner_schedule
