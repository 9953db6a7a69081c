#include <algorithm>
#include <array>
#include <utility>

#include "executor.h"
#include "spillway/base/assert.h"
#include "spillway/split/device_turn.h"

namespace spillway::split {
namespace {

using pipeline::Move;
using pipeline::TaskId;

transport::Tag tag_of(const Move& move) { return {transport::Stream::kValues, move.number}; }

}  // namespace

LatestWork::Piece Executor::piece_of(const UnderWay& message) const {
  using Kind = LatestWork::Piece::Kind;
  const bool sends = message.move.from == transport_.rank();
  return {.kind = sends ? Kind::kSends : Kind::kReceives,
          .action = message.action,
          .storage = message.move.storage,
          .size = message.size,
          .peer = sends ? message.move.to : message.move.from};
}

bool Executor::end_transfers() {
  bool has_ended = false;
  for (auto one = under_way_.begin(); one != under_way_.end();) {
    const std::optional<device::Outcome> end = end_of(*one);
    if (!end) {
      has_ended |= hand_on(*one);
      ++one;
      continue;
    }
    if (!end->succeeded())
      throw transport::TransportError("a message between ranks {} and {} was lost: {}",
                                      one->move.from.value(), one->move.to.value(), end->error);
    UnderWay message = std::move(*one);
    one = under_way_.erase(one);
    take(message);
    has_ended = true;
  }
  if (has_ended) begin_postponed();
  return has_ended;
}

/// None: it has not come to it.
std::optional<device::Outcome> Executor::end_of(UnderWay& message) {
  if (message.between != nullptr) return message.between->advance();
  if (!message.event.is_done()) return std::nullopt;
  return message.event.wait();
}

/// What has come is the rank's own from now on.
void Executor::take(UnderWay& message) {
  const bool has_come = message.move.to == transport_.rank();
  {
    const std::lock_guard lock(mutex_);
    messages_ = under_way_.size();
    occupation_.message_ended(rank_in_job(shards_ == nullptr ? Rank(0) : shards_->shard(),
                                          has_come ? message.move.from : message.move.to));
  }
  if (!has_come) {
    notify_program();
    return;
  }
  const TimePoint begin = log_ == nullptr ? TimePoint() : clock_.now();
  if (message.between != nullptr) {
    hand_on(message);
    note(message, begin);
    return;
  }
  const DeviceTurn turn(!message.device.is_cpu());
  c10::Storage storage = made_storage(message.size.count(), message.device);
  message.bytes.copy_to(runtime_, devices_, storage);
  between_devices_.add_staged(message.device, message.size);
  message.bytes = {};
  hold(message.move.storage, std::move(storage));
  note(message, begin);
  finish(message.task, /*is_computed=*/false);
}

/// What comes between devices as it is may be used as soon as it has its place there, which the
/// default stream waits for. Whether that is new.
bool Executor::hand_on(UnderWay& message) {
  if (message.between == nullptr || message.is_handed_on || message.move.to != transport_.rank() ||
      !message.between->may_be_used())
    return false;
  message.is_handed_on = true;
  hold(message.move.storage, message.between->storage());
  finish(message.task, /*is_computed=*/false);
  return true;
}

/// Each direction has room for so many bytes, and for the pieces of two messages, and at any time
/// for its first message, in the order of the lists or of the program: that one waits for nobody's
/// later ones, so all come to an end.
bool Executor::may_begin(const Postponed& message, const Work& work) const {
  constexpr Bytes kMost = 128_MiB;
  const bool is_in_pieces = work.room > Bytes();
  const bool sends = work.move->from == transport_.rank();
  Bytes begun = is_in_pieces ? work.room : work.size;
  bool is_first = true;
  for (const UnderWay& one : under_way_) {
    if ((one.move.from == transport_.rank()) != sends) continue;
    is_first &= message < Postponed(one.order, one.task);
    if ((one.room > Bytes()) == is_in_pieces) begun += is_in_pieces ? one.room : one.size;
  }
  const Bytes most = is_in_pieces ? 2 * DeviceMessages::kPieces * between_devices_.piece() : kMost;
  return is_first || begun <= most;
}

void Executor::begin_postponed() {
  std::array<bool, 2> is_blocked{};
  for (auto one = postponed_.begin(); one != postponed_.end();) {
    const Work& work = one->second;
    const bool sends = work.move->from == transport_.rank();
    bool& blocked = is_blocked[sends ? 1 : 0];
    blocked = blocked || !may_begin(one->first, work);
    if (blocked) {
      ++one;
      continue;
    }
    begin_move(one->first.second, work);
    one = postponed_.erase(one);
  }
}

void Executor::begin_move(TaskId task, const Work& work) {
  const Move& move = *work.move;
  UnderWay& begun = under_way_.emplace_back();
  begun.task = task;
  begun.move = move;
  begun.size = work.size;
  begun.device = work.device;
  begun.action = work.action;
  begun.order = work.order;
  begun.room = work.room;
  if (move.from == transport_.rank()) {
    send(begun, work.is_between_devices);
    return;
  }
  if (work.is_between_devices) {
    begun.between = between_devices_.receive(move.from, tag_of(move), work.device, work.size);
  } else {
    begun.bytes = StagedBytes(work.size);
    begun.event = transport_.receive(move.from, tag_of(move), begun.bytes.span());
  }
  const std::lock_guard lock(mutex_);
  messages_ = under_way_.size();
  latest_work_.expect(task, piece_of(begun));
  if (!waits_for_.is_some()) waits_for_ = move.from;
}

void Executor::send(UnderWay& begun, bool is_between_devices) {
  const TimePoint begin = log_ == nullptr ? TimePoint() : clock_.now();
  const c10::Storage bytes = held(begun.move.storage);
  SPILLWAY_ASSERT(bytes.unsafeGetStorageImpl() != nullptr);
  if (is_between_devices) {
    SPILLWAY_ASSERT(Bytes(bytes.nbytes()) == begun.size);
    begun.between = between_devices_.send(begun.move.to, tag_of(begun.move), bytes);
  } else {
    begun.bytes = StagedBytes(begun.size);
    begun.bytes.fill_from(runtime_, devices_, bytes);
    between_devices_.add_staged(begun.device, begun.size);
    begun.event = transport_.send(begun.move.to, tag_of(begun.move), begun.bytes.span());
  }
  note(begun, begin);
  {
    const std::lock_guard lock(mutex_);
    messages_ = under_way_.size();
    latest_work_.add(piece_of(begun));
  }
  finish(begun.task, /*is_computed=*/false);
}

void Executor::note(const UnderWay& message, TimePoint begin) {
  if (log_ == nullptr) return;
  const bool has_come = message.move.to == transport_.rank();
  const Rank shard = shards_ == nullptr ? Rank(0) : shards_->shard();
  const std::uint32_t shards = shards_ == nullptr ? 1 : shards_->shards();
  log_->add({.begin = begin,
             .end = clock_.now(),
             .number = message.move.number * shards + shard.value(),
             .size = message.size,
             .peer = rank_in_job(shard, has_come ? message.move.from : message.move.to),
             .has_come = has_come,
             .action = message.action});
}

}  // namespace spillway::split
