// Which candidates are tried in which order, and which variants of them.
#include "spillway/planner/job/candidate_list.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "search_limits.h"
#include "spillway/planner/job/job_bound.h"

namespace spillway::job {
namespace {

/// From the largest one down.
std::vector<std::uint32_t> divisors_of(std::uint32_t number) {
  std::vector<std::uint32_t> divisors;
  for (std::uint32_t each = number; each > 0; --each)
    if (number % each == 0) divisors.push_back(each);
  return divisors;
}

/// Passes of micro-batches through stages in the action lists of a choice; none where it has more
/// stages than there are layers, and so no action lists.
std::uint64_t passes_of(const JobRequest& request, const JobChoice& choice) {
  const std::uint32_t ranks = request.ranks / choice.data_parallel;
  const std::uint32_t all =
      choice.micro_batches != 0 ? choice.micro_batches : most_micro_batches(request);
  const std::uint32_t own = all / choice.data_parallel;
  const std::uint64_t stages = choice.generator->stage_count(
      schedule_request_for(*choice.generator, choice.variant, ranks, own));
  return stages > request.chain.layers.size() ? 0 : stages * own;
}

/// All but their options.
bool have_same_counts(const JobChoice& a, const JobChoice& b) {
  return a.generator == b.generator && a.data_parallel == b.data_parallel &&
         a.micro_batches == b.micro_batches;
}

bool can_park(const JobRequest& request) {
  return !request.swap_rate.is_none() && request.device_memory != partition::kNoLimit;
}

/// Whether other cuts may help, by what the first ones say.
bool may_win(const JobAttempt& attempt, double best) {
  if (!attempt.is_possible()) return attempt.missing > Bytes(0);
  return is_faster(attempt.step_seconds / kMostGainOfCuts, best);
}

/// Plans first, the fastest of them before others; then what lacks the least memory.
bool is_likelier(const JobAttempt& a, const JobAttempt& b) {
  if (a.is_possible() != b.is_possible()) return a.is_possible();
  return a.is_possible() ? a.step_seconds < b.step_seconds : a.missing < b.missing;
}

}  // namespace

JobAttempt figures_of(const JobPlan& plan) {
  JobAttempt attempt{plan.partitioner, plan.schedule, plan.data_parallel, to_string(plan.variant),
                     plan.micro_batches};
  attempt.choice = choice_of(plan);
  attempt.step_seconds = plan.step_seconds;
  attempt.bubble = plan.timing.bubble;
  attempt.exposed_communication_seconds = plan.exposed_communication_seconds();
  attempt.gap = plan.gap();
  attempt.seconds_per_micro_batch = plan.seconds_per_micro_batch;
  attempt.peak = plan.peak();
  attempt.reduces_memory = plan.reduces_memory();
  attempt.not_tried = plan.not_tried;
  std::uint64_t actions = 0;
  for (const auto& list : plan.actions.ranks) actions += list.size();
  attempt.size = {plan.data_parallel, plan.actions.replica_count(), plan.actions.stages, actions};
  return attempt;
}

JobAttempt attempt_of(const JobRequest& request, const partition::Partitioner& partitioner,
                      const JobChoice& choice, const OrRefusal<JobPlan>& plan) {
  if (plan) {
    JobAttempt attempt = figures_of(*plan);
    attempt.choice = choice;
    return attempt;
  }
  JobAttempt attempt{std::string(partitioner.name),
                     std::string(choice.generator->name),
                     choice.data_parallel,
                     to_string(choice.variant),
                     choice.micro_batches != 0 ? choice.micro_batches : most_micro_batches(request),
                     choice};
  const Refusal& reason = plan.refusal();
  attempt.refusal = reason.sentence;
  attempt.is_pruned = reason.cause == Refusal::Cause::kPruned;
  attempt.is_deferred = reason.cause == Refusal::Cause::kDeferred;
  if (attempt.is_deferred) attempt.step_seconds = reason.seconds;
  // Only a lack of room has figures, which tell what devices would do.
  if (reason.cause != Refusal::Cause::kRoom) return attempt;
  attempt.missing = reason.needed - request.device_memory;
  attempt.fullest_rank = reason.rank;
  return attempt;
}

bool is_better(const JobAttempt& attempt, const JobAttempt& other) {
  if (!attempt.is_possible() || !other.is_possible())
    return attempt.is_possible() && !other.is_possible();
  if (is_faster(attempt.step_seconds, other.step_seconds)) return true;
  if (is_faster(other.step_seconds, attempt.step_seconds)) return false;
  if (attempt.peak != other.peak) return attempt.peak < other.peak;
  return attempt.size < other.size;
}

std::vector<std::size_t> best_of_each(std::span<const JobAttempt> attempts) {
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const auto same = std::find_if(best.begin(), best.end(), [&](std::size_t other) {
      return attempts[other].schedule == attempts[i].schedule;
    });
    if (same == best.end())
      best.push_back(i);
    else if (is_better(attempts[i], attempts[*same]))
      *same = i;
  }
  return best;
}

