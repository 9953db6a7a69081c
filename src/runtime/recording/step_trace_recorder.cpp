#include "spillway/runtime/recording/step_trace_recorder.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/runtime/recording/op_text.h"
#include "spillway/runtime/recording/profile_recording.h"

namespace spillway::runtime {

using profile::OpIndex;
using profile::OpKind;
using swap::Direction;
using swap::TransferResult;

namespace {

// Trainers whose shapes never repeat would fill memory with texts: from then on names only.
constexpr std::size_t kMostKinds = 65536;
// Operators between two looks at what a device has done.
constexpr std::uint64_t kSettleEvery = 64;

}  // namespace

StepTraceRecorder::StepTraceRecorder(const Options& options, const Clock& clock)
    : options_(options), clock_(clock) {}

/// Events of one kind come in the order of their ends.
template <typename Event>
void StepTraceRecorder::push_locked(std::deque<Event>& events, Event event) {
  if (events.size() >= options_.most_events) {
    forgotten_until_ = std::max(forgotten_until_, events.front().end);
    events.pop_front();
    unsettled_ = std::min(unsettled_, spans_.size());
  }
  events.push_back(std::move(event));
}

template <typename Event>
void StepTraceRecorder::forget(std::deque<Event>& events, TimePoint before) {
  while (!events.empty() && events.front().end <= before) events.pop_front();
}

const OpKind* StepTraceRecorder::kind_of(std::uint64_t signature, const OpText& text) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = kinds_.find(signature);
    if (found != kinds_.end()) return &found->second;
  }
  OpKind kind = op_kind(text);
  const std::lock_guard lock(mutex_);
  if (kinds_.size() >= kMostKinds) {
    kind.arguments.clear();
    signature = std::hash<std::string>()(kind.name);
  }
  return &kinds_.try_emplace(signature, std::move(kind)).first->second;
}

/// An operator begins: the first one decides whose thread it is.
bool StepTraceRecorder::begins_locked(Thread thread) {
  if (thread_ == nullptr) thread_ = thread;
  if (thread_ != thread) ++other_ops_;
  return thread_ == thread;
}

// --- The thread that trains -------------------------------------------------------------------

void StepTraceRecorder::begin_op(Thread thread, std::uint64_t signature, const OpText& text) {
  const OpKind* const kind = kind_of(signature, text);
  const std::lock_guard lock(mutex_);
  if (!begins_locked(thread)) return;
  ++sequence_;
  running_ = {.is_open = true, .since = clock_.now(), .kind = kind};
}

void StepTraceRecorder::begin_replay(Thread thread, OpIndex place) {
  const std::lock_guard lock(mutex_);
  if (!begins_locked(thread)) return;
  const auto kept = kept_.find(place);
  ++sequence_;
  running_ = {.is_open = true,
              .what = What::kReplay,
              .since = clock_.now(),
              .kind = kept == kept_.end() ? nullptr : kept->second,
              .number = place};
}

void StepTraceRecorder::close_piece_locked(TimePoint end, const device::Event& to) {
  push_locked(spans_, Span{.begin = running_.since,
                           .end = end,
                           .from = running_.from,
                           .to = to,
                           .stream = running_.stream,
                           .kind = running_.kind,
                           .sequence = sequence_,
                           .number = running_.number,
                           .what = running_.what,
                           .goes_on = running_.goes_on});
  ++unsettled_;
}

void StepTraceRecorder::begun(Thread thread) {
  const auto from = moment();
  if (!from) return;
  const std::lock_guard lock(mutex_);
  if (thread_ != thread || !running_.is_open) return;
  running_.since = clock_.now();
  running_.from = *from;
  running_.stream = stream_locked();
}

void StepTraceRecorder::end_op(Thread thread, bool is_planned, Bytes resident) {
  const device::Event to = moment().value_or(device::Event());
  const std::lock_guard lock(mutex_);
  if (thread_ != thread || !std::exchange(running_.is_open, false)) return;
  const TimePoint now = clock_.now();
  close_piece_locked(now, to);
  if (sequence_ % kSettleEvery == 0) settle_moments_locked();
  count_locked(now, resident);
  if (!is_planned || running_.what == What::kReplay) return;
  // Only now it is known, as an operator may make its first storage after a wait.
  for (auto piece = spans_.rbegin(); piece != spans_.rend() && piece->sequence == sequence_;
       ++piece)
    piece->number = planned_ops_;
  ++planned_ops_;
}

