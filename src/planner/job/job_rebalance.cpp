#include "spillway/planner/job/job_rebalance.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "job_costs.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "spillway/planner/schedule/refusal.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::job {
namespace {

/// The action lists of a job without messages, as its generator makes them.
schedule::Schedule compute_of(const JobRequest& request) {
  const planner_schedule::ScheduleGenerator& generator =
      planner_schedule::schedule_generator_named(request.schedule);
  return generator.generate(schedule_request_for(generator, request.variant,
                                                 request.ranks / request.data_parallel,
                                                 request.micro_batches / request.data_parallel));
}

/// The passes of micro-batches through the stages of a rank, without all that memory reduction and
/// messages add to them.
std::vector<schedule::Action> passes_of(const std::vector<schedule::Action>& list) {
  std::vector<schedule::Action> passes;
  std::copy_if(
      list.begin(), list.end(), std::back_inserter(passes),
      [](const schedule::Action& action) { return schedule::is_model_compute(action.kind); });
  return passes;
}

NamedSchedule schedule_of(const JobFile& file, const std::string& name) {
  try {
    return schedule_in(file.actions.name);
  } catch (const ConfigError&) {
    // Its sentence says what to type instead, and nobody has typed this.
    throw ConfigError("{}: its schedule '{}' is none of this Spillway's (plan anew)", name,
                      shown_text(file.actions.name));
  }
}

void require_lists_of(const schedule::Schedule& made, const schedule::Schedule& stored,
                      const std::string& name) {
  if (made.placement != stored.placement)
    throw ConfigError(
        "{}: its stages do not lie on ranks as {} places them; re-balancing makes the "
        "action lists anew (plan anew)",
        name, stored.name);
  // Copies of weights are no passes, so the comparison of these would not see them.
  const bool is_parked = schedule_in(stored.name).variant.second_copy == SecondCopy::kParked;
  if (is_parked != schedule::has_action(stored, schedule::ActionKind::kSwapInWeights))
    throw ConfigError("{}: its action lists park {}, unlike its schedule {} (plan anew)", name,
                      is_parked ? "no weights" : "weights", stored.name);
  for (std::size_t rank = 0; rank < made.ranks.size(); ++rank)
    if (passes_of(made.ranks[rank]) != passes_of(stored.ranks[rank]))
      throw ConfigError("{}: the action list of rank {} is not the one of {}; re-balancing makes "
                        "the action lists anew (plan "
                        "anew)",
                        name, rank, stored.name);
}

/// Moves of layers from cuts to others in one flush. In each round every border goes as far towards
/// its place as the layers that its two stages have let it, and as the receiving ranks have room:
/// all that arrives in a round must fit beside what a rank has when the round begins, since nobody
/// says when others leave. At a flush ranks hold what stays between steps and no stashes. Sets all
/// of a choice but its stages and step. `actions` are the action lists with which the job goes on.
/// Nothing where some layers never find room.
class MoveRounds {
 public:
  MoveRounds(const JobRequest& request, const partition::SegmentCosts& costs,
             const schedule::Schedule& actions)
      : request_(request),
        costs_(costs),
        copies_(actions),
        is_resident_(schedule::resident_at_start(actions, copies_)),
        ranks_(actions.rank_count()),
        placements_(actions.placement.begin(), actions.placement.end()) {}

  std::optional<RebalanceChoice> run(partition::Cuts here, const partition::Cuts& target) {
    while (here != target) {
      partition::Cuts next = after_round(here, target);
      // No border can move, and none will: room only comes from moves.
      if (next == here) return std::nullopt;
      here = std::move(next);
      ++choice_.rounds;
    }
    return std::move(choice_);
  }

 private:
  /// A border and where it goes in one round.
  struct Shift {
    std::uint32_t border = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;

    bool goes_right() const { return to < from; }  // The layers do.
    std::uint32_t first() const { return std::min(from, to); }
    std::uint32_t end() const { return std::max(from, to); }
    std::uint32_t sender() const { return goes_right() ? border - 1 : border; }
    std::uint32_t receiver() const { return goes_right() ? border : border - 1; }
  };

  double states(std::uint32_t first, std::uint32_t end) const {
    const double trained = costs_.trained_bytes(first, end);
    const double all = costs_.static_bytes(first, end) - costs_.held_parameter_bytes(first, end) -
                       costs_.buffer_bytes(first, end);
    return std::max(0.0, all - trained);  // Gradients are there in every copy.
  }

