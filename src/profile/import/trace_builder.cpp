#include "trace_builder.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/profile/op_sequence.h"

namespace spillway::profile {
namespace {

constexpr std::uint64_t kLargestPage = std::uint64_t{2} << 20;
constexpr std::uint64_t kSmallestPage = std::uint64_t{4} << 10;
constexpr double kMostLoss = 0.005;
// Sums of times stay far from overflowing.
constexpr Duration kLongestStep = std::chrono::hours(24 * 365);

std::uint64_t pages_of(std::uint64_t bytes, std::uint64_t page) {
  return (bytes + page - 1) / page;
}

/// The same for equal text in every build and on every machine.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = text.size();
  for (const char letter : text) hash = mix(hash, static_cast<unsigned char>(letter));
  return hash;
}

}  // namespace

TraceBuilder::Value TraceBuilder::add(std::uint64_t bytes, OpIndex birth, StorageClass holds) {
  if (bytes > kMostBytes - all_bytes_)
    throw PlanError("the values up to here have more than 10^18 bytes");
  all_bytes_ += bytes;
  Entry& entry = values_.emplace_back();
  entry.bytes = bytes;
  entry.birth = birth;
  entry.holds = holds;
  return static_cast<Value>(values_.size() - 1);
}

void TraceBuilder::begin_op(std::string name, std::string arguments, Duration time) {
  if (time > kLongestStep - time_) throw PlanError("the step takes more than a year up to here");
  time_ += time;
  Op& op = ops_.emplace_back();
  op.name = std::move(name);
  op.arguments = std::move(arguments);
  op.time = time;
}

void TraceBuilder::use(Value value, bool writes) {
  Entry& entry = values_[value];
  auto& uses = ops_.back().uses;
  if (entry.last_user == ops_.size()) {
    uses[entry.last_use].writes |= writes;
    return;
  }
  entry.last_user = ops_.size();
  entry.last_use = static_cast<std::uint32_t>(uses.size());
  uses.push_back({value, writes});
}

TraceBuilder::Value TraceBuilder::born(std::uint64_t bytes, StorageClass holds) {
  const Value value = add(bytes, static_cast<OpIndex>(ops_.size() - 1), holds);
  ops_.back().births.push_back(value);
  return value;
}

void TraceBuilder::dies(Value value) {
  Entry& entry = values_[value];
  if (ops_.empty())
    entry.was_there = false;
  else
    entry.death = static_cast<OpIndex>(ops_.size() - 1);
}

void TraceBuilder::end_with_last_uses() {
  for (OpIndex op = 0; op < ops_.size(); ++op) {
    const auto touch = [&](Value value) {
      if (values_[value].ends_with_last_use) values_[value].death = op;
    };
    for (const Value value : ops_[op].births) touch(value);
    for (const TapeUse& use : ops_[op].uses) touch(use.value);
  }
}

bool TraceBuilder::is_paged(Value value, std::uint64_t page) const {
  return values_[value].bytes >= page / 2 && values_[value].bytes > 0;
}

/// With `page` 0: of the bytes as they are, all as `small`.
TraceBuilder::Peaks TraceBuilder::peaks(std::uint64_t page) const {
  std::vector<std::vector<Value>> deaths(ops_.size());
  Peaks now;
  Peaks most;
  const auto change = [&](Value value, bool is_birth) {
    const bool paged = page > 0 && is_paged(value, page);
    const std::uint64_t bytes = values_[value].bytes;
    std::uint64_t& level = paged ? now.paged : now.small;
    const std::uint64_t size = paged ? pages_of(bytes, page) * page : bytes;
    level = is_birth ? level + size : level - size;
  };
  for (Value i = 0; i < values_.size(); ++i) {
    const Entry& entry = values_[i];
    if (!entry.was_there) continue;
    if (entry.birth == kCarriedIn) change(i, true);
    if (entry.death != kSurvives) deaths[entry.death].push_back(i);
  }
  for (OpIndex op = 0; op < ops_.size(); ++op) {
    for (const Value value : ops_[op].births) change(value, true);
    const std::uint64_t inside = ops_[op].inside_bytes;
    const std::uint64_t paged = page > 0 ? pages_of(inside, page) * page : 0;
    most.paged = std::max(most.paged, now.paged + paged);
    most.small = std::max(most.small, now.small + (page > 0 ? 0 : inside));
    for (const Value value : deaths[op]) change(value, false);
  }
  return most;
}

/// How much larger the peak, or all values together, become by rounding to pages.
double TraceBuilder::rounding_loss(std::uint64_t page) const {
  std::uint64_t rounded = 0;
  std::uint64_t exact = 0;
  for (Value i = 0; i < values_.size(); ++i) {
    if (!is_paged(i, page)) continue;
    exact += values_[i].bytes;
    rounded += pages_of(values_[i].bytes, page) * page;
  }
  const Peaks paged = peaks(page);
  const std::uint64_t peak = peaks(0).small;
  const auto excess = [](std::uint64_t more, std::uint64_t less) {
    return less == 0 ? 0.0 : static_cast<double>(more) / static_cast<double>(less) - 1.0;
  };
  return std::max(excess(rounded, exact), excess(paged.paged + paged.small, peak));
}

std::uint64_t TraceBuilder::choose_page() const {
  std::uint64_t page = kLargestPage;
  while (page > kSmallestPage && rounding_loss(page) >= kMostLoss) page /= 2;
  return page;
}

