#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "spillway/base/bytes.h"
#include "spillway/base/error.h"

namespace spillway::planner {

/// The reason why a candidate has no plan.
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

/// A value, or the reason why there is none.
template <typename Value>
class OrRefusal {
 public:
  OrRefusal(Value value) : value_(std::move(value)) {}
  OrRefusal(Refusal refusal) : refusal_(std::move(refusal)) {}

  explicit operator bool() const { return value_.has_value(); }
  Value& operator*() { return *value_; }
  const Value& operator*() const { return *value_; }
  Value* operator->() { return &*value_; }
  const Value* operator->() const { return &*value_; }
  const Refusal& refusal() const { return refusal_; }

 private:
  std::optional<Value> value_;
  Refusal refusal_;  ///< Of no meaning beside a value.
};

/// Some rank does not fit into its device. `rank` is the fullest one and `needed` its bytes: under
/// the plan, or, where no cuts fit, under the cuts with the smallest peak.
class NoRoomError : public PlanError {
 public:
  NoRoomError(const std::string& sentence, std::uint32_t rank, Bytes needed)
      : PlanError("{}", sentence), rank_(rank), needed_(needed) {}

  std::uint32_t rank() const { return rank_; }
  Bytes needed() const { return needed_; }

 private:
  std::uint32_t rank_;
  Bytes needed_;
};

/// Throws NoRoomError for `kRoom`, ConfigError for `kRequest`, and PlanError for all else.
[[noreturn]] void raise(const Refusal& refusal);

}  // namespace spillway::planner
