#include "spillway/allreduce/sum.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "adding.h"
#include "parts.h"
#include "programs.h"
#include "spillway/base/error.h"

namespace spillway::allreduce {
namespace {

/// Rounds that are under way at once: while one adds, messages of the other are on their way.
constexpr std::uint64_t kRoundsAtOnce = 2;

/// Part `index` of `count` even ones, of whole elements.
struct Share {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

Share share(std::uint64_t all, std::uint64_t count, std::uint64_t index) {
  const std::uint64_t each = all / count;
  const std::uint64_t larger = all % count;
  return {each * index + std::min(index, larger), each + (index < larger ? 1 : 0)};
}

/// What does not change while a sum is under way.
struct Setting {
  transport::Transport& group;
  std::uint64_t number;
  Element element;
  double factor;
  Parts parts;
  SumMemory& memory;
  Program program;
  std::uint64_t rounds;
};

/// That of the host, where all is done at once.
class HostMemory final : public SumMemory {
 public:
  device::DeviceId device() const override { return {}; }
  std::shared_ptr<std::byte> allocate(Bytes size) override {
    // Not filled with zeros before it is used.
    return {new std::byte[size.count()], std::default_delete<std::byte[]>()};
  }
  device::Event copy(std::byte* to, const std::byte* from, Bytes size) override {
    std::memcpy(to, from, size.count());
    return {};
  }
  device::Event add_up(Element element, std::span<const std::byte* const> sources,
                       std::byte* target, Bytes size, double factor) override {
    allreduce::add_up(element, sources, target, size, factor);
    return {};
  }
};

HostMemory& host_memory() {
  static HostMemory memory;
  return memory;
}

/// Of one round, each for a slice, once it is needed: what is staged, and copies of slices that
/// messages cannot use in their parts.
using Room = std::vector<std::shared_ptr<std::byte>>;

Bytes largest_slice(const Setting& setting) {
  const Bytes element = size_of(setting.element);
  const Share first = share(setting.parts.size() / element, setting.rounds, 0);
  return element * share(first.size, setting.program.slices, 0).size;
}

/// A stretch of the array on its way through the program.
class Round {
 public:
  Round(const Setting& setting, std::uint64_t index, Room room)
      : setting_(setting), index_(index), room_(std::move(room)) {
    const Bytes element = size_of(setting.element);
    const Share stretch = share(setting.parts.size() / element, setting.rounds, index);
    const Program& program = setting.program;
    for (std::uint32_t i = 0; i < program.slices; ++i) {
      const Share one = share(stretch.size, program.slices, i);
      Slice& slice = slices_.emplace_back();
      slice.begin = element * (stretch.begin + one.begin);
      slice.size = element * one.size;
      if (setting.memory.carries_parts()) slice.place = setting.parts.find(slice.begin, slice.size);
      if (slice.place != nullptr || slice.size == Bytes()) continue;
      slice.is_gathered = true;
      slice.place = room_of(program.staged + i);
      setting.parts.for_each(
          slice.begin, slice.size, [&](std::byte* part, std::size_t offset, std::size_t size) {
            note_copy(setting.memory.copy(slice.place + offset, part, Bytes(size)));
          });
    }
    for (std::uint32_t i = 0; i < program.steps.size(); ++i) {
      waits_.push_back(program.steps[i].waits);
      if (waits_.back() == 0) ready_.push_back(i);
    }
    left_ = program.steps.size();
  }

  /// False: nothing has happened.
  bool advance() {
    bool has_moved = take_copies();
    if (!copies_.empty()) return has_moved;
    for (std::size_t i = 0; i < under_way_.size();) {
      if (!under_way_[i].second.is_done()) {
        ++i;
        continue;
      }
      const auto [step, event] = under_way_[i];
      under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
      take(step, event);
      has_moved = true;
    }
    // The latest first: what a message has allowed goes on at once, before what could wait.
    while (!ready_.empty()) {
      const std::uint32_t step = ready_.back();
      ready_.pop_back();
      begin(step);
      has_moved = true;
    }
    if (left_ == 0 && !std::exchange(is_put_back_, true)) put_back();
    return has_moved;
  }

  /// The result is in its parts.
  bool has_ended() const { return is_put_back_ && copies_.empty(); }

