#include "spillway/profile/tape_recorder.h"

#include <algorithm>

#include "spillway/base/assert.h"
#include "spillway/profile/op_sequence.h"

namespace spillway::profile {

namespace {

// Of all shared pages: which of them it is their age tells.
constexpr std::uint64_t kSharedBirth = 0x5A6D'B117'5A6D'B117;

}  // namespace

void TapeRecorder::begin_op(std::uint64_t signature, TimePoint now, bool is_replayable, Bytes moved,
                            const AutogradFacts& autograd) {
  SPILLWAY_ASSERT(!in_op_);
  close_op(now, moved);
  in_op_ = true;
  ++op_count_;
  op_begin_ = now;
  waited_ = Duration{0};
  moved_before_op_ = moved;
  moved_in_waits_ = Bytes();
  births_of_op_ = 0;
  inside_now_ = 0;
  born_in_op_.clear();
  recent_[op_count_ % 4] = signature;
  if (step_.tape.ops.size() >= options_.max_ops) step_.is_whole = false;
  if (!records()) return;
  uses_before_op_ = static_cast<std::uint32_t>(step_.tape.uses.size());
  TapeOp& op = step_.tape.ops.emplace_back();
  op.signature = signature;
  op.first_use = uses_before_op_;
  op.is_replayable = is_replayable;
  step_.autograd_of_op.push_back(autograd);
}

void TapeRecorder::use(std::uint32_t range, std::uint32_t pages, bool writes) {
  const bool is_known = range < ranges_.size() && ranges_[range].is_live;
  if (!is_known) enter(range, pages).birth_key = mix(pages, range);
  if (!records() || !add_use(range, writes)) return;
  TapeOp& op = step_.tape.ops.back();
  ++op.use_count;
  Range& entry = ranges_[range];
  if (!entry.is_filled) op.is_replayable = false;
  entry.is_filled |= writes;
}

/// False: it is one of the operator's already.
bool TapeRecorder::add_use(std::uint32_t range, bool writes) {
  const ValueIndex value = value_of(range, kCarriedIn);
  Range& entry = ranges_[range];
  auto& uses = step_.tape.uses;
  const bool is_repeated = entry.last_use > uses_before_op_ && entry.last_use <= uses.size() &&
                           uses[entry.last_use - 1].value == value;
  if (is_repeated) {
    uses[entry.last_use - 1].writes |= writes;
    return false;
  }
  uses.push_back({value, writes});
  entry.last_use = static_cast<std::uint32_t>(uses.size());
  return true;
}

void TapeRecorder::use_shared(std::uint32_t range, bool writes) {
  const bool is_known = range < ranges_.size() && ranges_[range].is_live;
  if (!is_known) enter_shared(range).born_at = 0;
  if (!in_op_ || !records() || ranges_[range].born_at == op_count_) return;
  if (add_use(range, writes)) ++step_.tape.ops.back().shared_count;
}

void TapeRecorder::allocated(std::uint32_t range, std::uint32_t pages, Bytes bytes,
                             bool is_filled) {
  if (range < ranges_.size() && ranges_[range].is_live) freed(range);
  Range& entry = enter(range, pages);
  entry.is_filled = is_filled && in_op_;
  std::uint64_t key = mix(pages, births_of_op_++);
  for (std::uint64_t i = 0; i < 4; ++i) key = mix(key, recent_[(op_count_ + 4 - i) % 4]);
  entry.birth_key = key;
  entry.bytes = bytes;
  note_birth(range);
  // Running the operator again would not bring this one back.
  if (!in_op_ && records() && !step_.tape.ops.empty()) step_.tape.ops.back().is_replayable = false;
}

void TapeRecorder::allocated_shared(std::uint32_t range) {
  if (range < ranges_.size() && ranges_[range].is_live) freed(range);
  enter_shared(range);
  note_birth(range);
}

void TapeRecorder::note_birth(std::uint32_t range) {
  if (step_.tape.ops.empty() || !records()) return;
  inside_now_ += ranges_[range].pages;
  TapeOp& op = step_.tape.ops.back();
  op.inside_peak_pages = std::max(op.inside_peak_pages, inside_now_);
  if (in_op_) {
    born_in_op_.push_back(range);
  } else {
    value_of(range, static_cast<OpIndex>(step_.tape.ops.size() - 1));
  }
}

void TapeRecorder::freed(std::uint32_t range) {
  if (range >= ranges_.size() || !ranges_[range].is_live) return;
  Range& entry = ranges_[range];
  const bool counts = records() && !step_.tape.ops.empty();
  const bool is_of_this_op = entry.born_at == op_count_ && op_count_ > 0;
  if (is_of_this_op) {
    const auto found = std::find(born_in_op_.rbegin(), born_in_op_.rend(), range);
    if (found != born_in_op_.rend()) born_in_op_.erase(std::next(found).base());
  }
  if (counts) {
    if (is_of_this_op) inside_now_ -= std::min(inside_now_, entry.pages);
    // What lives inside one operator only is part of its peak and no value.
    if (!(is_of_this_op && in_op_)) {
      const ValueIndex value = value_of(range, kCarriedIn);
      step_.tape.values[value].death = static_cast<OpIndex>(step_.tape.ops.size() - 1);
    }
  }
  leave(range);
}

void TapeRecorder::note_class(std::uint32_t range, StorageClass holds) {
  if (!is_live(range)) return;
  Range& entry = ranges_[range];
  entry.holds = holds;
  if (entry.step == step_count_) step_.origins[entry.value].holds = holds;
}

void TapeRecorder::end_op() {
  SPILLWAY_ASSERT(in_op_);
  in_op_ = false;
  if (!records()) return;
  const auto op = static_cast<OpIndex>(step_.tape.ops.size() - 1);
  for (const std::uint32_t range : born_in_op_) value_of(range, op);
}

void TapeRecorder::finish_step(TimePoint now, RecordedStep& finished, Bytes moved) {
  SPILLWAY_ASSERT(!in_op_);
  close_op(now, moved);
  if (records()) {
    add_untouched();
    put_shared_last();
    mark_what_cannot_replay();
  }
  std::swap(step_, finished);
  step_.clear();
  born_in_op_.clear();
  uses_before_op_ = 0;
  ++step_count_;
}

TapeRecorder::Range& TapeRecorder::enter(std::uint32_t range, std::uint32_t pages) {
  if (range >= ranges_.size()) ranges_.resize(std::size_t{range} + 1 + range / 2);
  Range& entry = ranges_[range];
  entry = Range{};
  entry.serial = next_serial_++;
  entry.born_at = op_count_;
  entry.pages = std::max<std::uint32_t>(pages, 1);
  entry.is_live = true;
  entry.live_position = static_cast<std::uint32_t>(live_.size());
  live_.push_back(range);
  return entry;
}

TapeRecorder::Range& TapeRecorder::enter_shared(std::uint32_t range) {
  Range& entry = enter(range, 1);
  entry.is_shared = true;
  entry.birth_key = kSharedBirth;
  return entry;
}

void TapeRecorder::leave(std::uint32_t range) {
  Range& entry = ranges_[range];
  entry.is_live = false;
  const std::uint32_t last = live_.back();
  live_[entry.live_position] = last;
  ranges_[last].live_position = entry.live_position;
  live_.pop_back();
}

/// The number of the range's value in this step; a new one if the step has not met it.
ValueIndex TapeRecorder::value_of(std::uint32_t range, OpIndex birth) {
  Range& entry = ranges_[range];
  if (entry.step == step_count_) return entry.value;
  ValueOrigin origin{range, entry.serial, entry.birth_key, kNoValue, entry.bytes, entry.holds};
  if (birth == kCarriedIn && entry.step + 1 == step_count_) origin.before = entry.value;
  entry.step = step_count_;
  entry.value = static_cast<ValueIndex>(step_.tape.values.size());
  entry.last_use = 0;
  step_.tape.values.push_back({entry.pages, birth, kSurvives, kNoValue, entry.is_shared});
  step_.origins.push_back(origin);
  return entry.value;
}

void TapeRecorder::close_op(TimePoint now, Bytes moved) {
  if (!records() || step_.tape.ops.empty()) return;
  step_.tape.ops.back().time = std::max(Duration{0}, now - op_begin_ - waited_);
  const Bytes before = moved_before_op_ + moved_in_waits_;
  step_.moved_of_op.push_back(moved > before ? moved - before : Bytes());
}

void TapeRecorder::add_untouched() {
  untouched_.clear();
  for (const std::uint32_t range : live_) {
    if (ranges_[range].step != step_count_) untouched_.push_back(range);
  }
  std::sort(untouched_.begin(), untouched_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return ranges_[a].serial < ranges_[b].serial;
  });
  for (const std::uint32_t range : untouched_) value_of(range, kCarriedIn);
}