void StepTraceRecorder::waited(Thread thread, StallLedger::Reason reason, Duration time,
                               const std::optional<device::Event>& from) {
  if (time < StallLedger::kNoticeable) return;
  const device::Event since_moment = from.value_or(device::Event());
  const device::Event to = moment().value_or(device::Event());
  const std::lock_guard lock(mutex_);
  if (thread_ != thread) return;
  const TimePoint now = clock_.now();
  const TimePoint since = now - time;
  const bool is_for_inputs = reason == StallLedger::Reason::kInputs;
  if (running_.is_open && !is_for_inputs) close_piece_locked(since, since_moment);
  push_locked(spans_, Span{.begin = since,
                           .end = now,
                           .from = since_moment,
                           .to = to,
                           .stream = stream_locked(),
                           .kind = running_.is_open ? running_.kind : nullptr,
                           .sequence = running_.is_open ? sequence_ : 0,
                           .number = running_.is_open ? running_.number : kNoNumber,
                           .what = is_for_inputs ? What::kWaitForInputs : What::kWaitForRoom});
  ++unsettled_;
  running_.since = now;
  running_.from = to;
  running_.goes_on |= !is_for_inputs;
}

void StepTraceRecorder::kept_op(Thread thread, OpIndex place) {
  const std::lock_guard lock(mutex_);
  if (thread_ == thread && running_.is_open) kept_[place] = running_.kind;
}

/// As the learner counts: what an operator that runs again makes is none of the step's.
StorageBirth StepTraceRecorder::birth_locked(Thread thread, StorageId storage) const {
  StorageBirth birth{.slot = storage.slot(), .number = births_ + 1};
  birth.before = storages_[storage.slot()].number;
  const bool is_inside = running_.is_open && thread_ == thread;
  if (thread_ != thread || (is_inside && running_.what == What::kReplay))
    birth.op = StorageBirth::kOfNoOp;
  else if (is_inside)
    birth.op = planned_ops_;
  else if (planned_ops_ > 0)
    birth.op = planned_ops_ - 1;
  return birth;
}

void StepTraceRecorder::allocated(Thread thread, StorageId storage, Bytes size) {
  const std::lock_guard lock(mutex_);
  if (storages_.size() <= storage.slot()) storages_.resize(storage.slot() + 1);
  if (!steps_.empty() && steps_.back().births.size() < options_.most_events)
    steps_.back().births.push_back(birth_locked(thread, storage));
  const bool is_made_here = running_.is_open && thread_ == thread;
  storages_[storage.slot()] = {++births_, size, is_made_here ? running_.kind : nullptr};
}

void StepTraceRecorder::note_values(const profile::RecordedStep& step,
                                    const std::function<StorageId(PieceId)>& storage_of) {
  auto copy = std::make_unique<profile::RecordedStep>(step);  // The I/O thread waits for the mutex.
  for (profile::ValueOrigin& origin : copy->origins)
    origin.range = storage_of(PieceId(origin.range)).slot();
  const std::lock_guard lock(mutex_);
  if (steps_.size() < 2) return;
  Step& ended = steps_[steps_.size() - 2];
  const bool is_the_one = step.is_whole && ended.values == nullptr &&
                          ended.planned_ops == step.tape.ops.size() &&
                          ended.births.size() < options_.most_events;
  if (is_the_one) ended.values = std::move(copy);
}

void StepTraceRecorder::begin_step(Thread thread, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  thread_ = thread;
  running_.is_open = false;
  settle_moments_locked();
  if (!steps_.empty()) steps_.back().planned_ops = planned_ops_;
  planned_ops_ = 0;
  Step& step = steps_.emplace_back();
  step.begin = clock_.now();
  step.number = number;
  if (steps_.size() <= options_.steps + 2) return;  // The one that runs, and see `shown_locked`.
  steps_.pop_front();
  const TimePoint begin = steps_.front().begin;
  forget(spans_, begin);
  unsettled_ = std::min(unsettled_, spans_.size());
  for (Lane& lane : lanes_) forget(lane.moves, begin);
  // What was counted last before the begin holds there.
  while (counts_.size() > 1 && counts_[1].end <= begin) counts_.pop_front();
}

