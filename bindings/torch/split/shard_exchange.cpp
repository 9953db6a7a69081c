#include "shard_exchange.h"

#include <algorithm>
#include <list>
#include <optional>
#include <span>
#include <utility>

#include "device_sums.h"
#include "device_transfer.h"
#include "first_rank.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "staged_bytes.h"

namespace spillway::split {
namespace {

using Kind = Announcement::Kind;

constexpr std::string_view kUpdatedApart =
    "all shards have to update the same parameters, each of which needs a gradient in all of them "
    "or in none";
constexpr std::string_view kKeptApart =
    "a parameter has to be kept by the same rank of each shard, and data have chosen which one "
    "comes first, so take fewer --stages, or let the first forward of all shards use the "
    "parameters "
    "in one order";
constexpr std::string_view kCountedApart =
    "--shards knows a parameter by its number among the tensors that the program has made alike "
    "before forward, so make as many of them in all shards, or the model before the data";

std::string_view advice_on(const Announcement& mine, const Announcement& theirs) {
  if (mine.kind != theirs.kind) return kUpdatedApart;
  const bool is_copy = mine.kind == Kind::kCopy;
  if (is_copy && mine.parameters[0].of != theirs.parameters[0].of) return kCountedApart;
  return mine.parameters == theirs.parameters && mine.keeper != theirs.keeper ? kKeptApart
                                                                              : kUpdatedApart;
}

transport::SumElement sum_element(allreduce::Element element) {
  using allreduce::Element;
  using transport::SumElement;
  switch (element) {
    case Element::kFloat16: return SumElement::kFloat16;
    case Element::kBfloat16: return SumElement::kBfloat16;
    case Element::kFloat32:
    case Element::kComplex64: return SumElement::kFloat32;
    case Element::kFloat64:
    case Element::kComplex128: return SumElement::kFloat64;
    case Element::kInt32: return SumElement::kInt32;
    case Element::kInt64: return SumElement::kInt64;
  }
  throw Error("elements of kind {} are unknown", static_cast<int>(element));
}

void check(const device::Outcome& outcome, Rank shard) {
  if (!outcome.succeeded())
    throw transport::TransportError("a message to or from shard {} was lost: {}", shard,
                                    outcome.error);
}

}  // namespace

std::string to_string(const ExchangedParameter& parameter) {
  return message("parameter {}, number {} of {}", parameter.what, parameter.name.number,
                 parameter.name.of);
}

/// Begins where all shards that it is with have announced the same, and there is room.
class ShardExchange::Exchange : public Effort {
 public:
  Exchange(ShardExchange& shards, const Announced& mine, Bytes size)
      : shards_(shards), mine_(mine), size_(size), is_equal_(shards.shards()) {
    const Rank here = shards_.shard();
    if (here == kFirst) place_ = mine.number;
    // Who gets a copy needs nobody but the first shard, and none of the others' programs, which may
    // wait for another one themselves.
    if (mine.what.kind == Kind::kCopy && here != kFirst) {
      is_equal_.assign(is_equal_.size(), true);
      is_equal_[kFirst.value()] = false;
    }
    is_equal_[here.value()] = true;
  }
  ~Exchange() override {
    const std::lock_guard lock(shards_.mutex_);
    shards_.left_.erase(mine_.number);
  }

  void begin(std::vector<c10::Storage> storages) final {
    storages_ = std::move(storages);
    shards_.begun_.emplace(mine_.number, this);
  }

  bool advance() final {
    while (true) {
      if (!has_started_) {
        if (!may_start()) return false;
        shards_.under_way_.emplace(place_, size_);
        has_started_ = true;
        start();
      }
      if (!go_on()) return false;
      shards_.under_way_.erase(place_);
      has_started_ = false;
      if (!is_over()) continue;
      shards_.begun_.erase(mine_.number);
      return true;
    }
  }

  const Announcement& mine() const { return mine_.what; }
  std::uint64_t number() const { return mine_.number; }
  Bytes size() const { return size_; }
  std::uint64_t place() const { return place_; }

