#include "spillway/runtime/recording/value_stalls.h"

#include <algorithm>

#include "spillway/profile/value_classes.h"

namespace spillway::runtime {

using profile::RecordedStep;
using profile::StorageClass;
using profile::TapeValue;

namespace {

// Trainers whose shapes never repeat, or steps that never end, would fill memory.
constexpr std::size_t kMostValues = 4096;

std::vector<StorageClass> classes_of(const RecordedStep& step) {
  std::vector<StorageClass> noted;
  for (const auto& origin : step.origins) noted.push_back(origin.holds);
  return profile::classify_values(step.tape, noted);
}

}  // namespace

void ValueStalls::note(std::uint64_t serial, StallLedger::Reason reason, Duration waited) {
  if (noted_.size() >= kMostValues && !noted_.contains(serial)) return;
  Waits& waits = noted_[serial];
  ++waits.times;
  (reason == StallLedger::Reason::kInputs ? waits.for_inputs : waits.for_room) += waited;
}

void ValueStalls::settle(const RecordedStep& step, Bytes page_size, const OpNames& names) {
  if (noted_.empty()) return;
  const std::vector<StorageClass> classes = classes_of(step);
  for (profile::ValueIndex i = 0; i < step.origins.size(); ++i) {
    const auto found = noted_.find(step.origins[i].serial);
    if (found == noted_.end()) continue;
    const TapeValue& value = step.tape.values[i];
    const Bytes pages = page_size * value.pages;
    const Bytes bytes = step.origins[i].bytes == Bytes() ? pages : step.origins[i].bytes;
    std::string maker;
    if (value.birth != profile::kCarriedIn) {
      const auto kind = names.find(step.tape.ops[value.birth].signature);
      if (kind) maker = kind->name;
    }
    const std::string text = profile::value_text(classes[i], i, bytes, maker);
    const std::pair key(text, bytes.count());
    if (settled_.size() >= kMostValues && !settled_.contains(key)) continue;
    ValueStall& stall = settled_[key];
    stall.value = profile::value_name(classes[i], i);
    stall.holds = classes[i];
    stall.bytes = bytes;
    stall.made_by = maker;
    stall.times += found->second.times;
    stall.for_inputs += found->second.for_inputs;
    stall.for_room += found->second.for_room;
  }
  noted_.clear();
}

std::vector<ValueStall> ValueStalls::largest(std::size_t count) const {
  std::vector<ValueStall> all;
  for (const auto& [key, stall] : settled_) all.push_back(stall);
  std::stable_sort(all.begin(), all.end(),
                   [](const ValueStall& a, const ValueStall& b) { return a.total() > b.total(); });
  all.resize(std::min(count, all.size()));
  return all;
}

}  // namespace spillway::runtime
