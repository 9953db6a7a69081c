#include "spillway/planner/job/job_variant.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"

namespace spillway::job {
namespace {

// As many as generators take, but refused here by the word that was written.
constexpr std::uint32_t kMostOfAnything = 1U << 16U;
// The fewest that interleave: each further one costs messages. While a rank works on one of two,
// the other one can be parked.
constexpr std::uint32_t kChunks = 2;

using planner_schedule::ScheduleGenerator;

bool has_chunks(const ScheduleGenerator& generator) {
  return generator.stages_per_rank == planner_schedule::StagesPerRank::kAsRequested;
}
bool has_slots(const ScheduleGenerator& generator) { return generator.traits.has_slots; }
bool has_replicas(const ScheduleGenerator& generator) {
  return generator.traits.fewest_replicas != 0;
}
/// Ranks that hold two copies of the same parameters, one for each direction.
bool has_copies(const ScheduleGenerator& generator) { return generator.traits.copies > 1; }

using IsOpen = bool (*)(const ScheduleGenerator& generator);

struct CountWord {
  std::string_view name;
  std::uint32_t JobVariant::*field;
  IsOpen is_open;
};
constexpr std::array<CountWord, 3> kCounts{{{"chunks", &JobVariant::chunks, has_chunks},
                                            {"slots", &JobVariant::slots, has_slots},
                                            {"replicas", &JobVariant::replicas, has_replicas}}};

constexpr std::array<Named<SecondCopy>, 2> kSecondCopies{
    {{"parked", SecondCopy::kParked}, {"single-owner", SecondCopy::kSingleOwner}}};
constexpr std::array<Named<JobMemoryReduction>, 3> kMemoryReductions{
    {{"stages", JobMemoryReduction::kStages},
     {"recompute", JobMemoryReduction::kRecompute},
     {"idle-offload", JobMemoryReduction::kIdleOffload}}};

IsOpen is_open_for(SecondCopy copy) {
  return copy == SecondCopy::kSingleOwner ? has_copies : can_park;
}

/// What may stand behind the name of a schedule: "slots=, stages, recompute and idle-offload".
std::string options_of(const ScheduleGenerator& generator) {
  std::vector<std::string> words;
  for (const CountWord& each : kCounts)
    if (each.is_open(generator)) words.push_back(message("{}=", each.name));
  for (const auto& each : kSecondCopies)
    if (is_open_for(each.value)(generator)) words.emplace_back(each.name);
  for (const auto& each : kMemoryReductions) words.emplace_back(each.name);
  return listed(words);
}

[[noreturn]] void refuse_option(const ScheduleGenerator& generator, std::string_view option,
                                IsOpen is_open) {
  std::vector<std::string> others;
  for (const ScheduleGenerator& each : planner_schedule::schedule_generators())
    if (is_open(each)) others.emplace_back(each.name);
  throw ConfigError("{} has no option {}, unlike {} (leave it out; its options are {})",
                    generator.name, option, listed(others), options_of(generator));
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t comma = text.find(','); comma != std::string_view::npos;
       comma = text.find(',')) {
    words.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  words.push_back(text);
  return words;
}

/// Reads what stands behind the name of a schedule.
class VariantReader {
 public:
  VariantReader(std::string_view text, const ScheduleGenerator& generator)
      : text_(text), generator_(generator) {}

  JobVariant read(std::string_view options) {
    for (const std::string_view word : words_of(options)) read_word(word);
    return variant_;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(std::string_view pattern, const Args&... args) const {
    throw ConfigError("schedule '{}': {}", shown_text(text_), message(pattern, args...));
  }

  [[noreturn]] void refuse_word(std::string_view word) const {
    refuse("it has no option '{}' (it has {}; commas stand between several)", shown_text(word),
           options_of(generator_));
  }

  void read_word(std::string_view word) {
    const std::size_t sign = word.find('=');
    if (sign != std::string_view::npos)
      return read_count(word.substr(0, sign), word.substr(sign + 1));
    // Words of one kind exclude each other; those of two kinds do not, as copies of weights and
    // stashes are held in ways of their own.
    for (const auto& each : kSecondCopies)
      if (each.name == word) return set_second_copy(each.value);
    for (const auto& each : kMemoryReductions)
      if (each.name == word) return set_memory_reduction(each.value);
    if (word == "windows") refuse("windows is called idle-offload now (write that)");
    refuse_word(word);
  }

  void read_count(std::string_view name, std::string_view digits) {
    const auto known = std::find_if(kCounts.begin(), kCounts.end(),
                                    [&](const CountWord& each) { return each.name == name; });
    if (known == kCounts.end()) refuse_word(message("{}=", name));
    std::uint32_t count = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, status] = std::from_chars(digits.data(), end, count);
    // 0 would leave the option open, which is said by leaving it out.
    if (status != std::errc() || stop != end || count == 0 || count > kMostOfAnything)
      refuse("{} is a number from 1 to {}, not '{}'", name, kMostOfAnything, shown_text(digits));
    std::uint32_t& field = variant_.*known->field;
    if (field != 0) refuse("{} is there twice (leave one out)", name);
    field = count;
  }