/// Numbers shared pages behind all other values, so that these have the same numbers wherever small
/// storages lie.
void TapeRecorder::put_shared_last() {
  auto& values = step_.tape.values;
  std::vector<ValueIndex> moved(values.size());
  ValueIndex next = 0;
  for (const bool is_shared : {false, true})
    for (ValueIndex i = 0; i < values.size(); ++i)
      if (values[i].is_shared == is_shared) moved[i] = next++;
  if (std::is_sorted(moved.begin(), moved.end())) return;
  const std::vector<TapeValue> met = values;
  const std::vector<ValueOrigin> origins = step_.origins;
  for (ValueIndex i = 0; i < moved.size(); ++i) {
    values[moved[i]] = met[i];
    step_.origins[moved[i]] = origins[i];
  }
  for (TapeUse& use : step_.tape.uses) use.value = moved[use.value];
  for (Range& range : ranges_)
    if (range.step == step_count_ && range.value < moved.size()) range.value = moved[range.value];
}

/// What the whole step shows of its operators. A value that comes from before the step and that
/// none of them writes (data, a batch that is filled anew) may be written by the trainer itself
/// unseen, and who changes several values, or one while making others, cannot run again for one of
/// them.
void TapeRecorder::mark_what_cannot_replay() {
  StepTape& tape = step_.tape;
  std::vector<bool> is_written(tape.values.size(), false);
  std::vector<bool> gives_birth(tape.ops.size(), false);
  for (const TapeUse& use : tape.uses) is_written[use.value] = is_written[use.value] || use.writes;
  for (const TapeValue& value : tape.values)
    if (value.birth != kCarriedIn && !value.is_shared) gives_birth[value.birth] = true;
  for (OpIndex i = 0; i < tape.ops.size(); ++i) {
    TapeOp& op = tape.ops[i];
    std::uint32_t writes = 0;
    for (std::uint32_t k = op.first_use; k < op.first_use + op.use_count; ++k) {
      const TapeUse& use = tape.uses[k];
      writes += use.writes ? 1 : 0;
      if (tape.values[use.value].birth == kCarriedIn && !is_written[use.value])
        op.is_replayable = false;
    }
    if (writes > 1 || (writes == 1 && gives_birth[i])) op.is_replayable = false;
  }
}

}  // namespace spillway::profile
