#include "spillway/planner/job/job_rebalance.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "job_costs.h"
#include "move_rounds.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "spillway/planner/schedule/refusal.h"

namespace spillway::planner {
namespace {

/// The action lists of a job without messages, as its generator makes them.
Schedule compute_of(const JobRequest& request) {
  const ScheduleGenerator& generator = schedule_generator_named(request.schedule);
  return generator.generate(schedule_request_for(generator, request.variant,
                                                 request.ranks / request.data_parallel,
                                                 request.micro_batches / request.data_parallel));
}

/// The passes of micro-batches through the stages of a rank, without all that memory reduction and
/// messages add to them.
std::vector<Action> passes_of(const std::vector<Action>& list) {
  std::vector<Action> passes;
  std::copy_if(list.begin(), list.end(), std::back_inserter(passes),
               [](const Action& action) { return is_model_compute(action.kind); });
  return passes;
}

void require_lists_of(const Schedule& made, const Schedule& stored, const std::string& name) {
  if (made.placement != stored.placement)
    throw ConfigError(
        "{}: its stages do not lie on ranks as {} places them; re-balancing makes the "
        "action lists anew (plan anew)",
        name, stored.name);
  const bool is_parked = schedule_in(stored.name).variant.second_copy == SecondCopy::kParked;
  if (is_parked != has_action(stored, ActionKind::kSwapInWeights))
    throw ConfigError("{}: its action lists park {}, unlike its schedule {} (plan anew)", name,
                      is_parked ? "no weights" : "weights", stored.name);
  for (std::size_t rank = 0; rank < made.ranks.size(); ++rank)
    if (passes_of(made.ranks[rank]) != passes_of(stored.ranks[rank]))
      throw ConfigError("{}: the action list of rank {} is not the one of {}; re-balancing makes "
                        "the action lists anew (plan "
                        "anew)",
                        name, rank, stored.name);
}

using Begins = std::vector<LayerIndex>;  // Of stages.

Begins begins_of(const SegmentCosts& costs, const Cuts& cuts) {
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
        partitioner_(partitioner_named(request.partitioner)),
        asked_(request_for(request, choice())) {
    asked_.chain = reordered(asked_.chain, asked_.stages.order);
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
    const SegmentCosts costs(problem(has_room));
    std::vector<Begins> all;
    for (const SolvedCuts& near : rebalance_choices(costs, cuts_at(costs, request_.stages.begins)))
      all.push_back(begins_of(costs, near.cuts));
    return all;
  }

  /// Where they begin in a plan made anew with the same order of layers.
  OrRefusal<Begins> fresh() const {
    JobRequest asked = request_;
    asked.chain = reordered(asked.chain, asked.stages.order);
    asked.chain.may_reorder = false;
    asked.stages = {};
    PlanMemo memo;
    const OrRefusal<JobPlan> plan = plan_choice(asked, partitioner_, choice(), memo);
    if (!plan) return plan.refusal();
    Begins begins;
    for (const StageEstimate& stage : plan->stages) begins.push_back(stage.first_layer);
    return begins;
  }

  /// Nothing where ranks have no room for layers on their way.
  std::optional<RebalanceChoice> moves_to(const Begins& begins, const JobPlan& plan) const {
    const SegmentCosts costs(problem(/*has_room=*/true));
    auto choice = move_rounds(asked_, costs, plan.actions, cuts_at(costs, request_.stages.begins),
                              cuts_at(costs, begins));
    if (!choice) return std::nullopt;
    choice->begins = begins;
    choice->step_seconds = plan.step_seconds;
    return choice;
  }

 private:
  JobChoice choice() const {
    return {&schedule_generator_named(request_.schedule), request_.data_parallel, request_.variant,
            request_.micro_batches};
  }

  PartitionProblem problem(bool has_room) const {
    return problem_for(has_room ? unlimited(asked_) : asked_, compute_);
  }

  const JobRequest& request_;
  const Schedule compute_;
  const Partitioner& partitioner_;
  JobRequest asked_;  // In the order of the stages.
};

/// Where stages might begin instead, each once.
std::vector<Begins> places_of(const Replanning& replanning, const RebalancedJob& job) {
  const bool has_room =
      job.before && job.before->memory_reduction == JobMemoryReduction::kIdleOffload;
  OrRefusal<std::vector<Begins>> near = refusing([&] { return replanning.near(has_room); });
  // Stages as they are may get into room that equal shares of a rank are too small for.
  if (!near && !job.before) raise(near.refusal());
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
  const NamedSchedule named = schedule_in(file.actions.name);
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
    raise(before.refusal());
  else
    job.refusal = before.refusal().sentence;
  std::vector<Candidate> candidates;
  for (const Begins& begins : places_of(replanning, job)) {
    OrRefusal<JobPlan> plan = replanning.with(begins);
    if (!plan && plan.refusal().cause == Refusal::Cause::kRequest) raise(plan.refusal());
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

}  // namespace spillway::planner