  void set_second_copy(SecondCopy value) {
    if (variant_.second_copy != SecondCopy::kStepped)
      refuse("parked and single-owner are two ways to hold weights (leave one out)");
    variant_.second_copy = value;
  }

  void set_memory_reduction(JobMemoryReduction value) {
    if (variant_.memory_reduction)
      refuse(
          "stages, recompute and idle-offload are ways to get into memory (name one, or none for "
          "the fastest)");
    variant_.memory_reduction = value;
  }

  std::string_view text_;
  const ScheduleGenerator& generator_;
  JobVariant variant_;
};

/// The options behind the colon.
JobVariant variant_in(std::string_view text, std::size_t colon,
                      const ScheduleGenerator& generator) {
  const JobVariant variant = VariantReader(text, generator).read(text.substr(colon + 1));
  check(generator, variant);
  for (const auto& each : kSecondCopies)
    if (variant.second_copy == each.value && !is_open_for(each.value)(generator))
      refuse_option(generator, each.name, is_open_for(each.value));
  if (variant.second_copy == SecondCopy::kParked && variant.chunks != 0 &&
      variant.chunks != kChunks)
    throw ConfigError(
        "schedule '{}': weights are parked where a rank has {} stages (write chunks={}, "
        "or leave parked out)",
        shown_text(text), kChunks, kChunks);
  return variant;
}

}  // namespace

std::string_view to_string(JobMemoryReduction memory_reduction) {
  return name_in(kMemoryReductions, memory_reduction);
}

std::string to_string(const JobVariant& variant) {
  // Always in one order, since the search tells by this text whether it has tried a candidate.
  std::string text;
  const auto add = [&](std::string_view word) { (text += text.empty() ? "" : ",") += word; };
  for (const CountWord& each : kCounts)
    if (variant.*each.field != 0) add(message("{}={}", each.name, variant.*each.field));
  if (variant.second_copy != SecondCopy::kStepped) add(name_in(kSecondCopies, variant.second_copy));
  if (variant.memory_reduction) add(to_string(*variant.memory_reduction));
  return text;
}

bool can_park(const ScheduleGenerator& generator) {
  const bool has_two =
      has_copies(generator) || generator.stages_per_rank != planner_schedule::StagesPerRank::kOne;
  return has_two && !generator.traits.has_pairs;
}

NamedSchedule schedule_in(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const ScheduleGenerator& generator =
      planner_schedule::schedule_generator_named(text.substr(0, colon));
  if (colon == text.size()) return {&generator, {}};
  std::string with_commas(text);
  std::replace(with_commas.begin() + static_cast<std::ptrdiff_t>(colon) + 1, with_commas.end(), ':',
               ',');
  if (with_commas == text) return {&generator, variant_in(text, colon, generator)};
  std::string fixed = message("write {}", with_commas);
  try {
    variant_in(with_commas, colon, generator);
  } catch (const ConfigError&) {  // There is more that is wrong.
    fixed = message("it has {}", options_of(generator));
  }
  throw ConfigError("schedule '{}': commas stand between options ({})", shown_text(text), fixed);
}

std::vector<std::string> schedule_beginnings() {
  std::vector<std::string> beginnings;
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators()) {
    beginnings.emplace_back(generator.name);
    for (const CountWord& each : kCounts)
      if (each.is_open(generator))
        beginnings.push_back(message("{}:{}=", generator.name, each.name));
  }
  return beginnings;
}

std::string schedule_text(std::string_view schedule, const JobVariant& variant) {
  return schedule_text(schedule, std::string_view(to_string(variant)));
}

std::string schedule_text(std::string_view schedule, std::string_view variant) {
  return variant.empty() ? std::string(schedule) : message("{}:{}", schedule, variant);
}

void check(const planner_schedule::ScheduleGenerator& generator, const JobVariant& variant) {
  for (const CountWord& each : kCounts)
    if (variant.*each.field != 0 && !each.is_open(generator))
      refuse_option(generator, message("{}=", each.name), each.is_open);
}

planner_schedule::ScheduleRequest schedule_request_for(
    const planner_schedule::ScheduleGenerator& generator, const JobVariant& variant,
    std::uint32_t ranks, std::uint32_t micro_batches) {
  check(generator, variant);
  planner_schedule::ScheduleRequest schedule_request;
  schedule_request.ranks = ranks;
  schedule_request.micro_batches = micro_batches;
  schedule_request.stages_per_rank = variant.chunks != 0 ? variant.chunks : kChunks;
  // Half of what the first rank of 1F1B holds.
  schedule_request.slots = variant.slots != 0 ? variant.slots : (ranks + 1) / 2;
  // 0 stays: the generators know best how many passes they make by themselves.
  schedule_request.replicas = variant.replicas;
  return schedule_request;
}

JobVariant as_made(const planner_schedule::ScheduleGenerator& generator, const JobVariant& variant,
                   const schedule::Schedule& compute) {
  // Nothing stays open, so that a stored plan makes the same schedule when defaults have changed.
  JobVariant made = variant;
  if (has_chunks(generator)) made.chunks = compute.stages / compute.rank_count();
  if (has_slots(generator) && made.slots == 0) made.slots = (compute.rank_count() + 1) / 2;
  if (has_replicas(generator)) made.replicas = compute.replica_count();
  return made;
}

}  // namespace spillway::job