/// Operators stand on the tape when they use or make a value with pages.
bool TraceBuilder::is_kept(const Op& op, std::uint64_t page) const {
  return std::any_of(op.uses.begin(), op.uses.end(),
                     [&](const TapeUse& use) { return is_paged(use.value, page); }) ||
         std::any_of(op.births.begin(), op.births.end(),
                     [&](Value value) { return is_paged(value, page); });
}

/// The value's number in the profile, which it gets when it is first met.
ValueIndex TraceBuilder::number(Value value, StepProfile& profile) {
  if (numbers_[value] != kNoValue) return numbers_[value];
  const Entry& entry = values_[value];
  const auto number = static_cast<ValueIndex>(profile.tape.values.size());
  TapeValue& added = profile.tape.values.emplace_back();
  const std::uint64_t pages = pages_of(entry.bytes, profile.page_size.count());
  added.pages = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages, kNoValue));
  if (entry.birth != kCarriedIn) added.birth = op_numbers_[entry.birth];
  if (entry.death != kSurvives) added.death = op_numbers_[entry.death];
  if (entry.birth == kCarriedIn && entry.death == kSurvives) added.becomes = number;
  profile.bytes_of_value.emplace_back(entry.bytes);
  profile.class_of_value.push_back(entry.holds);
  return numbers_[value] = number;
}

void TraceBuilder::add_op(const Op& op, StepProfile& profile) {
  const std::uint64_t page = profile.page_size.count();
  TapeOp& added = profile.tape.ops.emplace_back();
  added.time = op.time;
  added.first_use = static_cast<std::uint32_t>(profile.tape.uses.size());
  added.is_replayable = true;
  added.signature = mix(hash_of(op.name), hash_of(op.arguments));
  for (const TapeUse& use : op.uses) {
    if (!is_paged(use.value, page)) continue;
    const ValueIndex value = number(use.value, profile);
    profile.tape.uses.push_back({value, use.writes});
    const std::uint64_t pages = profile.tape.values[value].pages;
    added.signature = mix(added.signature, 2 * pages + (use.writes ? 1 : 0));
    ++added.use_count;
  }
  std::uint64_t inside = pages_of(op.inside_bytes, page);
  for (const Value value : op.births) {
    if (is_paged(value, page)) inside += profile.tape.values[number(value, profile)].pages;
  }
  added.inside_peak_pages = static_cast<std::uint32_t>(std::min<std::uint64_t>(inside, kNoValue));
}

/// Through values without pages. Operators that are left out belong to the one before.
std::vector<HiddenDependence> TraceBuilder::hidden_dependences(std::uint64_t page) const {
  struct Trail {
    OpIndex writer = kCarriedIn;
    std::vector<OpIndex> readers;  ///< Since then.
  };
  std::vector<Trail> trails(values_.size());
  std::set<std::pair<OpIndex, OpIndex>> found;
  const auto add = [&](OpIndex before, OpIndex after) {
    if (before != kCarriedIn && before < after) found.emplace(before, after);
  };
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const OpIndex here = op_numbers_[i];
    for (const TapeUse& use : ops_[i].uses) {
      if (is_paged(use.value, page)) continue;
      Trail& trail = trails[use.value];
      add(trail.writer, here);
      if (!use.writes) {
        trail.readers.push_back(here);
        continue;
      }
      for (const OpIndex reader : trail.readers) add(reader, here);
      trail = {here, {}};
    }
    for (const Value value : ops_[i].births) trails[value].writer = here;
  }
  std::vector<HiddenDependence> dependences;
  for (const auto& [before, after] : found) dependences.push_back({before, after});
  return dependences;
}

StepProfile TraceBuilder::finish(ProfileOrigin origin) {
  end_with_last_uses();
  StepProfile profile;
  profile.origin = std::move(origin);
  profile.page_size = Bytes(choose_page());
  const std::uint64_t page = profile.page_size.count();
  profile.small_bytes = Bytes(peaks(page).small);
  numbers_.assign(values_.size(), kNoValue);
  // What holds no pages lends its time to the operator before, as in a recorded step.
  OpIndex kept = 0;
  op_numbers_.clear();
  for (const Op& op : ops_) {
    if (is_kept(op, page)) ++kept;
    op_numbers_.push_back(kept > 0 ? kept - 1 : 0);
  }
  profile.hidden_dependences = hidden_dependences(page);
  std::map<std::pair<std::string, std::string>, std::uint32_t> kinds;
  Duration before{0};
  for (Op& op : ops_) {
    if (!is_kept(op, page)) {
      (profile.tape.ops.empty() ? before : profile.tape.ops.back().time) += op.time;
      continue;
    }
    add_op(op, profile);
    profile.tape.ops.back().time += std::exchange(before, Duration{0});
    const auto [kind, is_new] = kinds.try_emplace({op.name, op.arguments}, kinds.size());
    if (is_new) profile.kinds.push_back({std::move(op.name), std::move(op.arguments)});
    profile.kind_of_op.push_back(kind->second);
  }
  for (Value i = 0; i < values_.size(); ++i) {
    if (values_[i].was_there && is_paged(i, page)) number(i, profile);
  }
  profile.spread_of_op.assign(profile.tape.ops.size(), Duration{0});
  check(profile);
  return profile;
}

}  // namespace spillway::profile