std::vector<JobChoice> job_choices(const JobRequest& request) {
  check(request);
  const bool is_open = request.schedule == kAnySchedule;
  const std::uint32_t micro_batches = most_micro_batches(request);
  std::vector<std::uint32_t> data_parallel;
  if (request.data_parallel != 0)
    data_parallel = {request.data_parallel};
  else if (!is_open)
    data_parallel = {1};
  else
    // All pipelines of a step have as many ranks and as many micro-batches.
    for (std::uint32_t count = 1; count <= std::min(request.ranks, micro_batches); ++count)
      if (request.ranks % count == 0 && micro_batches % count == 0) data_parallel.push_back(count);
  std::vector<JobChoice> choices;
  for (const std::uint32_t count : data_parallel) {
    if (!is_open) {
      choices.push_back(
          {&planner_schedule::schedule_generator_named(request.schedule), count, request.variant});
      continue;
    }
    for (const planner_schedule::ScheduleGenerator& generator :
         planner_schedule::schedule_generators())
      choices.push_back({&generator, count});
  }
  return choices;
}

CandidateList::CandidateList(const JobRequest& request)
    : request_(request),
      defaults_{kMostPasses},
      variants_{kMostVariants},
      variant_passes_{kMostPasses},
      last_{kMostDeferred},
      passes_again_{kMostPassesAgain} {
  begin(phase_);
}

std::optional<JobChoice> CandidateList::next() {
  for (;;) {
    while (!walks_.empty()) {
      const Walk& walk = walks_.front();
      choice_ = walk.choice;
      choice_.cut_effort = kFirstLook;
      if (walk.option != nullptr) choice_.variant.*walk.option = walk.values[walk.at];
      const bool is_admitted = phase_ == Phase::kDefaults   ? admits_default()
                               : phase_ == Phase::kDeferred ? admits_deferred()
                               : phase_ == Phase::kAllCuts  ? admits_all_cuts()
                                                            : admits_variant();
      if (is_admitted) return choice_;
    }
    if (phase_ == Phase::kOver) return std::nullopt;
    // Only now: what a phase tries depends on what became of the phases before.
    begin(static_cast<Phase>(static_cast<int>(phase_) + 1));
  }
}

bool CandidateList::add(JobAttempt made) {
  made.choice = choice_;
  if (phase_ == Phase::kAllCuts) {
    // It was tried before, with its first cuts, so only what beats all is news.
    if (!made.is_possible() || !is_faster(made.step_seconds, best_seconds())) return go_on(nullptr);
  } else {
    if (made.is_pruned) ++trials_.pruned;
    if (made.is_deferred) deferred_.emplace_back(made.step_seconds, choice_);
    // It has no figures to compare, and may come again.
    if (made.is_given_up()) return go_on(nullptr);
  }
  const bool is_best = made.is_possible() && (!best_ || is_better(made, trials_.attempts[*best_]));
  if (is_best) best_ = trials_.attempts.size();
  trials_.attempts.push_back(std::move(made));
  go_on(&trials_.attempts.back());
  return is_best;
}

