// Which choices there are, and which variants of them are worth a try.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "spillway/planner/job/job_bound.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::planner {
namespace {

constexpr std::uint32_t kMostVariants = 128;
constexpr std::uint64_t kMostPasses = std::uint64_t{1} << 22U;
constexpr std::size_t kFewerMicroBatches = 3;
constexpr double kNoTime = std::numeric_limits<double>::infinity();

/// From the largest one down.
std::vector<std::uint32_t> divisors_of(std::uint32_t number) {
  std::vector<std::uint32_t> divisors;
  for (std::uint32_t each = number; each > 0; --each)
    if (number % each == 0) divisors.push_back(each);
  return divisors;
}

class Trials {
 public:
  Trials(const JobRequest& request, const TryChoice& attempt)
      : request_(request), attempt_(attempt) {}

  JobTrials run() {
    // Short pipelines are planned soonest, and often the fastest.
    std::vector<JobChoice> choices = job_choices(request_);
    std::stable_sort(choices.begin(), choices.end(),
                     [](const JobChoice& a, const JobChoice& b) { return a.groups > b.groups; });
    for (JobChoice& choice : choices) {
      choice.seconds_to_beat = best_seconds_of(*choice.generator);
      if (choice.seconds_to_beat < kNoTime) choice.windows_to_beat = best_seconds_;
      attempt(choice);
    }
    if (request_.schedule == kAnySchedule) {
      for (const std::uint32_t groups : groups_by_time()) try_variants(groups);
      if (request_.micro_batches == 0) try_fewer_micro_batches();
    }
    return std::move(trials_);
  }

 private:
  /// Nothing where it was found not to be fast enough.
  std::optional<JobAttempt> attempt(const JobChoice& choice) {
    JobAttempt made = attempt_(choice);
    if (made.is_hopeless) {
      ++trials_.hopeless;
      return std::nullopt;
    }
    if (made.is_possible()) best_seconds_ = std::min(best_seconds_, made.step_seconds);
    trials_.attempts.push_back(made);
    choices_.push_back(choice);
    return made;
  }

  double best_seconds_of(const ScheduleGenerator& generator) const {
    double best = kNoTime;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (choices_[i].generator == &generator && trials_.attempts[i].is_possible())
        best = std::min(best, seconds_of(i));
    return best;
  }

  /// The attempt as it was made before, or nothing.
  const JobAttempt* known(const JobChoice& choice) const {
    const std::string variant = to_string(choice.variant);
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const JobChoice& other = choices_[i];
      const JobAttempt& made = trials_.attempts[i];
      // What was left open may have become just this.
      const bool is_same = other.variant == choice.variant || made.variant == variant;
      if (is_same && other.generator == choice.generator && other.groups == choice.groups &&
          other.micro_batches == choice.micro_batches)
        return &made;
    }
    return nullptr;
  }

  /// Passes of micro-batches through stages in the lists of a choice.
  std::uint64_t passes_of(const JobChoice& choice, const JobRequest& asked) const {
    const std::uint32_t own = asked.micro_batches / asked.groups;
    return choice.generator->stage_count(
               lists_for(*choice.generator, choice.variant, asked.ranks / asked.groups, own)) *
           own;
  }

  /// Nothing where it cannot be faster than what is there, or the search has gone on for too long.
  std::optional<JobAttempt> try_variant(const JobChoice& choice) {
    if (const JobAttempt* made = known(choice)) return *made;
    const JobRequest asked = request_for(request_, choice);
    if (!is_faster(job_bound(asked), best_seconds_)) {
      ++trials_.hopeless;
      return std::nullopt;
    }
    const std::uint64_t passes = passes_of(choice, asked);
    if (variants_ == kMostVariants || passes > kMostPasses - passes_) {
      ++trials_.left_out;
      return std::nullopt;
    }
    ++variants_;
    passes_ += passes;
    JobChoice tried = choice;
    tried.seconds_to_beat = tried.windows_to_beat = best_seconds_;
    return attempt(tried);
  }

  /// Of values in the order of the memory that they take, the last one that needs no relief; what
  /// needs more is tried on the way there.
  void try_up_to_memory(JobChoice choice, std::uint32_t JobVariant::*field,
                        const std::vector<std::uint32_t>& by_memory) {
    std::size_t first = 0;
    std::size_t end = by_memory.size();
    for (std::size_t next = end - 1; first < end; next = first + (end - first) / 2) {
      choice.variant.*field = by_memory[next];
      const std::optional<JobAttempt> made = try_variant(choice);
      if (!made) return;
      if (made->is_possible() && !made->is_relieved)
        first = next + 1;
      else
        end = next;
    }
  }

  void try_variants(std::uint32_t groups) {
    const std::uint32_t ranks = request_.ranks / groups;
    if (ranks < 2) return;  // Nothing to pipeline.
    try_slots(groups, ranks);
    try_gems(groups);
    for (const ScheduleGenerator& generator : schedule_generators())
      if (generator.stages_per_rank == StagesPerRank::kAsRequested)
        try_chunks({&generator, groups}, ranks);
    if (can_park()) try_parked(groups);
  }

