#include "shard_exchange.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "first_rank.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "staged_bytes.h"

namespace spillway::split {
namespace {

enum Kind : std::uint64_t { kMean, kCopy };

void check(const device::Event& event, Rank shard) {
  const device::Outcome outcome = event.wait();
  if (!outcome.succeeded())
    throw transport::TransportError("a message to or from shard {} was lost: {}", shard,
                                    outcome.error);
}

}  // namespace

/// Begins where all shards have announced the same, and there is room.
class ShardExchange::Exchange : public Effort {
 public:
  Exchange(ShardExchange& shards, const Announcement& mine, Bytes size)
      : shards_(shards), number_(shards.next_++), size_(size), mine_(mine) {
    const transport::Tag tag{transport::Stream::kControl, kFirstAnnouncement + number_};
    for (const auto& other : shards_.others_) {
      Peer& peer = *peers_.emplace_back(std::make_unique<Peer>());
      peer.received = group().receive(other->shard, tag, device::host_span_of(peer.announcement));
      peer.sent = group().send(other->shard, tag, device::host_span_of(mine_));
    }
    const std::lock_guard lock(shards_.mutex_);
    shards_.left_.emplace(number_, this);
  }
  ~Exchange() override {
    const std::lock_guard lock(shards_.mutex_);
    shards_.left_.erase(number_);
  }

  void begin(std::vector<c10::Storage> storages) final {
    storages_ = std::move(storages);
    shards_.begun_.emplace(number_, this);
  }

  bool advance() final {
    if (!is_agreed_ && !agree()) return false;
    if (!has_started_) {
      if (!shards_.may_begin(number_, size_)) return false;
      shards_.under_way_.emplace(number_, size_);
      has_started_ = true;
      start();
    }
    if (!has_ended_ && !go_on()) return false;
    has_ended_ = true;
    for (const auto& peer : peers_)
      if (!peer->sent.is_done()) return false;
    shards_.under_way_.erase(number_);
    shards_.begun_.erase(number_);
    return true;
  }

  const Announcement& mine() const { return mine_; }
  /// Of another shard, where it is another one.
  std::optional<std::pair<Rank, Announcement>> difference() const {
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (peers_[i]->received.is_done() && !(peers_[i]->announcement == mine_))
        return std::pair(shards_.others_[i]->shard, peers_[i]->announcement);
    return std::nullopt;
  }

  Rank waits_for() const {
    if (has_started_) return awaited();
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (!peers_[i]->is_equal) return shards_.others_[i]->shard;
    return {};
  }

 protected:
  virtual void start() = 0;
  virtual bool go_on() = 0;
  virtual Rank awaited() const = 0;

  transport::Transport& group() const { return shards_.group_.transport; }
  runtime::Runtime& runtime() const { return shards_.runtime_; }
  std::uint64_t number() const { return number_; }
  std::byte* bytes_of(const StorageRange& range) {
    c10::Storage& storage = storages_.at(range.storage);
    SPILLWAY_ASSERT(range.begin + range.size.count() <= storage.nbytes());
    return static_cast<std::byte*>(storage.mutable_data()) + range.begin;
  }

  ShardExchange& shards_;

 private:
  struct Peer {
    Announcement announcement;
    device::Event received, sent;
    bool is_equal = false;
  };

  bool agree() {
    is_agreed_ = true;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = *peers_[i];
      const Other& other = *shards_.others_[i];
      if (peer.is_equal) continue;
      if (peer.received.is_done()) {
        check(peer.received, other.shard);
        if (!(peer.announcement == mine_)) shards_.end_apart();
        peer.is_equal = true;
      } else if (other.ended.is_done()) {
        check(other.ended, other.shard);
        if (other.end.exchanges <= number_) shards_.end_alone(other);
        is_agreed_ = false;
      } else {
        is_agreed_ = false;
      }
    }
    return is_agreed_;
  }

  const std::uint64_t number_;
  const Bytes size_;
  Announcement mine_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<c10::Storage> storages_;
  bool is_agreed_ = false, has_started_ = false, has_ended_ = false;
};

/// In memory of its own, as all messages: pages that wait for another rank would keep room from the
/// operators that this one waits for.
class ShardExchange::Mean final : public Exchange {
 public:
  Mean(ShardExchange& shards, const Announcement& mine, Bytes size, allreduce::Element element,
       std::vector<StorageRange> ranges)
      : Exchange(shards, mine, size), element_(element), ranges_(std::move(ranges)) {}

