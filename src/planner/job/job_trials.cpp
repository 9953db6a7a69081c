// Which choices are tried in which order, and which variants of them.
#include <algorithm>
#include <optional>
#include <utility>

#include "job_choices.h"
#include "spillway/planner/job/job_bound.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::planner {
namespace {

constexpr std::uint32_t kMostVariants = 128;
constexpr std::uint64_t kMostPasses = std::uint64_t{1} << 21U;  // Of usual ones, and of variants.
constexpr std::size_t kFewerMicroBatches = 3;
/// Of those that were deferred.
constexpr std::size_t kMostTriedLast = 40;

/// The attempts of a search, and what they say of each other.
class TrialRecord {
 public:
  void add(const JobChoice& choice, JobAttempt made);
  std::vector<JobAttempt> take() { return std::move(attempts_); }

  /// The step of the best plan; infinite before there is one.
  double best_seconds() const { return best_seconds_; }
  double best_seconds_of(const ScheduleGenerator& generator) const;
  /// The attempt as it was made before, or nothing. Until the next one is added.
  const JobAttempt* known(const JobChoice& choice) const;
  /// Of each schedule the choice that was fastest; the fastest schedule first.
  std::vector<JobChoice> fastest_of_each() const;
  /// The numbers of data-parallel replicas, those of the fastest attempt first.
  std::vector<std::uint32_t> data_parallel_by_time() const;

 private:
  std::vector<JobAttempt> attempts_;
  std::vector<JobChoice> choices_;  ///< By attempt.
  double best_seconds_ = kNoTime;
};

void TrialRecord::add(const JobChoice& choice, JobAttempt made) {
  if (made.is_possible()) best_seconds_ = std::min(best_seconds_, made.step_seconds);
  attempts_.push_back(std::move(made));
  choices_.push_back(choice);
}

double TrialRecord::best_seconds_of(const ScheduleGenerator& generator) const {
  double best = kNoTime;
  for (std::size_t i = 0; i < choices_.size(); ++i)
    if (choices_[i].generator == &generator && attempts_[i].is_possible())
      best = std::min(best, attempts_[i].step_seconds);
  return best;
}

const JobAttempt* TrialRecord::known(const JobChoice& choice) const {
  const std::string variant = to_string(choice.variant);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const JobChoice& other = choices_[i];
    // What was left open may have become just this.
    const bool is_same = other.variant == choice.variant || attempts_[i].variant == variant;
    if (is_same && other.generator == choice.generator &&
        other.data_parallel == choice.data_parallel && other.micro_batches == choice.micro_batches)
      return &attempts_[i];
  }
  return nullptr;
}

std::vector<JobChoice> TrialRecord::fastest_of_each() const {
  std::vector<std::size_t> best = best_of_each(attempts_);
  std::erase_if(best, [&](std::size_t each) { return !attempts_[each].is_possible(); });
  std::stable_sort(best.begin(), best.end(), [&](std::size_t a, std::size_t b) {
    return attempts_[a].step_seconds < attempts_[b].step_seconds;
  });
  std::vector<JobChoice> choices;
  for (const std::size_t each : best) choices.push_back(choices_[each]);
  return choices;
}

std::vector<std::uint32_t> TrialRecord::data_parallel_by_time() const {
  std::vector<std::pair<double, std::uint32_t>> best;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const auto same = std::find_if(best.begin(), best.end(), [&](const auto& other) {
      return other.second == choices_[i].data_parallel;
    });
    const double seconds = attempts_[i].is_possible() ? attempts_[i].step_seconds : kNoTime;
    if (same == best.end())
      best.emplace_back(seconds, choices_[i].data_parallel);
    else
      same->first = std::min(same->first, seconds);
  }
  std::sort(best.begin(), best.end());  // Of equals the fewest.
  std::vector<std::uint32_t> data_parallel;
  for (const auto& each : best) data_parallel.push_back(each.second);
  return data_parallel;
}

class Trials {
 public:
  Trials(const JobRequest& request, const TryChoice& attempt)
      : request_(request), attempt_(attempt) {}