  /// Of a message that it needs, before one that is to be taken.
  Rank waits_for() const {
    Rank found;
    for (const auto& [index, event] : under_way_) {
      const Step& step = setting_.program.steps[index];
      if (step.kind == Step::Kind::kReceive) return step.peer;
      if (step.kind == Step::Kind::kSend) found = step.peer;
    }
    return found;
  }

  /// At the end, for a later round.
  Room take_room() { return std::move(room_); }

 private:
  struct Slice {
    Bytes begin;
    Bytes size;
    std::byte* place = nullptr;
    bool is_gathered = false;  ///< It is copied to room, as where it lies in several parts.
  };

  /// The result, into its parts.
  void put_back() {
    for (const Slice& slice : slices_)
      if (slice.is_gathered)
        setting_.parts.for_each(
            slice.begin, slice.size, [&](std::byte* part, std::size_t offset, std::size_t size) {
              note_copy(setting_.memory.copy(part, slice.place + offset, Bytes(size)));
            });
  }

  void note_copy(device::Event copied) {
    if (!copied.is_done() || !copied.wait().succeeded()) copies_.push_back(std::move(copied));
  }

  bool take_copies() {
    return std::erase_if(copies_, [this](const device::Event& copied) {
             if (!copied.is_done()) return false;
             check(copied);
             return true;
           }) > 0;
  }

  std::byte* room_of(std::uint64_t slice) {
    std::shared_ptr<std::byte>& room = room_[slice];
    if (room == nullptr) room = setting_.memory.allocate(largest_slice(setting_));
    return room.get();
  }

  std::byte* at(const Step& step, Step::Place place) {
    return place ? room_of(*place) : slices_[step.slice].place;
  }

  void begin(std::uint32_t index) {
    const Step& step = setting_.program.steps[index];
    const Bytes size = slices_[step.slice].size;
    if (size == Bytes()) return end(index);
    device::Event event = begin_work(step, size);
    if (event.is_done()) return take(index, event);
    under_way_.emplace_back(index, std::move(event));
  }

  device::Event begin_work(const Step& step, Bytes size) {
    if (step.kind == Step::Kind::kAdd || step.kind == Step::Kind::kScale)
      return calculate(step, size);
    const device::DeviceSpan bytes{setting_.memory.device(), at(step, step.place), size};
    return step.kind == Step::Kind::kSend ? setting_.group.send(step.peer, tag_of(step), bytes)
                                          : setting_.group.receive(step.peer, tag_of(step), bytes);
  }

  device::Event calculate(const Step& step, Bytes size) {
    std::vector<const std::byte*> sources{at(step, {})};
    if (step.kind == Step::Kind::kAdd) {
      sources.clear();
      for (const Step::Place operand : step.operands) sources.push_back(at(step, operand));
    }
    const double factor = step.kind == Step::Kind::kScale ? setting_.factor : 1;
    return setting_.memory.add_up(setting_.element, sources, at(step, {}), size, factor);
  }

  void check(const device::Event& event) const {
    const device::Outcome outcome = event.wait();
    if (!outcome.succeeded())
      setting_.group.abort(message("sum {} has failed: {}", setting_.number, outcome.error));
  }

  void take(std::uint32_t index, const device::Event& event) {
    check(event);
    end(index);
  }

  void end(std::uint32_t index) {
    --left_;
    for (const std::uint32_t follower : setting_.program.steps[index].followers)
      if (--waits_[follower] == 0) ready_.push_back(follower);
  }

  transport::Tag tag_of(const Step& step) const {
    const std::uint64_t each = 2ull * setting_.group.ranks();
    return {transport::Stream::kSums, (setting_.number << 32) + index_ * each + step.message};
  }

  const Setting& setting_;
  const std::uint64_t index_;
  Room room_;
  std::vector<Slice> slices_;
  std::vector<std::uint32_t> waits_;
  std::vector<std::uint32_t> ready_;
  std::vector<std::pair<std::uint32_t, device::Event>> under_way_;
  std::vector<device::Event> copies_;  ///< Between room and parts, before all steps or after them.
  std::size_t left_ = 0;
  bool is_put_back_ = false;
};

class RoundsSum final : public Sum {
 public:
  explicit RoundsSum(Setting setting) : setting_(std::move(setting)) {}