void StepTraceRecorder::count_locked(TimePoint at, Bytes resident) {
  if (counts_.empty()) {
    push_locked(counts_, Count{at, resident});
    return;
  }
  // Threads come here in another order than they looked at the clock.
  if (counts_.back().resident != resident)
    push_locked(counts_, Count{std::max(counts_.back().end, at), resident});
}

// --- Transfers --------------------------------------------------------------------------------

void StepTraceRecorder::begin_transfer(const swap::Transfer& transfer, StorageId storage,
                                       bool is_awaited, TimePoint at) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lane_of(transfer.direction);
  if (lane.flights.empty()) lane.since = at;
  const bool is_known = storage.is_some() && storage.slot() < storages_.size();
  const Storage moved = is_known ? storages_[storage.slot()] : Storage{};
  lane.flights.push_back({transfer.tag, moved, is_awaited});
  if (!options_.has_far_tier || transfer.direction != Direction::kWrite) return;
  const std::size_t extent = transfer.extent.value();
  if (storage_of_extent_.size() <= extent) storage_of_extent_.resize(extent + 1);
  storage_of_extent_[extent] = moved;
}

void StepTraceRecorder::begin_disk_transfer(const swap::Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lane_of(transfer.direction, kFar);
  if (lane.flights.empty()) lane.since = clock_.now();
  const std::size_t extent = transfer.extent.value();
  const bool is_known = extent < storage_of_extent_.size();
  lane.flights.push_back(
      {transfer.tag, is_known ? storage_of_extent_[extent] : Storage{}, /*is_awaited=*/false});
}

void StepTraceRecorder::end_disk_transfer(const TransferResult& result) {
  const std::lock_guard lock(mutex_);
  const Direction direction = result.transfer.direction;
  end_in_lane_locked(lane_of(direction, kFar), direction, {&result, 1}, clock_.now());
}

void StepTraceRecorder::end_transfers(std::span<const TransferResult> results, TimePoint at,
                                      Bytes resident) {
  const std::lock_guard lock(mutex_);
  for (const Direction direction : {Direction::kWrite, Direction::kRead})
    end_in_lane_locked(lane_of(direction), direction, results, at);
  count_locked(at, resident);
}

/// What has ended together shares the time since the end before, by size.
void StepTraceRecorder::end_in_lane_locked(Lane& lane, Direction direction,
                                           std::span<const TransferResult> results, TimePoint at) {
  double total = 0.0;
  for (const TransferResult& result : results)
    if (result.transfer.direction == direction) total += static_cast<double>(result.transfer.size);
  const auto time = static_cast<double>((at - lane.since).count());
  const TimePoint since = lane.since;
  double done = 0.0;
  for (const TransferResult& result : results) {
    if (result.transfer.direction != direction) continue;
    done += static_cast<double>(result.transfer.size);
    const TimePoint end =
        done >= total ? at : since + Duration(static_cast<std::int64_t>(time * done / total));
    const Flight flight = take_flight(lane, result.transfer.tag);
    add_move_locked(lane, {.begin = std::exchange(lane.since, end),
                           .end = end,
                           .storage = flight.storage,
                           .bytes = Bytes(result.error == 0 ? result.transfer.size : 0),
                           .is_awaited = flight.is_awaited,
                           .error = result.error});
  }
}

StepTraceRecorder::Flight StepTraceRecorder::take_flight(Lane& lane, std::uint64_t tag) {
  const auto found = std::find_if(lane.flights.begin(), lane.flights.end(),
                                  [&](const Flight& flight) { return flight.tag == tag; });
  SPILLWAY_ASSERT(found != lane.flights.end());
  const Flight flight = *found;
  *found = lane.flights.back();
  lane.flights.pop_back();
  return flight;
}

void StepTraceRecorder::add_move_locked(Lane& lane, Move move) {
  if (!lane.moves.empty()) {
    Move& last = lane.moves.back();
    const bool goes_on = last.end == move.begin && last.storage.number == move.storage.number &&
                         last.is_awaited == move.is_awaited && last.error == 0 && move.error == 0;
    if (goes_on) {
      last.end = move.end;
      last.bytes += move.bytes;
      return;
    }
  }
  push_locked(lane.moves, std::move(move));
}

}  // namespace spillway::runtime