  /// What a copy of units has on its device between two steps.
  double held_bytes(std::uint32_t copy, std::uint32_t first, std::uint32_t end) const {
    if (first == end) return 0.0;
    double bytes = costs_.static_bytes(first, end);
    // Parked weights are on the host between two steps.
    if (!is_resident_[copy]) bytes -= costs_.trained_bytes(first, end);
    // A borrowed copy is not stepped, and has no states.
    if (!copies_.is_reducer(copy)) bytes -= states(first, end);
    return bytes;
  }

  std::vector<double> free_bytes(const partition::Cuts& cuts) const {
    if (request_.device_memory == partition::kNoLimit)
      return std::vector<double>(ranks_, std::numeric_limits<double>::infinity());
    std::vector<double> free(ranks_, planner_schedule::count_of(request_.device_memory) -
                                         planner_schedule::count_of(request_.reserved));
    for (std::uint32_t copy = 0; copy < copies_.size(); ++copy) {
      const std::uint32_t stage = copies_[copy].stage;
      free[copies_[copy].rank] -= held_bytes(copy, cuts[stage], cuts[stage + 1]);
    }
    return free;
  }

  bool has_states(std::uint32_t rank, std::uint32_t stage) const {
    return copies_.is_reducer(copies_.at(rank, stage));
  }

  /// Whether a rank that gets layers of `from` has all of them already, in a copy of its own.
  bool has_both(std::uint32_t rank, std::uint32_t from, std::uint32_t to) const {
    const std::vector<std::uint32_t>& holders = copies_.holders(from);
    return std::find(holders.begin(), holders.end(), rank) != holders.end() &&
           (has_states(rank, from) || !has_states(rank, to));
  }

  /// One for each copy of the receiving stage. None brings states that neither end has.
  std::vector<RankMove> messages(const Shift& shift) const {
    const double all = costs_.static_bytes(shift.first(), shift.end());
    const double without_states = all - states(shift.first(), shift.end());
    std::vector<RankMove> messages;
    std::set<std::uint32_t> receivers;
    for (const std::vector<std::uint32_t>& rank_of : placements_) {
      RankMove move;
      move.round = choice_.rounds;
      move.first_layer = costs_.first_layer(shift.first());
      move.last_layer = costs_.first_layer(shift.end()) - 1;
      move.from_stage = shift.sender();
      move.to_stage = shift.receiver();
      move.to_rank = rank_of[move.to_stage];
      // Pipelines in both directions may have the stage on the same rank: one message does.
      if (!receivers.insert(move.to_rank).second) continue;
      const bool is_free = has_both(move.to_rank, move.from_stage, move.to_stage);
      move.from_rank = is_free ? move.to_rank : rank_of[move.from_stage];
      if (!is_free) {
        const bool brings_states =
            has_states(move.from_rank, move.from_stage) || has_states(move.to_rank, move.to_stage);
        move.bytes =
            Bytes(static_cast<std::uint64_t>(std::llround(brings_states ? all : without_states)));
      }
      if (move.bytes > Bytes(0)) move.seconds = request_.link.latency_seconds + busy_seconds(move);
      messages.push_back(move);
    }
    return messages;
  }

  double busy_seconds(const RankMove& move) const {
    return request_.link.rate.seconds_for(move.bytes);
  }

  static bool has_room(const std::vector<RankMove>& messages, const std::vector<double>& free) {
    return std::all_of(messages.begin(), messages.end(), [&](const RankMove& each) {
      return each.bytes == Bytes(0) || planner_schedule::count_of(each.bytes) <= free[each.to_rank];
    });
  }

  partition::Cuts after_round(const partition::Cuts& here, const partition::Cuts& target) {
    partition::Cuts next = here;
    std::vector<double> free = free_bytes(here);
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> busy;
    double slowest = 0.0;
    for (std::uint32_t k = 1; k + 1 < here.size(); ++k) {
      // Only what a neighbour has now can come from it; the rest follows in later rounds.
      Shift shift{k, here[k], std::clamp(target[k], here[k - 1], here[k + 1])};
      for (; shift.to != here[k]; shift.to += shift.goes_right() ? 1 : -1) {
        const std::vector<RankMove> moves = messages(shift);
        // A shorter move may still fit.
        if (!has_room(moves, free)) continue;
        for (const RankMove& move : moves) {
          free[move.to_rank] -= planner_schedule::count_of(move.bytes);
          choice_.bytes += move.bytes;
          choice_.moves.push_back(move);
          if (move.bytes == Bytes(0)) continue;
          double& link = busy[{move.from_rank, move.to_rank}] += busy_seconds(move);
          // Pairs of ranks move side by side, messages of one pair one after the other.
          slowest = std::max(slowest, request_.link.latency_seconds + link);
        }
        next[k] = shift.to;
        break;
      }
    }
    choice_.move_seconds += slowest;
    return next;
  }

