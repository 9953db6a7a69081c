#include "spillway/planner/job/job_rebalance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "job_costs.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/model_identity.h"
#include "spillway/planner/partition/rebalance.h"

namespace spillway::planner {
namespace {

/// The lists of a job without messages, as its generator makes them.
Schedule compute_of(const JobRequest& request) {
  const ScheduleGenerator& generator = schedule_generator_named(request.schedule);
  return generator.generate(lists_for(generator, request.variant, request.ranks / request.groups,
                                      request.micro_batches / request.groups));
}

/// The distinct ways in which copies of the stages lie on ranks.
std::set<std::vector<std::uint32_t>> placements_of(const Schedule& schedule) {
  return {schedule.placement.begin(), schedule.placement.end()};
}

/// The moves of one copy of the model after those of others, all messages of a flush at the same
/// time.
void add_moves(const RebalancePlan& plan, const std::vector<std::uint32_t>& rank_of,
               const LinkCosts& link, RebalanceChoice& choice) {
  for (const LayerMove& move : plan.moves) {
    RankMove made;
    made.flush = move.flush;
    made.first_layer = move.first_layer;
    made.last_layer = move.last_layer;
    made.from_stage = move.from_stage;
    made.to_stage = move.to_stage;
    made.from_rank = rank_of[move.from_stage];
    made.to_rank = rank_of[move.to_stage];
    if (made.from_rank != made.to_rank) made.bytes = move.bytes;
    if (made.bytes > Bytes(0))
      made.seconds = link.latency_seconds + count_of(made.bytes) / link.bytes_per_second;
    choice.bytes += made.bytes;
    choice.moves.push_back(made);
  }
}

/// Of all flushes: the rank whose link is busy longest, in the worse direction.
double move_seconds(const std::vector<RankMove>& moves) {
  std::map<std::uint32_t, double> of_flush;
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> sent, received;
  for (const RankMove& move : moves) {
    double& slowest = of_flush[move.flush];
    slowest = std::max({slowest, sent[{move.flush, move.from_rank}] += move.seconds,
                        received[{move.flush, move.to_rank}] += move.seconds});
  }
  double seconds = 0.0;
  for (const auto& [flush, slowest] : of_flush) seconds += slowest;
  return seconds;
}

RebalanceChoice choice_of(const RebalancePlan& plan, const SegmentCosts& costs,
                          const Schedule& compute, const LinkCosts& link) {
  RebalanceChoice choice;
  for (std::uint32_t stage = 0; stage < costs.stages(); ++stage)
    choice.begins.push_back(costs.first_layer(plan.cuts[stage]));
  for (const std::vector<std::uint32_t>& ranks : placements_of(compute))
    add_moves(plan, ranks, link, choice);
  std::stable_sort(choice.moves.begin(), choice.moves.end(),
                   [](const RankMove& a, const RankMove& b) { return a.flush < b.flush; });
  choice.flushes = plan.flushes;
  choice.move_seconds = move_seconds(choice.moves);
  return choice;
}

/// Plans for stages that are there.
class Replanning {
 public:
  explicit Replanning(const JobRequest& request)
      : request_(request), compute_(compute_of(request)) {}

  JobPlan with(const std::vector<LayerIndex>& begins) const {
    JobRequest asked = request_;
    asked.stages.begins = begins;
    return make_job_plan(asked, partitioner_named(asked.partitioner), choice());
  }

  /// Where layers may go, from the fewest bytes on, without their steps. `has_room`: as if devices
  /// had no end, since windows make room behind the cuts.
  std::vector<RebalanceChoice> choices(bool has_room) const {
    JobRequest asked = request_for(request_, choice());
    asked.chain = reordered(asked.chain, asked.stages.order);
    if (has_room) asked.device_memory = kNoLimit;
    const SegmentCosts costs(problem_for(asked, compute_));
    CutMemo memo;
    const Cuts now = cuts_for(asked, partitioner_named(asked.partitioner), costs, memo);
    std::vector<RebalanceChoice> choices;
    for (const RebalancePlan& plan : rebalance_choices(costs, now, {}))
      choices.push_back(choice_of(plan, costs, compute_, asked.link));
    return choices;
  }

 private:
  JobChoice choice() const {
    return {&schedule_generator_named(request_.schedule), request_.groups, request_.variant,
            request_.micro_batches};
  }

  const JobRequest& request_;
  const Schedule compute_;
};

/// Nothing where stages as they are get into room that equal shares of a rank are too small for.
std::vector<RebalanceChoice> choices_of(const Replanning& replanning, const RebalancedJob& job) {
  try {
    return replanning.choices(job.before && job.before->relief == JobRelief::kWindows);
  } catch (const Error&) {
    if (!job.before) throw;
    return {};
  }
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
  request.groups = file.groups;
  request.ranks = file.actions.rank_count() * file.groups;
  request.micro_batches = file.micro_batches;
  request.batch = file.batch;
  request.partitioner = file.partitioner;
  request.device_memory = file.device_memory;
  request.host_memory = file.host_memory;
  request.link = file.costs.peer;
  const LinkCosts& reduce = file.costs.reduce;
  if (reduce.latency_seconds != request.link.latency_seconds ||
      reduce.bytes_per_second != request.link.bytes_per_second)
    request.reduce_link = reduce;
  request.shared_sums = file.costs.shared_sums;
  if (!std::isinf(file.costs.host.bytes_per_second))
    request.swap_bytes_per_second = file.costs.host.bytes_per_second;
  request.stages = {file.order, {}};
  for (const JobFileStage& stage : file.stages) request.stages.begins.push_back(stage.first);
  check(request);
  if (compute_of(request).placement != file.actions.placement)
    throw ConfigError(
        "{}: its stages do not lie on ranks as {} places them; re-balancing makes the "
        "lists anew (plan anew)",
        name, file.actions.name);
  return request;
}

RebalancedJob rebalance_job(const JobRequest& request, std::optional<double> steps_left) {
  const Replanning replanning(request);
  RebalancedJob job;
  try {
    job.before = replanning.with(request.stages.begins);
  } catch (const PlanError& error) {
    job.refusal = error.what();
  }
  std::vector<JobPlan> plans;
  for (RebalanceChoice& choice : choices_of(replanning, job)) {
    try {
      JobPlan plan = replanning.with(choice.begins);
      choice.step_seconds = plan.step_seconds;
      const double quickest = plans.empty() ? job.step_before() : plans.back().step_seconds;
      if (!is_faster(plan.step_seconds, quickest)) continue;
      plans.push_back(std::move(plan));
      job.choices.push_back(std::move(choice));
    } catch (const PlanError&) {
      // Ranks hold more than their stages say, or whole layers do not fit; the next one may do.
    }
  }
  job.chosen = best_of(job, steps_left);
  if (job.chosen)
    job.plan = std::move(plans[*job.chosen]);
  else if (job.before)
    job.plan = *job.before;
  else
    throw PlanError("no moves between neighbours make the stages fit again: {}", job.refusal);
  return job;
}

}  // namespace spillway::planner