  /// What another shard asks for in its place; or that one will not ask for it.
  struct Difference {
    Rank shard;
    std::optional<Announcement> theirs;
  };
  /// Looks at what others have announced until now. Nothing: all that have come to it are equal.
  std::optional<Difference> compare_locked() {
    for (std::uint32_t i = 0; i < is_equal_.size(); ++i) {
      if (is_equal_[i]) continue;
      const Rank other(i);
      const auto heard = shards_.announcements_.heard_of(other, mine_.mean, mine_.what);
      if (heard && heard->what == mine_.what) {
        shards_.announcements_.match(other, mine_.mean, mine_.what);
        is_equal_[i] = true;
        if (other == kFirst) place_ = heard->place;
      } else if (heard) {
        return Difference{other, heard->what};
      } else if (const auto& mean = shards_.announcements_.latest_mean_of(other);
                 mine_.what.kind == Kind::kCopy &&
                 shards_.announcements_.means_of(other) > mine_.mean) {
        return Difference{other, mean};
      } else if (shards_.announcements_.end_of(other)) {
        return Difference{other, std::nullopt};
      }
    }
    return std::nullopt;
  }
  /// As far as it has been compared.
  virtual bool is_ready() const {
    return std::find(is_equal_.begin(), is_equal_.end(), false) == is_equal_.end();
  }

  Rank waits_for() const {
    if (has_started_) return awaited();
    const auto first = std::find(is_equal_.begin(), is_equal_.end(), false);
    return first == is_equal_.end() ? Rank()
                                    : Rank(static_cast<std::uint32_t>(first - is_equal_.begin()));
  }

 protected:
  virtual void start() = 0;
  virtual bool go_on() = 0;
  virtual bool is_over() const { return true; }  ///< Or it starts again, for other shards.
  virtual Rank awaited() const = 0;

  bool is_equal_in(Rank shard) const { return is_equal_[shard.value()]; }

  transport::Transport& group() const { return shards_.group_.transport; }
  void fill(StagedBytes& bytes, const StorageRange& range) {
    bytes.fill_from(shards_.runtime_, shards_.devices_, storage_of(range), range.begin);
    shards_.between_devices_.add_staged(storage_of(range).device(), range.size);
  }
  void put(const StagedBytes& bytes, const StorageRange& range) {
    bytes.copy_to(shards_.runtime_, shards_.devices_, storage_of(range), range.begin);
    shards_.between_devices_.add_staged(storage_of(range).device(), range.size);
  }
  /// Where it lies on a device.
  device::DeviceSpan span_of(const StorageRange& range) {
    return shards_.between_devices_.span_of(storage_of(range)).part(Bytes(range.begin), range.size);
  }

  c10::Storage& storage_of(const StorageRange& range) {
    c10::Storage& storage = storages_.at(range.storage);
    SPILLWAY_ASSERT(range.begin + range.size.count() <= storage.nbytes());
    return storage;
  }

  ShardExchange& shards_;

 private:
  bool may_start() {
    std::optional<Difference> difference;
    {
      const std::lock_guard lock(shards_.mutex_);
      shards_.announcements_.hear();
      difference = compare_locked();
    }
    if (difference && difference->theirs) shards_.end_apart();
    if (difference) shards_.end_alone(difference->shard);
    return is_ready() && shards_.may_begin(*this);
  }

  const Announced mine_;
  const Bytes size_;
  std::uint64_t place_ = 0;  ///< Among those of the first shard, once that has come to it.
  std::vector<bool> is_equal_;
  std::vector<c10::Storage> storages_;
  bool has_started_ = false;
};

/// In memory of its own, as all messages: pages that wait for another rank would keep room from the
/// operators that this one waits for.
class ShardExchange::Mean final : public Exchange {
 public:
  Mean(ShardExchange& shards, const Announced& mine, Bytes size, allreduce::Element element,
       std::vector<StorageRange> ranges)
      : Exchange(shards, mine, size), element_(element), ranges_(std::move(ranges)) {}