  void try_slots(std::uint32_t groups, std::uint32_t ranks) {
    std::vector<std::uint32_t> slots;
    for (std::uint32_t each = 1; each < ranks; ++each) slots.push_back(each);
    try_up_to_memory({&schedule_generator_named("1f1b-capped"), groups}, &JobVariant::slots, slots);
  }

  /// Fewer passes over the model have more micro-batches in each, which take more memory. One or
  /// two passes of gems-master are other schedules.
  void try_gems(std::uint32_t groups) {
    std::vector<std::uint32_t> passes = divisors_of(most_micro_batches(request_) / groups);
    try_up_to_memory({&schedule_generator_named("gems-basic"), groups}, &JobVariant::replicas,
                     passes);
    std::erase_if(passes, [](std::uint32_t each) { return each < 3; });
    JobChoice twice{&schedule_generator_named("gems-mast"), groups};
    JobChoice often{&schedule_generator_named("gems-master"), groups};
    for (const SecondCopy copy :
         {SecondCopy::kStepped, SecondCopy::kSingleOwner, SecondCopy::kParked}) {
      if (copy == SecondCopy::kParked && !can_park()) continue;
      twice.variant.second_copy = often.variant.second_copy = copy;
      try_variant(twice);
      if (!passes.empty()) try_up_to_memory(often, &JobVariant::replicas, passes);
    }
  }

  void try_chunks(JobChoice choice, std::uint32_t ranks) {
    const JobAttempt* usual = known(choice);
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

  /// Of schedules with two stages on a rank, GEMS apart, where memory is in the way.
  void try_parked(std::uint32_t groups) {
    for (const ScheduleGenerator& generator : schedule_generators()) {
      if (generator.stages_per_rank == StagesPerRank::kOne && generator.name != "chimera") continue;
      JobChoice choice{&generator, groups};
      const JobAttempt* usual = known(choice);
      if (usual && usual->is_possible() && !usual->is_relieved) continue;
      choice.variant.second_copy = SecondCopy::kParked;
      try_variant(choice);
    }
  }

  void try_fewer_micro_batches() {
    std::vector<std::uint32_t> counts = divisors_of(batch_of(request_));
    counts.erase(counts.begin());
    if (counts.size() > kFewerMicroBatches) counts.resize(kFewerMicroBatches);
    const std::vector<JobChoice> fastest = fastest_of_each();
    for (const std::uint32_t count : counts)
      for (JobChoice choice : fastest) {
        if (count % choice.groups != 0) continue;
        choice.micro_batches = count;
        try_variant(choice);
      }
  }

  /// Of each schedule the choice that was fastest; the fastest schedule first.
  std::vector<JobChoice> fastest_of_each() const {
    std::vector<std::size_t> best = best_of_each(trials_.attempts);
    std::erase_if(best, [&](std::size_t each) { return !trials_.attempts[each].is_possible(); });
    std::stable_sort(best.begin(), best.end(),
                     [&](std::size_t a, std::size_t b) { return seconds_of(a) < seconds_of(b); });
    std::vector<JobChoice> choices;
    for (const std::size_t each : best) choices.push_back(choices_[each]);
    return choices;
  }

  /// The numbers of groups, those of the fastest attempt first.
  std::vector<std::uint32_t> groups_by_time() const {
    std::vector<std::pair<double, std::uint32_t>> best;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const auto same = std::find_if(best.begin(), best.end(), [&](const auto& other) {
        return other.second == choices_[i].groups;
      });
      const double seconds = trials_.attempts[i].is_possible() ? seconds_of(i) : kNoTime;
      if (same == best.end())
        best.emplace_back(seconds, choices_[i].groups);
      else
        same->first = std::min(same->first, seconds);
    }
    std::sort(best.begin(), best.end());  // Of equals the fewest.
    std::vector<std::uint32_t> groups;
    for (const auto& each : best) groups.push_back(each.second);
    return groups;
  }

  double seconds_of(std::size_t index) const { return trials_.attempts[index].step_seconds; }

  const JobRequest& request_;
  const TryChoice& attempt_;
  JobTrials trials_;
  std::vector<JobChoice> choices_;  ///< By attempt.
  double best_seconds_ = kNoTime;
  std::uint32_t variants_ = 0;
  std::uint64_t passes_ = 0;  ///< Of variants.
};

}  // namespace

std::vector<JobChoice> job_choices(const JobRequest& request) {
  check(request);
  const bool is_open = request.schedule == kAnySchedule;
  const std::uint32_t micro_batches = most_micro_batches(request);
  std::vector<std::uint32_t> groups;
  if (request.groups != 0)
    groups = {request.groups};
  else if (!is_open)
    groups = {1};
  else
    for (std::uint32_t count = 1; count <= std::min(request.ranks, micro_batches); ++count)
      if (request.ranks % count == 0 && micro_batches % count == 0) groups.push_back(count);
  std::vector<JobChoice> choices;
  for (const std::uint32_t count : groups) {
    if (!is_open) {
      choices.push_back({&schedule_generator_named(request.schedule), count, request.variant});
      continue;
    }
    for (const ScheduleGenerator& generator : schedule_generators())
      choices.push_back({&generator, count});
  }
  return choices;
}

JobTrials try_choices(const JobRequest& request, const TryChoice& attempt) {
  return Trials(request, attempt).run();
}

}  // namespace spillway::planner