  const JobRequest& request_;
  const partition::SegmentCosts& costs_;
  const schedule::WeightCopies copies_;
  const std::vector<bool> is_resident_;
  const std::size_t ranks_;
  const std::set<std::vector<std::uint32_t>> placements_;
  RebalanceChoice choice_;
};

using Begins = std::vector<partition::LayerIndex>;  // Of stages.

Begins begins_of(const partition::SegmentCosts& costs, const partition::Cuts& cuts) {
  Begins begins;
  for (std::uint32_t stage = 0; stage < costs.stages(); ++stage)
    begins.push_back(costs.first_layer(cuts[stage]));
  return begins;
}

/// Plans for stages that are there.
class Replanning {
 public:
  explicit Replanning(const JobRequest& request)
      : request_(request),
        compute_(compute_of(request)),
        partitioner_(partition::partitioner_named(request.partitioner)),
        asked_(request_for(request, choice())) {
    asked_.chain = layer_order::reordered(asked_.chain, asked_.stages.order);
  }

  OrRefusal<JobPlan> with(const Begins& begins) const {
    JobRequest asked = request_;
    asked.stages.begins = begins;
    PlanMemo memo;
    return plan_choice(asked, partitioner_, choice(), memo);
  }

  /// Candidate first layers of stages, fewest moved bytes first. `has_room`: with unlimited memory,
  /// since idle-time offload fits it into the devices after the cuts.
  std::vector<Begins> near(bool has_room) const {
    const partition::SegmentCosts costs(problem(has_room));
    std::vector<Begins> all;
    for (const partition::SolvedCuts& near :
         partition::rebalance_choices(costs, cuts_at(costs, request_.stages.begins)))
      all.push_back(begins_of(costs, near.cuts));
    return all;
  }

  /// Where they begin in a plan made anew with the same order of layers.
  OrRefusal<Begins> fresh() const {
    JobRequest asked = request_;
    asked.chain = layer_order::reordered(asked.chain, asked.stages.order);
    // Only neighbours exchange layers, so the order of the running job stays.
    asked.chain.may_reorder = false;
    asked.stages = {};
    PlanMemo memo;
    const OrRefusal<JobPlan> plan = plan_choice(asked, partitioner_, choice(), memo);
    if (!plan) return plan.refusal();
    Begins begins;
    for (const partition::StageEstimate& stage : plan->stages) begins.push_back(stage.first_layer);
    return begins;
  }

  /// Nothing where ranks have no room for layers on their way.
  std::optional<RebalanceChoice> moves_to(const Begins& begins, const JobPlan& plan) const {
    const partition::SegmentCosts costs(problem(/*has_room=*/true));
    auto choice = MoveRounds(asked_, costs, plan.actions)
                      .run(cuts_at(costs, request_.stages.begins), cuts_at(costs, begins));
    if (!choice) return std::nullopt;
    choice->begins = begins;
    choice->step_seconds = plan.step_seconds;
    return choice;
  }

 private:
  JobChoice choice() const {
    return {&planner_schedule::schedule_generator_named(request_.schedule), request_.data_parallel,
            request_.variant, request_.micro_batches};
  }

  partition::PartitionProblem problem(bool has_room) const {
    return problem_for(has_room ? unlimited(asked_) : asked_, compute_);
  }

  const JobRequest& request_;
  const schedule::Schedule compute_;
  const partition::Partitioner& partitioner_;
  JobRequest asked_;  // In the order of the stages.
};

/// Where stages might begin instead, each once.
std::vector<Begins> places_of(const Replanning& replanning, const RebalancedJob& job) {
  const bool has_room =
      job.before && job.before->memory_reduction == JobMemoryReduction::kIdleOffload;
  OrRefusal<std::vector<Begins>> near = refusing([&] { return replanning.near(has_room); });
  // Stages as they are may get into room that equal shares of a rank are too small for.
  if (!near && !job.before) planner_schedule::raise(near.refusal());
  std::vector<Begins> places = near ? std::move(*near) : std::vector<Begins>();
  const OrRefusal<Begins> fresh = replanning.fresh();  // This partitioner may find none.
  if (fresh && std::find(places.begin(), places.end(), *fresh) == places.end())
    places.push_back(*fresh);
  return places;
}

/// A choice, and the plan that it leads to.
struct Candidate {
  RebalanceChoice choice;
  JobPlan plan;
};

/// From the fewest bytes on, without those that another one makes superfluous.
std::vector<Candidate> worthwhile(std::vector<Candidate> all) {
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    const auto key = [](const RebalanceChoice& each) {
      return std::tuple(each.bytes, each.move_seconds, each.step_seconds);
    };
    return key(a.choice) < key(b.choice);
  });
  // Behind one that moves no more, and for no longer, only a faster one is worth having.
  std::vector<Candidate> kept;
  for (Candidate& each : all) {
    const bool is_superfluous = std::any_of(kept.begin(), kept.end(), [&](const Candidate& other) {
      return other.choice.move_seconds <= each.choice.move_seconds &&
             !is_faster(each.choice.step_seconds, other.choice.step_seconds);
    });
    if (!is_superfluous) kept.push_back(std::move(each));
  }
  return kept;
}