 private:
  void start() override {
    std::vector<std::span<std::byte>> parts;
    for (const StorageRange& range : ranges_) {
      StagedBytes& bytes = parts_.emplace_back(range.size);
      fill(bytes, range);
      parts.emplace_back(static_cast<std::byte*>(bytes.span().data), range.size.count());
    }
    sum_ = allreduce::begin_sum(group(), place(), element_, std::move(parts), shards_.group_.sums);
  }

  bool go_on() override {
    if (!sum_->advance()) return false;
    for (std::size_t i = 0; i < ranges_.size(); ++i) put(parts_[i], ranges_[i]);
    parts_.clear();
    return true;
  }

  Rank awaited() const override { return sum_->waits_for(); }

  const allreduce::Element element_;
  const std::vector<StorageRange> ranges_;
  std::vector<StagedBytes> parts_;
  std::unique_ptr<allreduce::Sum> sum_;
};

/// Where the gradients lie, on devices that have messages, or by small storages beside those that
/// have pages. The default stream comes behind it.
class ShardExchange::DeviceMean final : public Exchange {
 public:
  DeviceMean(ShardExchange& shards, const Announced& mine, Bytes size, allreduce::Element element,
             std::vector<StorageRange> ranges, c10::Device device)
      : Exchange(shards, mine, size),
        element_(element),
        ranges_(std::move(ranges)),
        memory_(device, shards.devices_) {}

 private:
  /// Added up by NCCL at once.
  struct Piece {
    StorageRange range;
    c10::Storage copy;  ///< None: where it lies.
    device::DeviceSpan bytes;
    device::Event sum;
  };

  DeviceMessages& between() const { return shards_.between_devices_; }
  bool is_paged(const StorageRange& range) {
    return between().is_paged(Bytes(storage_of(range).nbytes()));
  }

  void start() override {
    if (shards_.group_.sums.order == allreduce::Order::kFast) return begin_pieces();
    std::vector<device::DeviceSpan> parts;
    for (const StorageRange& range : ranges_) {
      parts.push_back(span_of(range));
      if (is_paged(range)) memory_.add_paged(storage_of(range));
    }
    allreduce::SumOptions options = shards_.group_.sums;
    options.piece = std::min(options.piece, between().piece());
    sum_ = allreduce::begin_sum(between().between_shards(), place(), element_, parts, memory_,
                                options);
  }

  void begin_pieces() {
    while (range_ < ranges_.size() && pieces_.size() < DeviceMessages::kPieces) {
      const StorageRange& whole = ranges_[range_];
      Piece& piece = pieces_.emplace_back();
      piece.range = {whole.storage, whole.begin + begun_,
                     std::min(whole.size - Bytes(begun_), between().piece())};
      piece.bytes = span_of(piece.range);
      if (is_paged(whole)) {
        piece.copy = shards_.devices_.copy_of(storage_of(whole), piece.range.begin,
                                              piece.range.size.count());
        piece.bytes = between().span_of(piece.copy);
      }
      piece.sum =
          between().add_up((place() << 32U) + number_++, piece.bytes, sum_element(element_));
      begun_ += piece.range.size.count();
      if (begun_ == whole.size.count()) {
        begun_ = 0;
        ++range_;
      }
    }
  }

  bool go_on() override {
    if (sum_) return sum_->advance();
    std::erase_if(pieces_, [this](const Piece& piece) {
      if (!piece.sum.is_done()) return false;
      check(piece.sum.wait(), shards_.shard());
      const std::byte* const bytes = piece.bytes.data;
      memory_.add_up(element_, {&bytes, 1}, piece.bytes.data, piece.bytes.size,
                     shards_.group_.sums.factor);
      if (piece.copy)
        shards_.devices_.copy_part(storage_of(piece.range), piece.range.begin, piece.copy, 0,
                                   piece.range.size.count());
      return true;
    });
    begin_pieces();
    return pieces_.empty();
  }

  /// Whom NCCL waits for, nobody knows.
  Rank awaited() const override { return sum_ ? sum_->waits_for() : Rank(); }