  bool advance() override {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      while (begun_ < setting_.rounds && under_way_.size() < kRoundsAtOnce) {
        if (rooms_.empty()) rooms_.emplace_back(setting_.program.staged + setting_.program.slices);
        under_way_.push_back(std::make_unique<Round>(setting_, begun_++, std::move(rooms_.back())));
        rooms_.pop_back();
      }
      for (const auto& round : under_way_) has_moved |= round->advance();
      has_moved |= std::erase_if(under_way_, [this](const auto& round) {
                     if (!round->has_ended()) return false;
                     rooms_.push_back(round->take_room());
                     return true;
                   }) > 0;
    }
    return under_way_.empty();
  }

  Rank waits_for() const override {
    return under_way_.empty() ? Rank() : under_way_.front()->waits_for();
  }

 private:
  const Setting setting_;
  std::uint64_t begun_ = 0;
  std::vector<std::unique_ptr<Round>> under_way_;
  std::vector<Room> rooms_;  ///< That no round uses.
};

Program program_for(const transport::Transport& group, Bytes size, const SumOptions& options) {
  if (options.order == Order::kOrdered) return ordered_program(group.rank(), group.ranks());
  const bool is_small = size <= options.small;
  const std::size_t hosts = std::set(options.hosts.begin(), options.hosts.end()).size();
  if (hosts > 1 && hosts < group.ranks())
    return two_level_program(group.rank(), options.hosts, is_small);
  return is_small ? tree_program(group.rank(), group.ranks())
                  : ring_program(group.rank(), group.ranks());
}

void check(const transport::Transport& group, std::uint64_t number, Element element,
           const std::vector<std::span<std::byte>>& parts, const SumOptions& options) {
  for (const std::span<std::byte> part : parts)
    if (part.size() % size_of(element).count() != 0)
      throw Error("sum {} has a part of {} bytes, which are not whole elements of {}", number,
                  part.size(), size_of(element));
  if (number >> 32 != 0) throw Error("sum {} has no number below 2^32", number);
  if (options.piece < size_of(element))
    throw Error("sum {} has pieces of {}, which hold no element", number, options.piece);
  const bool is_whole = element == Element::kInt32 || element == Element::kInt64;
  if (is_whole && options.factor != 1)
    throw Error("sum {} multiplies integers by {}", number, options.factor);
  if (!options.hosts.empty() && options.hosts.size() != group.ranks())
    throw Error("sum {} knows {} hosts of {} ranks", number, options.hosts.size(), group.ranks());
}

std::unique_ptr<Sum> begin_in(SumMemory& memory, transport::Transport& group, std::uint64_t number,
                              Element element, const std::vector<std::span<std::byte>>& parts,
                              const SumOptions& options) {
  check(group, number, element, parts, options);
  const Parts array(parts);
  Program program = program_for(group, array.size(), options);
  // Even shares of so many whole elements are at most a piece each.
  const std::uint64_t most = options.piece / size_of(element) * program.slices;
  const std::uint64_t elements = array.size() / size_of(element);
  const std::uint64_t rounds = (elements + most - 1) / most;
  if (rounds >= (1ull << 32) / (2ull * group.ranks()))
    throw Error("sum {} of {} has too many pieces of {}", number, array.size(), options.piece);
  auto sum = std::make_unique<RoundsSum>(
      Setting{group, number, element, options.factor, array, memory, std::move(program), rounds});
  sum->advance();
  return sum;
}

}  // namespace

std::unique_ptr<Sum> begin_sum(transport::Transport& group, std::uint64_t number, Element element,
                               std::vector<std::span<std::byte>> parts, const SumOptions& options) {
  return begin_in(host_memory(), group, number, element, parts, options);
}

std::unique_ptr<Sum> begin_sum(transport::Transport& group, std::uint64_t number, Element element,
                               const std::vector<device::DeviceSpan>& parts, SumMemory& memory,
                               const SumOptions& options) {
  std::vector<std::span<std::byte>> stretches;
  for (const device::DeviceSpan& part : parts) {
    if (part.device != memory.device())
      throw Error("sum {} has a part on {}, and is added up on {}", number, part.device,
                  memory.device());
    stretches.emplace_back(part.data, part.size.count());
  }
  return begin_in(memory, group, number, element, stretches, options);
}

}  // namespace spillway::allreduce
