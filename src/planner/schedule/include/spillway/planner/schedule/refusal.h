#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/bytes.h"
#include "spillway/base/error.h"

namespace spillway::planner_schedule {

/// The reason why there are no such action lists, or why a candidate has no plan.
struct Refusal {
  enum class Cause : std::uint8_t {
    kRequest,   ///< Counts or sizes that the schedule or the cuts cannot serve.
    kPlan,      ///< No cuts, no action lists, or no room on the hosts.
    kRoom,      ///< Some rank does not fit into its device.
    kPruned,    ///< The candidate is proven to be no faster than its incumbent.
    kDeferred,  ///< The candidate is unlikely to be faster than its incumbent.
  };

  Cause cause = Cause::kPlan;
  std::string sentence{};
  std::uint32_t rank = 0;  ///< kRoom: the fullest rank,
  Bytes needed{};          ///< and its bytes: under the plan, else under the least-memory cuts.
  double seconds = 0.0;    ///< kDeferred: the step time with unlimited memory.

  bool is_given_up() const { return cause == Cause::kPruned || cause == Cause::kDeferred; }
};

/// A `kPlan` with this sentence, filled in as by `message`.
template <typename... Args>
Refusal no_plan(std::string_view pattern, const Args&... args) {
  return {.sentence = message(pattern, args...)};
}

/// A value, or the reason why there is none.
template <typename Value>
class OrRefusal {
 public:
  OrRefusal(Value value) : value_(std::move(value)) {}
  OrRefusal(Refusal refusal) : refusal_(std::move(refusal)) {}

  explicit operator bool() const { return value_.has_value(); }
  Value& operator*() & { return given(*this); }
  const Value& operator*() const& { return given(*this); }
  Value operator*() && { return std::move(given(*this)); }
  Value* operator->() { return &given(*this); }
  const Value* operator->() const { return &given(*this); }
  const Refusal& refusal() const { return refusal_; }

 private:
  template <typename Self>
  static auto& given(Self& self) {
    SPILLWAY_ASSERT(self.value_.has_value());  // Whoever asks has looked whether there is one.
    return *self.value_;
  }

  std::optional<Value> value_;
  Refusal refusal_;  ///< Of no meaning beside a value.
};

/// Throws ConfigError for `kRequest`, and PlanError for all else.
[[noreturn]] inline void raise(const Refusal& refusal) {
  if (refusal.cause == Refusal::Cause::kRequest) throw ConfigError("{}", refusal.sentence);
  throw PlanError("{}", refusal.sentence);
}

}  // namespace spillway::planner_schedule