  const allreduce::Element element_;
  const std::vector<StorageRange> ranges_;
  DeviceSums memory_;
  std::unique_ptr<allreduce::Sum> sum_;  ///< In the order of shards,
  std::vector<Piece> pieces_;            ///< or each piece in that of NCCL,
  std::size_t range_ = 0;                ///< which come from here on,
  std::uint64_t begun_ = 0;              ///< and so far into that range.
  std::uint32_t number_ = 0;             ///< Of the next one.
};

/// The first shard gives its bytes to each that has come to the parameter, however late others do.
class ShardExchange::CopyOfFirst final : public Exchange {
 public:
  CopyOfFirst(ShardExchange& shards, const Announced& mine, Bytes room, Bytes size,
              bool is_between_devices)
      : Exchange(shards, mine, room),
        range_{.size = size},
        is_between_devices_(is_between_devices),
        is_served_(shards.shards()) {
    is_served_[kFirst.value()] = true;
  }

  bool is_ready() const override {
    if (group().rank() != kFirst) return Exchange::is_ready();
    return waiting().is_some();
  }

 private:
  struct Message {
    explicit Message(Rank other) : shard(other) {}
    std::optional<device::Outcome> end() {
      if (between != nullptr) return between->advance();
      return event.is_done() ? std::optional(event.wait()) : std::nullopt;
    }

    Rank shard;
    device::Event event;
    std::unique_ptr<DeviceMessages::Transfer> between{};  ///< In place of it.
  };

  void start() override {
    const transport::Tag tag{transport::Stream::kValues, place()};
    if (!is_between_devices_) bytes_ = StagedBytes(range_.size);
    DeviceMessages& between = shards_.between_devices_;
    const bool receives = group().rank() != kFirst;
    if (receives) {
      Message& message = messages_.emplace_back(kFirst);
      if (is_between_devices_)
        message.between = between.receive_from_shard(kFirst, tag, storage_of(range_));
      else
        message.event = group().receive(kFirst, tag, bytes_.span());
      return;
    }
    if (!is_between_devices_) fill(bytes_, range_);
    for (Rank shard = waiting(); shard.is_some(); shard = waiting()) {
      Message& message = messages_.emplace_back(shard);
      if (is_between_devices_)
        message.between = between.send_to_shard(shard, tag, storage_of(range_));
      else
        message.event = group().send(shard, tag, bytes_.span());
      is_served_[shard.value()] = true;
    }
  }

  bool go_on() override {
    messages_.remove_if([](Message& message) {
      const std::optional<device::Outcome> end = message.end();
      if (end) check(*end, message.shard);
      return end.has_value();
    });
    if (!messages_.empty()) return false;
    if (group().rank() != kFirst && !is_between_devices_) put(bytes_, range_);
    bytes_ = {};
    return true;
  }

  bool is_over() const override {
    return group().rank() != kFirst ||
           std::find(is_served_.begin(), is_served_.end(), false) == is_served_.end();
  }

  Rank awaited() const override { return messages_.empty() ? Rank() : messages_.front().shard; }

  /// A shard that has come to it and has nothing; none: there is none.
  Rank waiting() const {
    for (std::uint32_t shard = 0; shard < is_served_.size(); ++shard)
      if (!is_served_[shard] && is_equal_in(Rank(shard))) return Rank(shard);
    return {};
  }

  const StorageRange range_;
  const bool is_between_devices_;
  StagedBytes bytes_;
  std::list<Message> messages_;
  std::vector<bool> is_served_;  ///< In the first shard.
};

ShardExchange::ShardExchange(runtime::Runtime& runtime, ExchangeGroup group,
                             const DeviceBytes& devices, DeviceMessages& between_devices)
    : runtime_(runtime),
      devices_(devices),
      between_devices_(between_devices),
      group_(std::move(group)),
      announcements_(group_.transport, kFirstAnnouncement) {}

ShardExchange::~ShardExchange() = default;

ShardExchange::Announced ShardExchange::announce(
    Announcement what, const std::vector<ExchangedParameter>& parameters) {
  SPILLWAY_ASSERT(parameters.size() <= kMostParameters);
  group_.job.control().begin_call(what.kind == Kind::kMean ? "the mean of gradients"
                                                           : "a first parameter");
  group_.job.control().end_call();
  what.count = parameters.size();
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    what.parameters[i] = parameters[i].name;
    known_.insert_or_assign(parameters[i].name, parameters[i].what);
  }
  const std::uint64_t mean = what.kind == Kind::kMean ? means_++ : means_;
  return {what, announcements_.tell(what), mean};
}