/// The choice to go on with, of those that pay.
std::optional<std::size_t> best_of(const RebalancedJob& job, std::optional<double> steps_left) {
  const double before = job.step_before();
  std::optional<std::size_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < job.choices.size(); ++i) {
    const RebalanceChoice& choice = job.choices[i];
    const auto steps = choice.pays_after(before);
    if (!steps || (steps_left && *steps > *steps_left)) continue;
    const double cost =
        steps_left ? *steps_left * choice.step_seconds + choice.move_seconds : choice.step_seconds;
    if (!is_faster(cost, least)) continue;
    least = cost;
    best = i;
  }
  return best;
}

}  // namespace

std::optional<double> RebalanceChoice::pays_after(double step_before) const {
  if (std::isinf(step_before)) return 0.0;
  if (!is_faster(step_seconds, step_before)) return std::nullopt;
  constexpr double kMostSteps = 9e15;  // Still exact, and as good as never.
  // The first whole step with which more is saved than the moves have cost.
  return std::min(std::floor(move_seconds / (step_before - step_seconds)) + 1.0, kMostSteps);
}

JobRequest request_of(const JobFile& file, const std::string& name, MeasuredModel model,
                      const std::string& profile) {
  require_same_model(file.model, name, model.chain, profile);
  JobRequest request;
  const NamedSchedule named = schedule_of(file, name);
  request.schedule = named.generator->name;
  request.variant = named.variant;
  request.chain = std::move(model.chain);
  // Somebody trusted the tensors of the profile then.
  if (!file.order.empty()) request.chain.may_reorder = true;
  request.update_seconds = model.update_seconds;
  request.reserved = model.reserved;
  request.guesses_forward = model.guesses_forward;
  request.data_parallel = file.data_parallel;
  request.ranks = file.actions.rank_count() * file.data_parallel;
  request.micro_batches = file.micro_batches;
  request.batch = file.batch;
  request.partitioner = file.partitioner;
  request.device_memory = file.device_memory;
  request.host_memory = file.host_memory;
  request.link = file.costs.peer;
  if (file.costs.reduce != request.link) request.reduce_link = file.costs.reduce;
  request.shared_sums = file.costs.shared_sums;
  if (!file.costs.host.rate.is_unlimited()) request.swap_rate = file.costs.host.rate;
  request.stages = {file.order, {}};
  for (const JobFileStage& stage : file.stages) request.stages.begins.push_back(stage.first);
  check(request);
  require_lists_of(compute_of(request), file.actions, name);
  return request;
}

RebalancedJob rebalance_job(const JobRequest& request, std::optional<double> steps_left) {
  const Replanning replanning(request);
  RebalancedJob job;
  OrRefusal<JobPlan> before = replanning.with(request.stages.begins);
  if (before)
    job.before = std::move(*before);
  else if (before.refusal().cause == Refusal::Cause::kRequest)
    planner_schedule::raise(before.refusal());
  else
    job.refusal = before.refusal().sentence;
  std::vector<Candidate> candidates;
  for (const Begins& begins : places_of(replanning, job)) {
    OrRefusal<JobPlan> plan = replanning.with(begins);
    if (!plan && plan.refusal().cause == Refusal::Cause::kRequest)
      planner_schedule::raise(plan.refusal());
    // Ranks may hold more than their stages say, or whole layers may not fit; the next one may do.
    if (!plan || !is_faster(plan->step_seconds, job.step_before())) continue;
    if (auto choice = replanning.moves_to(begins, *plan))
      candidates.push_back({std::move(*choice), std::move(*plan)});
    else
      ++job.without_room;
  }
  candidates = worthwhile(std::move(candidates));
  for (const Candidate& each : candidates) job.choices.push_back(each.choice);
  job.chosen = best_of(job, steps_left);
  if (job.chosen)
    job.plan = std::move(candidates[*job.chosen].plan);
  else if (job.before)
    job.plan = *job.before;
  else
    throw PlanError(
        "no moves between neighbours make the stages fit again{}: {}",
        job.without_room > 0 ? ", since ranks have no room for layers on their way" : "",
        job.refusal);
  return job;
}

}  // namespace spillway::job
