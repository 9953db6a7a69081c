#include "spillway/pipeline/ownership/control_hash.h"

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/base/mix.h"

namespace spillway::pipeline {
namespace {

bool differ_in_data(const ControlHash::Call& one, const ControlHash::Call& other) {
  return one.name == other.name && one.count == other.count && one.arguments == other.arguments &&
         one.data != other.data;
}

/// Of two calls of the same index.
std::string text_of_difference(const NamedCalls& one, const ControlHash::Call& ones,
                               const NamedCalls& other, const ControlHash::Call& others) {
  if (differ_in_data(ones, others))
    return message("the bytes that call {}, {}, reads are others on {} than on {}", ones.index,
                   ones.name, one.rank, other.rank);
  const std::string place = message("call {}", ones.index);
  if (ones.name != others.name)
    return message("{} is {} on {} and {} on {}", place, ones.name, one.rank, others.name,
                   other.rank);
  if (ones.count != others.count)
    return message("{}, {}, has {} arguments on {} and {} on {}", place, ones.name, ones.count,
                   one.rank, others.count, other.rank);
  const auto [at, differs] =
      std::mismatch(ones.arguments.begin(), ones.arguments.end(), others.arguments.begin());
  const std::string ranks = message("between {} and {}", one.rank, other.rank);
  if (at == ones.arguments.end()) return message("{}, {}, differs {}", place, ones.name, ranks);
  return message("argument {} of {}, {}, differs {}", at - ones.arguments.begin(), place, ones.name,
                 ranks);
}

}  // namespace

void ControlHash::begin_call(std::string_view name) {
  call_ = {.index = call_.index, .name = name};
  // By its letters: it lies elsewhere on each rank.
  for (const char letter : name) value_ = mix(value_, static_cast<unsigned char>(letter));
}

void ControlHash::add(std::uint64_t argument) {
  const std::size_t place = std::min<std::size_t>(call_.count++, kArguments - 1);
  call_.arguments[place] =
      static_cast<std::uint32_t>(mix(call_.arguments[place] + call_.count, argument) >> 32);
  value_ = mix(value_, argument);
}

void ControlHash::add_data(std::uint64_t bytes) {
  value_ = mix(value_, bytes);
  call_.data = static_cast<std::uint32_t>(value_ >> 32);
}

void ControlHash::end_call() {
  call_.after = value_ = mix(value_, call_.count);
  const std::lock_guard lock(mutex_);
  if (kept_.size() < kKept)
    kept_.push_back(call_);
  else
    kept_[call_.index % kKept] = call_;
  position_ = {++call_.index, value_};
}

ControlHash::Position ControlHash::position() const {
  const std::lock_guard lock(mutex_);
  return position_;
}

std::optional<std::uint64_t> ControlHash::value_after(std::uint64_t calls) const {
  if (calls == 0) return 0;
  const std::lock_guard lock(mutex_);
  if (calls > position_.calls || calls + kept_.size() <= position_.calls) return std::nullopt;
  return kept_locked(calls - 1).after;
}

std::vector<ControlHash::Call> ControlHash::latest(std::size_t most) const {
  std::vector<Call> calls;
  const std::lock_guard lock(mutex_);
  const std::uint64_t count = std::min<std::uint64_t>(kept_.size(), most);
  calls.reserve(count);
  for (std::uint64_t i = position_.calls - count; i < position_.calls; ++i)
    calls.push_back(kept_locked(i));
  return calls;
}

std::optional<Difference> first_difference(const NamedCalls& one, const NamedCalls& other) {
  auto ones = one.calls.begin();
  auto others = other.calls.begin();
  bool is_first = true;
  while (ones != one.calls.end() && others != other.calls.end()) {
    if (ones->index != others->index) {
      ++(ones->index < others->index ? ones : others);
      continue;
    }
    if (ones->after != others->after) {
      const auto is_of_one = [&](std::string_view name) {
        return (ones->name == name) != (others->name == name);
      };
      if (!is_first || ones->index == 0)
        return Difference{.text = text_of_difference(one, *ones, other, *others),
                          .is_of_data = differ_in_data(*ones, *others),
                          .is_of_end = is_of_one(ControlHash::kEndOfProgram),
                          .is_of_gpu = is_of_one(ControlHash::kFirstUseOfGpu)};
      return Difference{
          .text = message("{} and {} differ before call {}, the oldest that both remember",
                          one.rank, other.rank, ones->index)};
    }
    is_first = false;
    ++ones;
    ++others;
  }
  if (is_first && !one.calls.empty() && !other.calls.empty())
    return Difference{
        .text = message("{} is at call {} and {} at call {}, too far apart to compare", one.rank,
                        one.calls.back().index, other.rank, other.calls.back().index)};
  return std::nullopt;
}

}  // namespace spillway::pipeline