std::unique_ptr<Effort> ShardExchange::entered(std::unique_ptr<Exchange> exchange) {
  const std::lock_guard lock(mutex_);
  left_.emplace(exchange->number(), exchange.get());
  return exchange;
}

std::unique_ptr<Effort> ShardExchange::mean_of(std::uint64_t step,
                                               const std::vector<ExchangedParameter>& parameters,
                                               allreduce::Element element,
                                               std::vector<StorageRange> ranges, c10::Device device,
                                               Rank keeper, bool is_here) {
  Bytes size;
  for (const StorageRange& range : ranges) size += range.size;
  const Announced mine = announce({.kind = Kind::kMean,
                                   .step = step,
                                   .element = static_cast<std::uint64_t>(element),
                                   .bytes = size.count(),
                                   .keeper = keeper.value()},
                                  parameters);
  if (!is_here) {
    const std::lock_guard lock(mutex_);
    announcements_.skip_mean(mine.mean);
    return nullptr;
  }
  if (between_devices_.carries(device, size))
    return entered(std::make_unique<DeviceMean>(*this, mine, std::min(2 * size, room_of_sum()),
                                                element, std::move(ranges), device));
  return entered(std::make_unique<Mean>(*this, mine, 2 * size, element, std::move(ranges)));
}

std::unique_ptr<Effort> ShardExchange::copy_of_first(std::uint64_t step,
                                                     const ExchangedParameter& parameter,
                                                     Bytes size, c10::Device device, Rank keeper,
                                                     bool is_here) {
  const Announced mine =
      announce({.kind = Kind::kCopy, .step = step, .bytes = size.count(), .keeper = keeper.value()},
               {parameter});
  if (!is_here) return nullptr;
  const bool is_between_devices = between_devices_.carries(device, size);
  // Where it lies or comes, it has memory. The first shard sends to all others at once.
  const std::uint64_t copies = shard() == kFirst ? shards() - 1 : 1;
  const Bytes room = is_between_devices ? copies * between_devices_.room_for(size) : size;
  return entered(std::make_unique<CopyOfFirst>(*this, mine, room, size, is_between_devices));
}

/// As for other messages: room for so many bytes, and always for the oldest of all that every shard
/// has announced and that has not ended. Shards have those in different orders; that of the first
/// shard counts. Gradients are there in descending order, so the oldest of those under way would be
/// each new one.
bool ShardExchange::may_begin(const Exchange& exchange) const {
  Bytes most = 256_MiB;
  if (between_devices_.is_on()) most = std::min(most, 2 * room_of_sum());
  Bytes begun = exchange.size();
  for (const auto& [other, bytes] : under_way_) begun += bytes;
  if (begun <= most || under_way_.empty()) return true;
  const std::lock_guard lock(mutex_);
  return std::none_of(left_.begin(), left_.end(), [&](const auto& one) {
    Exchange& other = *one.second;
    return !other.compare_locked() && other.is_ready() && other.place() < exchange.place();
  });
}

/// What a sum on a GPU takes beside its parts, at most.
Bytes ShardExchange::room_of_sum() const { return 4 * shards() * between_devices_.piece(); }

bool ShardExchange::note_waits() {
  Rank now;
  for (const auto& [number, exchange] : begun_) {
    now = exchange->waits_for();
    if (now.is_some()) break;
  }
  return waits_for_.exchange(now) != now;
}

std::string ShardExchange::name_locked(const ParameterName& name) const {
  const auto like = known_.lower_bound({name.kind, 0, 0});
  if (like == known_.end() || like->first.kind != name.kind)
    return message("a parameter that shard {} has not used", shard());
  return to_string(ExchangedParameter{name, like->second, 0});
}