double CandidateList::best_seconds() const {
  return best_ ? trials_.attempts[*best_].step_seconds : kNoTime;
}

double CandidateList::best_seconds_of(const planner_schedule::ScheduleGenerator& generator) const {
  double best = kNoTime;
  for (const JobAttempt& each : trials_.attempts)
    if (each.choice.generator == &generator && each.is_possible())
      best = std::min(best, each.step_seconds);
  return best;
}

/// The attempt as it was made before, or nothing. Until the next one is added.
const JobAttempt* CandidateList::known(const JobChoice& choice) const {
  const std::string variant = to_string(choice.variant);
  for (const JobAttempt& each : trials_.attempts)
    // What was left open may have become just this.
    if ((each.choice.variant == choice.variant || each.variant == variant) &&
        have_same_counts(each.choice, choice))
      return &each;
  return nullptr;
}

bool CandidateList::is_deferred(const JobChoice& choice) const {
  return std::any_of(deferred_.begin(), deferred_.end(), [&](const auto& each) {
    return each.second.variant == choice.variant && have_same_counts(each.second, choice);
  });
}

/// By its bound, faster than what is there.
bool CandidateList::may_be_best(const JobChoice& choice) const {
  return !best_ || is_faster(pipeline_bound(request_, choice), best_seconds());
}

/// The numbers of data-parallel replicas, those of the fastest attempt first.
std::vector<std::uint32_t> CandidateList::data_parallel_by_time() const {
  std::map<std::uint32_t, double> best;
  for (const JobAttempt& each : trials_.attempts) {
    double& seconds = best.try_emplace(each.choice.data_parallel, kNoTime).first->second;
    if (each.is_possible()) seconds = std::min(seconds, each.step_seconds);
  }
  std::vector<std::uint32_t> data_parallel;
  for (const auto& each : best) data_parallel.push_back(each.first);
  // Of equals the fewest.
  std::stable_sort(data_parallel.begin(), data_parallel.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return best[a] < best[b]; });
  return data_parallel;
}

void CandidateList::begin(Phase phase) {
  phase_ = phase;
  const bool is_open = request_.schedule == kAnySchedule;
  if (phase == Phase::kDefaults) {
    for (const JobChoice& choice : job_choices(request_)) walks_.push_back({choice});
    // Short pipelines are planned soonest, and often the fastest.
    std::stable_sort(walks_.begin(), walks_.end(), [](const Walk& a, const Walk& b) {
      return a.choice.data_parallel > b.choice.data_parallel;
    });
  }
  if (phase == Phase::kVariants && is_open)
    for (const std::uint32_t count : data_parallel_by_time()) add_variants(count);
  if (phase == Phase::kFewerMicroBatches && is_open && request_.micro_batches == 0)
    add_fewer_micro_batches();
  if (phase == Phase::kDeferred) {
    std::stable_sort(deferred_.begin(), deferred_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    // The fastest with unlimited memory first: what it reaches rules out others behind it.
    for (const auto& each : std::exchange(deferred_, {})) walks_.push_back({each.second});
  }
  if (phase == Phase::kAllCuts && is_open && request_.cut_effort == CutEffort::kAll &&
      partition::partitioner_named(request_.partitioner).reading == partition::Reading::kOurs) {
    for (const JobAttempt& each : trials_.attempts)
      walks_.push_back({.choice = each.choice, .attempt = each});
    std::stable_sort(walks_.begin(), walks_.end(), [](const Walk& a, const Walk& b) {
      return is_likelier(a.attempt, b.attempt);
    });
  }
}

void CandidateList::add_walk(JobChoice choice, std::uint32_t JobVariant::*option,
                             std::vector<std::uint32_t> values) {
  if (values.empty()) return;
  // The last value first: it takes the most memory, and where that fits, nothing else is tried.
  const std::size_t count = values.size();
  walks_.push_back({.choice = choice,
                    .option = option,
                    .values = std::move(values),
                    .halves = true,
                    .at = count - 1,
                    .end = count});
}

void CandidateList::add_variants(std::uint32_t data_parallel) {
  const std::uint32_t ranks = request_.ranks / data_parallel;
  // Sums of several stages begin beside the backward of others, also where a rank has all.
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators())
    if (generator.stages_per_rank == planner_schedule::StagesPerRank::kAsRequested)
      add_chunks({&generator, data_parallel}, ranks);
  if (ranks < 2) return;  // Nothing to pipeline.
  // As many slots as ranks hold what 1F1B holds, and are no faster.
  std::vector<std::uint32_t> slots(ranks - 1);
  std::iota(slots.begin(), slots.end(), 1U);
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators()) {
    if (generator.traits.has_slots)
      add_walk({&generator, data_parallel}, &JobVariant::slots, slots);
    if (generator.traits.fewest_replicas != 0 && generator.traits.copies == 1)
      add_replicas({&generator, data_parallel});
  }
  add_second_copies(data_parallel);
  if (can_park(request_)) add_parked(data_parallel);
}