  JobTrials run() {
    // Short pipelines are planned soonest, and often the fastest.
    std::vector<JobChoice> choices = job_choices(request_);
    std::stable_sort(choices.begin(), choices.end(), [](const JobChoice& a, const JobChoice& b) {
      return a.data_parallel > b.data_parallel;
    });
    std::uint64_t usual_passes = 0;
    for (JobChoice& choice : choices) {
      IncumbentSeconds& beat = choice.incumbent;
      beat.all = beat.deferred = record_.best_seconds_of(*choice.generator);
      if (beat.all < kNoTime) beat.offload = record_.best_seconds();
      // What is as fast may take less memory.
      if (beat.all < kNoTime && is_faster(beat.all, pipeline_bound(request_, choice)))
        ++trials_.pruned;
      else if (has_time_for(choice, usual_passes) || record_.best_seconds() == kNoTime)
        attempt(choice);
      else
        ++trials_.skipped;
    }
    if (request_.schedule == kAnySchedule) {
      for (const std::uint32_t data_parallel : record_.data_parallel_by_time())
        try_variants(data_parallel);
      if (request_.micro_batches == 0) try_fewer_micro_batches();
    }
    try_deferred();
    trials_.attempts = record_.take();
    return std::move(trials_);
  }

 private:
  /// Nothing where it was given up.
  std::optional<JobAttempt> attempt(const JobChoice& choice) {
    JobAttempt made = attempt_(choice);
    if (made.is_pruned) ++trials_.pruned;
    if (made.is_deferred) deferred_.emplace_back(made.step_seconds, choice);
    if (made.is_given_up()) return std::nullopt;
    record_.add(choice, made);
    return made;
  }

  /// Whether its passes are not too many with those before, to which it adds them.
  bool has_time_for(const JobChoice& choice, std::uint64_t& before) const {
    const std::uint64_t passes = passes_of(request_, choice);
    if (passes > kMostPasses - std::min(before, kMostPasses)) return false;
    before += passes;
    return true;
  }

  bool is_deferred(const JobChoice& choice) const {
    return std::any_of(deferred_.begin(), deferred_.end(), [&](const auto& each) {
      const JobChoice& other = each.second;
      return other.generator == choice.generator && other.data_parallel == choice.data_parallel &&
             other.variant == choice.variant && other.micro_batches == choice.micro_batches;
    });
  }

  /// By its bound, faster than what is there.
  bool may_be_best(const JobChoice& choice) const {
    const double best = record_.best_seconds();
    return best == kNoTime || is_faster(pipeline_bound(request_, choice), best);
  }

  /// Nothing where it cannot be faster than what is there, or the search has gone on for too long.
  std::optional<JobAttempt> try_variant(JobChoice choice) {
    if (const JobAttempt* made = record_.known(choice)) return *made;
    if (is_deferred(choice)) return std::nullopt;
    if (!may_be_best(choice)) {
      ++trials_.pruned;
      return std::nullopt;
    }
    if (variants_ == kMostVariants || !has_time_for(choice, passes_)) {
      ++trials_.skipped;
      return std::nullopt;
    }
    ++variants_;
    const double best = record_.best_seconds();
    choice.incumbent = {best, best, best};
    return attempt(choice);
  }