 private:
  void start() override {
    std::vector<std::span<std::byte>> parts;
    for (const StorageRange& range : ranges_) {
      StagedBytes& bytes = parts_.emplace_back(range.size);
      bytes.fill_from(runtime(), bytes_of(range));
      parts.emplace_back(static_cast<std::byte*>(bytes.span().data), range.size.count());
    }
    sum_ = allreduce::begin_sum(group(), number(), element_, std::move(parts), shards_.group_.sums);
  }

  bool go_on() override {
    if (!sum_->advance()) return false;
    for (std::size_t i = 0; i < ranges_.size(); ++i)
      parts_[i].copy_to(runtime(), bytes_of(ranges_[i]));
    parts_.clear();
    return true;
  }

  Rank awaited() const override { return sum_->waits_for(); }

  const allreduce::Element element_;
  const std::vector<StorageRange> ranges_;
  std::vector<StagedBytes> parts_;
  std::unique_ptr<allreduce::Sum> sum_;
};

class ShardExchange::CopyOfFirst final : public Exchange {
 public:
  CopyOfFirst(ShardExchange& shards, const Announcement& mine, Bytes size)
      : Exchange(shards, mine, size), range_{.size = size} {}

 private:
  void start() override {
    const transport::Tag tag{transport::Stream::kValues, number()};
    bytes_ = StagedBytes(range_.size);
    if (group().rank() != kFirst) {
      messages_.push_back(group().receive(kFirst, tag, bytes_.span()));
      return;
    }
    bytes_.fill_from(runtime(), bytes_of(range_));
    for (std::uint32_t shard = 1; shard < group().ranks(); ++shard)
      messages_.push_back(group().send(Rank(shard), tag, bytes_.span()));
  }

  bool go_on() override {
    for (const device::Event& message : messages_) {
      if (!message.is_done()) return false;
      check(message, awaited());
    }
    if (group().rank() != kFirst) bytes_.copy_to(runtime(), bytes_of(range_));
    bytes_ = {};
    return true;
  }

  Rank awaited() const override {
    if (group().rank() != kFirst) return kFirst;
    const auto first = std::find_if(messages_.begin(), messages_.end(),
                                    [](const device::Event& event) { return !event.is_done(); });
    return first == messages_.end()
               ? Rank()
               : Rank(1 + static_cast<std::uint32_t>(first - messages_.begin()));
  }

  const StorageRange range_;
  StagedBytes bytes_;
  std::vector<device::Event> messages_;
};

ShardExchange::ShardExchange(runtime::Runtime& runtime, ExchangeGroup group)
    : runtime_(runtime), group_(std::move(group)) {
  for (std::uint32_t i = 0; i < shards(); ++i) {
    if (Rank(i) == shard()) continue;
    Other& other = *others_.emplace_back(std::make_unique<Other>());
    other.shard = Rank(i);
    other.ended =
        group_.transport.receive(other.shard, kEndOfShard, device::host_span_of(other.end));
  }
}

ShardExchange::~ShardExchange() = default;

ShardExchange::Announcement ShardExchange::announce(
    std::uint64_t kind, std::uint64_t step, std::uint64_t element, Bytes size,
    const std::vector<ExchangedParameter>& parameters) {
  SPILLWAY_ASSERT(parameters.size() <= kMostParameters);
  Announcement mine{.kind = kind,
                    .step = step,
                    .element = element,
                    .bytes = size.count(),
                    .count = parameters.size()};
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    mine.parameters[i] = parameters[i].number;
    known_.insert_or_assign(parameters[i].number, parameters[i].what);
  }
  group_.job.control().begin_call(kind == kMean ? "the mean of gradients" : "a first parameter");
  group_.job.control().end_call();
  return mine;
}

std::unique_ptr<Effort> ShardExchange::mean_of(std::uint64_t step,
                                               const std::vector<ExchangedParameter>& parameters,
                                               allreduce::Element element,
                                               std::vector<StorageRange> ranges) {
  Bytes size;
  for (const StorageRange& range : ranges) size += range.size;
  const Announcement mine =
      announce(kMean, step, static_cast<std::uint64_t>(element), size, parameters);
  // A sum takes some pieces for each rank beside its parts.
  return std::make_unique<Mean>(*this, mine, Bytes(2 * size.count()), element, std::move(ranges));
}