/// Doubled as long as that is faster.
void CandidateList::add_chunks(JobChoice choice, std::uint32_t ranks) {
  std::vector<std::uint32_t> values;
  // Two are the default, which was tried.
  for (std::uint64_t chunks = 4; chunks * ranks <= request_.chain.layers.size(); chunks *= 2)
    values.push_back(static_cast<std::uint32_t>(chunks));
  if (values.empty()) return;
  const JobAttempt* usual = known(choice);
  const std::size_t count = values.size();
  walks_.push_back({.choice = choice,
                    .option = &JobVariant::chunks,
                    .values = std::move(values),
                    .before = usual && usual->is_possible() ? usual->step_seconds : kNoTime,
                    .end = count});
}

/// Fewer passes over the model have more micro-batches in each, which take more memory.
void CandidateList::add_replicas(JobChoice choice) {
  std::vector<std::uint32_t> passes =
      divisors_of(most_micro_batches(request_) / choice.data_parallel);
  std::erase_if(
      passes, [&](std::uint32_t each) { return each < choice.generator->traits.fewest_replicas; });
  add_walk(choice, &JobVariant::replicas, std::move(passes));
}

/// Of schedules whose passes have the two copies of a stage in turn, each way to hold both.
void CandidateList::add_second_copies(std::uint32_t data_parallel) {
  for (const SecondCopy copy :
       {SecondCopy::kStepped, SecondCopy::kSingleOwner, SecondCopy::kParked}) {
    if (copy == SecondCopy::kParked && !can_park(request_)) continue;
    for (const planner_schedule::ScheduleGenerator& generator :
         planner_schedule::schedule_generators()) {
      if (generator.traits.alternation != planner_schedule::Alternation::kMeet) continue;
      JobChoice choice{&generator, data_parallel};
      choice.variant.second_copy = copy;
      if (generator.traits.fewest_replicas != 0)
        add_replicas(choice);
      else
        walks_.push_back({choice});
    }
  }
}

/// Of schedules with two stages on a rank, without those of `add_second_copies`, where memory is in
/// the way.
void CandidateList::add_parked(std::uint32_t data_parallel) {
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators()) {
    if (!can_park(generator) ||
        generator.traits.alternation == planner_schedule::Alternation::kMeet)
      continue;
    JobChoice choice{&generator, data_parallel};
    const JobAttempt* usual = known(choice);
    // Parking costs transfers and gives memory, which is not lacking here.
    if (usual && usual->is_possible() && !usual->reduces_memory) continue;
    choice.variant.second_copy = SecondCopy::kParked;
    walks_.push_back({choice});
  }
}