  /// What is not likely to be faster and may be, for all that is proven: the likeliest first.
  void try_deferred() {
    std::vector<std::pair<double, JobChoice>> choices = std::move(deferred_);
    std::stable_sort(choices.begin(), choices.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::size_t tried = 0;
    for (auto& [seconds, choice] : choices) {
      if (!may_be_best(choice)) {
        ++trials_.pruned;
      } else if (tried == kMostTriedLast) {
        ++trials_.skipped;
      } else {
        ++tried;
        const double best = record_.best_seconds();
        choice.incumbent = {best, kNoTime, best};
        attempt(choice);
      }
    }
  }

  /// Of values in the order of the memory that they take, the last one that needs no memory
  /// reduction; what needs more, or is given up for that, is passed on the way there.
  void try_up_to_memory(JobChoice choice, std::uint32_t JobVariant::*field,
                        const std::vector<std::uint32_t>& by_memory) {
    std::size_t first = 0;
    std::size_t end = by_memory.size();
    for (std::size_t next = end - 1; first < end; next = first + (end - first) / 2) {
      choice.variant.*field = by_memory[next];
      // With less memory they are slower still.
      const bool is_slow = !record_.known(choice) && !may_be_best(choice);
      const std::optional<JobAttempt> made = try_variant(choice);
      if (is_slow || (made && made->is_possible() && !made->reduces_memory))
        first = next + 1;
      else
        end = next;
    }
  }

  void try_variants(std::uint32_t data_parallel) {
    const std::uint32_t ranks = request_.ranks / data_parallel;
    // Sums of several stages begin beside the backward of others, also where a rank has all.
    for (const ScheduleGenerator& generator : schedule_generators())
      if (generator.stages_per_rank == StagesPerRank::kAsRequested)
        try_chunks({&generator, data_parallel}, ranks);
    if (ranks < 2) return;  // Nothing to pipeline.
    for (const ScheduleGenerator& generator : schedule_generators()) {
      if (generator.traits.has_slots) try_slots({&generator, data_parallel}, ranks);
      if (generator.traits.fewest_replicas != 0 && generator.traits.copies == 1)
        try_replicas({&generator, data_parallel});
    }
    try_second_copies(data_parallel);
    if (can_park()) try_parked(data_parallel);
  }

  void try_slots(JobChoice choice, std::uint32_t ranks) {
    std::vector<std::uint32_t> slots;
    for (std::uint32_t each = 1; each < ranks; ++each) slots.push_back(each);
    try_up_to_memory(choice, &JobVariant::slots, slots);
  }

  /// Fewer passes over the model have more micro-batches in each, which take more memory.
  void try_replicas(JobChoice choice) {
    std::vector<std::uint32_t> passes =
        divisors_of(most_micro_batches(request_) / choice.data_parallel);
    std::erase_if(passes, [&](std::uint32_t each) {
      return each < choice.generator->traits.fewest_replicas;
    });
    if (!passes.empty()) try_up_to_memory(choice, &JobVariant::replicas, passes);
  }

  /// Of schedules whose passes have the two copies of a stage in turn, each way to hold both.
  void try_second_copies(std::uint32_t data_parallel) {
    for (const SecondCopy copy :
         {SecondCopy::kStepped, SecondCopy::kSingleOwner, SecondCopy::kParked}) {
      if (copy == SecondCopy::kParked && !can_park()) continue;
      for (const ScheduleGenerator& generator : schedule_generators()) {
        if (generator.traits.alternation != Alternation::kMeet) continue;
        JobChoice choice{&generator, data_parallel};
        choice.variant.second_copy = copy;
        if (generator.traits.fewest_replicas != 0)
          try_replicas(choice);
        else
          try_variant(choice);
      }
    }
  }

  void try_chunks(JobChoice choice, std::uint32_t ranks) {
    const JobAttempt* usual = record_.known(choice);
    double before = usual && usual->is_possible() ? usual->step_seconds : kNoTime;
    for (std::uint64_t chunks = 4; chunks * ranks <= request_.chain.layers.size(); chunks *= 2) {
      choice.variant.chunks = static_cast<std::uint32_t>(chunks);
      const std::optional<JobAttempt> made = try_variant(choice);
      if (!made || !made->is_possible() || made->step_seconds >= before) return;
      before = made->step_seconds;
    }
  }

  bool can_park() const {
    return request_.swap_bytes_per_second > 0.0 && request_.device_memory != kNoLimit;
  }

  /// Of schedules with two stages on a rank, without those of `try_second_copies`, where memory is
  /// in the way.
  void try_parked(std::uint32_t data_parallel) {
    for (const ScheduleGenerator& generator : schedule_generators()) {
      const bool has_two =
          generator.stages_per_rank != StagesPerRank::kOne ||
          (generator.traits.copies > 1 && generator.traits.alternation == Alternation::kNone);
      if (!has_two) continue;
      JobChoice choice{&generator, data_parallel};
      const JobAttempt* usual = record_.known(choice);
      if (usual && usual->is_possible() && !usual->reduces_memory) continue;
      choice.variant.second_copy = SecondCopy::kParked;
      try_variant(choice);
    }
  }

  void try_fewer_micro_batches() {
    std::vector<std::uint32_t> counts = divisors_of(batch_of(request_));
    counts.erase(counts.begin());
    if (counts.size() > kFewerMicroBatches) counts.resize(kFewerMicroBatches);
    const std::vector<JobChoice> fastest = record_.fastest_of_each();
    for (const std::uint32_t count : counts)
      for (JobChoice choice : fastest) {
        if (count % choice.data_parallel != 0) continue;
        choice.micro_batches = count;
        try_variant(choice);
      }
  }

  const JobRequest& request_;
  const TryChoice& attempt_;
  JobTrials trials_;
  TrialRecord record_;
  std::vector<std::pair<double, JobChoice>> deferred_;  ///< By the step with unlimited memory.
  std::uint32_t variants_ = 0;
  std::uint64_t passes_ = 0;  ///< Of variants.
};

}  // namespace

JobTrials try_choices(const JobRequest& request, const TryChoice& attempt) {
  return Trials(request, attempt).run();
}

}  // namespace spillway::planner