std::unique_ptr<Effort> ShardExchange::copy_of_first(std::uint64_t step,
                                                     const ExchangedParameter& parameter,
                                                     Bytes size) {
  return std::make_unique<CopyOfFirst>(*this, announce(kCopy, step, 0, size, {parameter}), size);
}

/// As for other messages: room for so many bytes, and always for the oldest that has not ended,
/// which waits for no later one. Gradients are there in descending order, so the oldest of those
/// under way would be each new one.
bool ShardExchange::may_begin(std::uint64_t number, Bytes size) const {
  constexpr Bytes kMost = 256_MiB;
  Bytes begun = size;
  for (const auto& [other, bytes] : under_way_) begun += bytes;
  if (begun <= kMost || under_way_.empty()) return true;
  const std::lock_guard lock(mutex_);
  return number == left_.begin()->first;
}

bool ShardExchange::note_waits() {
  Rank now;
  for (const auto& [number, exchange] : begun_) {
    now = exchange->waits_for();
    if (now.is_some()) break;
  }
  return waits_for_.exchange(now) != now;
}

std::string ShardExchange::words_locked(const Announcement& announcement, std::size_t at,
                                        bool with_size) const {
  if (at >= announcement.count)
    return message("averages no further gradient in step {}", announcement.step);
  const std::uint64_t number = announcement.parameters[at];
  const auto found = known_.find(number);
  return message("{} parameter {}{}{} in step {}",
                 announcement.kind == kMean ? "averages the gradient of" : "first uses", number,
                 found == known_.end() ? "" : message(" ({})", found->second),
                 with_size ? message(", {}", Bytes(announcement.bytes)) : "", announcement.step);
}

/// Tells of the first that differs: later ones may be ready earlier.
void ShardExchange::end_apart() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, exchange] : left_) {
      const auto difference = exchange->difference();
      if (!difference) continue;
      const Announcement& mine = exchange->mine();
      const auto& [other, theirs] = *difference;
      const std::size_t least = std::min(mine.count, theirs.count);
      std::size_t at = 0;
      while (at < least && mine.parameters[at] == theirs.parameters[at]) ++at;
      const bool is_same = at == least && mine.count == theirs.count;
      if (is_same) at = 0;
      reason = message(
          "shard {} {} where shard {} {}: all shards have to update the same parameters, each of "
          "which needs a gradient in all of them or in none",
          shard(), words_locked(mine, at, is_same), other, words_locked(theirs, at, is_same));
      break;
    }
  }
  group_.job.abort(reason);
}

void ShardExchange::end_alone(const Other& other) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    const auto first = left_.lower_bound(other.end.exchanges);
    SPILLWAY_ASSERT(first != left_.end());
    reason = message("shard {} has ended after {} step{}, and shard {} goes on and {}: give each "
                     "shard as many batches, or look for its error above",
                     other.shard, other.end.steps, other.end.steps == 1 ? "" : "s", shard(),
                     words_locked(first->second->mine(), 0, false));
  }
  group_.job.abort(reason);
}

void ShardExchange::end(std::uint64_t steps) {
  if (std::exchange(has_ended_, true)) return;
  mine_ = {next_, steps};
  for (const auto& other : others_)
    other->told = group_.transport.send(other->shard, kEndOfShard, device::host_span_of(mine_));
  for (const auto& other : others_) {
    const auto what = [] { return std::string("the end of a shard"); };
    group_.job.wait(other->ended, other->shard, what);
    group_.job.wait(other->told, other->shard, what);
  }
}

std::vector<runtime::RankFigures> ShardExchange::gather(std::vector<runtime::RankFigures> mine) {
  const auto what = [] { return std::string("the figures of a shard at the end"); };
  if (shard() != kFirst) {
    group_.job.wait(group_.transport.send(kFirst, kFigures, device::host_span_of_all(mine)), kFirst,
                    what);
    return {};
  }
  std::vector<std::vector<runtime::RankFigures>> theirs(others_.size(), mine);
  std::vector<device::Event> received;
  for (std::size_t i = 0; i < theirs.size(); ++i)
    received.push_back(
        group_.transport.receive(others_[i]->shard, kFigures, device::host_span_of_all(theirs[i])));
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    group_.job.wait(received[i], others_[i]->shard, what);
    mine.insert(mine.end(), theirs[i].begin(), theirs[i].end());
  }
  return mine;
}

}  // namespace spillway::split
