#include "spillway/allreduce/sum.h"

#include <algorithm>
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
  Program program;
  std::uint64_t rounds;
};

/// Memory that is not filled with zeros before it is used.
using Room = std::unique_ptr<std::byte[]>;

/// Of one slice. The first round has the largest ones.
Bytes largest_slice(const Setting& setting, std::uint64_t round = 0) {
  const Bytes element = size_of(setting.element);
  const Share stretch = share(setting.parts.size() / element, setting.rounds, round);
  return element * share(stretch.size, setting.program.slices, 0).size;
}

/// Of one round: what is staged, and copies of slices that lie in several parts.
Room make_room(const Setting& setting) {
  const std::uint64_t slices = setting.program.staged + setting.program.slices;
  return std::make_unique_for_overwrite<std::byte[]>((largest_slice(setting) * slices).count());
}

/// A stretch of the array on its way through the program.
class Round {
 public:
  Round(const Setting& setting, std::uint64_t index, Room room)
      : setting_(setting),
        index_(index),
        largest_(largest_slice(setting, index)),
        room_(std::move(room)) {
    const Bytes element = size_of(setting.element);
    const Share stretch = share(setting.parts.size() / element, setting.rounds, index);
    const Program& program = setting.program;
    for (std::uint32_t i = 0; i < program.slices; ++i) {
      const Share one = share(stretch.size, program.slices, i);
      Slice& slice = slices_.emplace_back();
      slice.begin = element * (stretch.begin + one.begin);
      slice.size = element * one.size;
      slice.place = setting.parts.find(slice.begin, slice.size);
      if (slice.place != nullptr || slice.size == Bytes()) continue;
      slice.is_gathered = true;
      slice.place = room_of(program.staged + i);
      setting.parts.gather(slice.begin, {slice.place, slice.size.count()});
    }
    for (std::uint32_t i = 0; i < program.steps.size(); ++i) {
      waits_.push_back(program.steps[i].waits);
      if (waits_.back() == 0) ready_.push_back(i);
    }
    left_ = program.steps.size();
  }

  /// False: nothing has happened.
  bool advance() {
    bool has_moved = false;
    for (std::size_t i = 0; i < under_way_.size();) {
      if (!under_way_[i].second.is_done()) {
        ++i;
        continue;
      }
      const auto [step, event] = under_way_[i];
      under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
      end_message(step, event);
      has_moved = true;
    }
    // The latest first: what a message has allowed goes on at once, before what could wait.
    while (!ready_.empty()) {
      const std::uint32_t step = ready_.back();
      ready_.pop_back();
      begin(step);
      has_moved = true;
    }
    return has_moved;
  }

  bool has_ended() const { return left_ == 0; }

  /// Of a message that it needs, before one that is to be taken.
  Rank waits_for() const {
    Rank found;
    for (const auto& [index, event] : under_way_) {
      const Step& step = setting_.program.steps[index];
      if (step.kind == Step::Kind::kReceive) return step.peer;
      found = step.peer;
    }
    return found;
  }

  /// At the end: the result into its parts. Returns the memory, for a later round.
  Room put_back() {
    for (const Slice& slice : slices_)
      if (slice.is_gathered) setting_.parts.scatter(slice.begin, {slice.place, slice.size.count()});
    return std::move(room_);
  }

 private:
  struct Slice {
    Bytes begin;
    Bytes size;
    std::byte* place = nullptr;
    bool is_gathered = false;  ///< It lies in several parts.
  };

  std::byte* room_of(std::uint64_t slice) { return room_.get() + (slice * largest_).count(); }

  std::byte* at(const Step& step, Step::Place place) {
    return place ? room_of(*place) : slices_[step.slice].place;
  }

  void begin(std::uint32_t index) {
    const Step& step = setting_.program.steps[index];
    const Bytes size = slices_[step.slice].size;
    if (size == Bytes()) return end(index);
    if (step.kind == Step::Kind::kAdd || step.kind == Step::Kind::kScale) {
      calculate(step, size);
      return end(index);
    }
    const transport::Tag tag = tag_of(step);
    const device::DeviceSpan bytes = device::host_span(at(step, step.place), size);
    device::Event event = step.kind == Step::Kind::kSend
                              ? setting_.group.send(step.peer, tag, bytes)
                              : setting_.group.receive(step.peer, tag, bytes);
    if (event.is_done()) return end_message(index, event);
    under_way_.emplace_back(index, std::move(event));
  }

  void calculate(const Step& step, Bytes size) {
    std::vector<const std::byte*> sources{at(step, {})};
    if (step.kind == Step::Kind::kAdd) {
      sources.clear();
      for (const Step::Place operand : step.operands) sources.push_back(at(step, operand));
    }
    const double factor = step.kind == Step::Kind::kScale ? setting_.factor : 1;
    add_up(setting_.element, sources, at(step, {}), size, factor);
  }

  void end_message(std::uint32_t index, const device::Event& event) {
    const device::Outcome outcome = event.wait();
    if (!outcome.succeeded())
      setting_.group.abort(message("sum {} has failed: {}", setting_.number, outcome.error));
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
  const Bytes largest_;
  Room room_;
  std::vector<Slice> slices_;
  std::vector<std::uint32_t> waits_;
  std::vector<std::uint32_t> ready_;
  std::vector<std::pair<std::uint32_t, device::Event>> under_way_;
  std::size_t left_ = 0;
};

class RoundsSum final : public Sum {
 public:
  explicit RoundsSum(Setting setting) : setting_(std::move(setting)) {}

  bool advance() override {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      while (begun_ < setting_.rounds && under_way_.size() < kRoundsAtOnce) {
        if (rooms_.empty()) rooms_.push_back(make_room(setting_));
        under_way_.push_back(std::make_unique<Round>(setting_, begun_++, std::move(rooms_.back())));
        rooms_.pop_back();
      }
      for (const auto& round : under_way_) has_moved |= round->advance();
      has_moved |= std::erase_if(under_way_, [this](const auto& round) {
                     if (!round->has_ended()) return false;
                     rooms_.push_back(round->put_back());
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

}  // namespace

std::unique_ptr<Sum> begin_sum(transport::Transport& group, std::uint64_t number, Element element,
                               std::vector<std::span<std::byte>> parts, const SumOptions& options) {
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
      Setting{group, number, element, options.factor, array, std::move(program), rounds});
  sum->advance();
  return sum;
}

}  // namespace spillway::allreduce