std::string ShardExchange::words_locked(const Announcement& announcement, std::size_t at,
                                        bool is_whole) const {
  if (at >= announcement.count)
    return message("averages no further gradient in step {}", announcement.step);
  const bool is_mean = announcement.kind == Kind::kMean;
  const std::string more = is_whole ? message(", {}, kept by its rank {},",
                                              Bytes(announcement.bytes), announcement.keeper)
                                    : "";
  return message("{} {}{} in step {}", is_mean ? "averages the gradient of" : "first uses",
                 name_locked(announcement.parameters[at]), more, announcement.step);
}

/// Tells of the first that differs: later ones may be ready earlier.
void ShardExchange::end_apart() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, exchange] : left_) {
      const auto difference = exchange->compare_locked();
      if (!difference || !difference->theirs) continue;
      const Announcement& mine = exchange->mine();
      const Announcement& theirs = *difference->theirs;
      const std::size_t least = std::min(mine.count, theirs.count);
      std::size_t at = 0;
      while (at < least && mine.parameters[at] == theirs.parameters[at]) ++at;
      const bool is_same = mine.kind == theirs.kind && at == least && mine.count == theirs.count;
      if (at == least && (is_same || mine.kind != theirs.kind)) at = 0;
      reason =
          message("shard {} {} where shard {} {}: {}", shard(), words_locked(mine, at, is_same),
                  difference->shard, words_locked(theirs, at, is_same), advice_on(mine, theirs));
      break;
    }
  }
  group_.job.abort(reason);
}

void ShardExchange::end_alone(Rank other) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t steps = announcements_.end_of(other)->step;
    const auto first = std::find_if(left_.begin(), left_.end(), [&](const auto& one) {
      const auto difference = one.second->compare_locked();
      return difference && difference->shard == other;
    });
    SPILLWAY_ASSERT(first != left_.end());
    reason = message("shard {} has ended after {} step{}, and shard {} goes on and {}: give each "
                     "shard as many batches, or look for its error above",
                     other, steps, steps == 1 ? "" : "s", shard(),
                     words_locked(first->second->mine(), 0, false));
  }
  group_.job.abort(reason);
}

void ShardExchange::tell_end(std::uint64_t steps) {
  if (std::exchange(has_ended_, true)) return;
  const std::lock_guard lock(mutex_);
  announcements_.tell({.kind = Kind::kEnd, .step = steps});
}

void ShardExchange::wait_for_ends() {
  const auto what = [] { return std::string("the end of a shard"); };
  for (std::uint32_t i = 0; i < shards(); ++i) {
    const Rank other(i);
    while (other != shard()) {
      device::Event next;
      {
        const std::lock_guard lock(mutex_);
        announcements_.hear();
        if (announcements_.end_of(other)) break;
        next = announcements_.next_of(other);
      }
      group_.job.wait(next, other, what);
    }
  }
  for (const auto& [other, event] : announcements_.unsent()) group_.job.wait(event, other, what);
}

std::vector<runtime::RankFigures> ShardExchange::gather(std::vector<runtime::RankFigures> mine) {
  const auto what = [] { return std::string("the figures of a shard at the end"); };
  if (shard() != kFirst) {
    group_.job.wait(group_.transport.send(kFirst, kFigures, device::host_span_of_all(mine)), kFirst,
                    what);
    return {};
  }
  std::vector<std::vector<runtime::RankFigures>> theirs(shards() - 1, mine);
  std::vector<device::Event> received;
  for (std::uint32_t i = 0; i < theirs.size(); ++i)
    received.push_back(
        group_.transport.receive(Rank(i + 1), kFigures, device::host_span_of_all(theirs[i])));
  for (std::uint32_t i = 0; i < theirs.size(); ++i) {
    group_.job.wait(received[i], Rank(i + 1), what);
    mine.insert(mine.end(), theirs[i].begin(), theirs[i].end());
  }
  return mine;
}

void ShardExchange::gather(TracesOfRanks& traces, const Clock& clock) {
  const auto name_of = [](Rank shard) { return message("shard {}", shard); };
  gather_traces(group_.transport, group_.job, traces, name_of, clock);
}

}  // namespace spillway::split