/// Each schedule as it is fastest; the fastest one first.
void CandidateList::add_fewer_micro_batches() {
  const std::vector<JobAttempt>& attempts = trials_.attempts;
  std::vector<std::size_t> fastest = best_of_each(attempts);
  std::erase_if(fastest, [&](std::size_t each) { return !attempts[each].is_possible(); });
  std::stable_sort(fastest.begin(), fastest.end(), [&](std::size_t a, std::size_t b) {
    return attempts[a].step_seconds < attempts[b].step_seconds;
  });
  std::vector<std::uint32_t> counts = divisors_of(batch_of(request_));
  // The batch itself was tried.
  counts.erase(counts.begin());
  if (counts.size() > kMostFewerCounts) counts.resize(kMostFewerCounts);
  for (const std::uint32_t count : counts)
    for (const std::size_t each : fastest) {
      JobChoice choice = attempts[each].choice;
      if (count % choice.data_parallel != 0) continue;
      choice.micro_batches = count;
      walks_.push_back({choice});
    }
}

bool CandidateList::admits_default() {
  IncumbentSeconds& beat = choice_.incumbent;
  // Of the same schedule, so that the result has the best plan of each. Idle-time offload takes the
  // longest to look for, and has to beat all of them.
  beat.all = beat.deferred = best_seconds_of(*choice_.generator);
  if (beat.all < kNoTime) beat.offload = best_seconds();
  // What is as fast may take less memory.
  if (beat.all < kNoTime && is_faster(beat.all, pipeline_bound(request_, choice_)))
    return leave_out(trials_.pruned);
  // While nothing fits, even what is beyond the limit may be the only plan.
  if (defaults_.spend(passes_of(request_, choice_)) || !best_) return true;
  return leave_out(trials_.skipped);
}

bool CandidateList::admits_variant() {
  // Some values of an option are the defaults, which were tried before.
  if (const JobAttempt* made = known(choice_)) return go_on(made);
  const bool is_slow = !may_be_best(choice_);
  if (is_deferred(choice_)) return go_on(nullptr, is_slow);
  if (is_slow) return leave_out(trials_.pruned, is_slow);
  if (variants_.left == 0 || !variant_passes_.spend(passes_of(request_, choice_)))
    return leave_out(trials_.skipped);
  variants_.spend(1);
  choice_.incumbent = {best_seconds(), best_seconds(), best_seconds()};
  return true;
}

bool CandidateList::admits_deferred() {
  if (!may_be_best(choice_)) return leave_out(trials_.pruned);
  if (!last_.spend(1)) return leave_out(trials_.skipped);
  // Nobody defers it again: this is its turn.
  choice_.incumbent = {best_seconds(), kNoTime, best_seconds()};
  return true;
}

bool CandidateList::admits_all_cuts() {
  if (!may_win(walks_.front().attempt, best_seconds()) ||
      !passes_again_.spend(passes_of(request_, choice_)))
    return go_on(nullptr);
  choice_.incumbent = {best_seconds(), best_seconds(), best_seconds()};
  choice_.cut_effort = CutEffort::kAll;
  return true;
}

bool CandidateList::leave_out(std::uint32_t& counter, bool is_slow) {
  ++counter;
  return go_on(nullptr, is_slow);
}

/// What comes after this attempt, or after nothing where it was left out or given up.
bool CandidateList::go_on(const JobAttempt* made, bool is_slow) {
  Walk& walk = walks_.front();
  const bool works = made && made->is_possible();
  if (walk.halves) {
    // What is slow is slower still with less memory, so it is passed like what fits.
    if (is_slow || (works && !made->reduces_memory))
      walk.first = walk.at + 1;
    else
      walk.end = walk.at;
    walk.at = walk.first + (walk.end - walk.first) / 2;
  } else if (works && made->step_seconds < walk.before) {
    walk.before = made->step_seconds;
    walk.at = ++walk.first;
  } else {
    walk.first = walk.end;
  }
  if (walk.first >= walk.end) walks_.pop_front();
  return false;
}

}  // namespace spillway::job
