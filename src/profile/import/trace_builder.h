#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/profile/step_profile.h"

namespace spillway::profile {

/// Collects the operators of a foreign trace with sizes in bytes and makes a profile of them: finds
/// a page size, leaves out what holds no pages, numbers values in the order in which they are met.
/// Throws PlanError for what a profile cannot hold.
class TraceBuilder {
 public:
  using Value = std::uint32_t;
  static constexpr Value kNone = static_cast<Value>(-1);
  /// Of all values together, so that sums stay far from overflowing.
  static constexpr std::uint64_t kMostBytes = 1'000'000'000'000'000'000;

  /// A value from before the step.
  Value carried_in(std::uint64_t bytes, StorageClass holds) {
    return add(bytes, kCarriedIn, holds);
  }

  /// The operators come in order; what follows belongs to the latest one.
  void begin_op(std::string name, std::string arguments, Duration time);
  void use(Value value, bool writes = false);
  void use_if_any(Value value) {
    if (value != kNone) use(value);
  }
  Value born(std::uint64_t bytes, StorageClass holds);
  /// An activation that is freed after its last use.
  Value temporary(std::uint64_t bytes) {
    const Value value = born(bytes, StorageClass::kActivation);
    ends_with_last_use(value);
    return value;
  }
  /// Allocated and freed inside.
  void needs_inside(std::uint64_t bytes) { ops_.back().inside_bytes += bytes; }

  /// Dies after the latest operator; without one, it was never there.
  void dies(Value value);
  /// Dies after the last operator that uses it, whichever that will be.
  void ends_with_last_use(Value value) { values_[value].ends_with_last_use = true; }

  void set_class(Value value, StorageClass holds) { values_[value].holds = holds; }

  std::uint64_t bytes(Value value) const { return values_[value].bytes; }
  bool has_ops() const { return !ops_.empty(); }

  /// Values that were carried in and did not die go on as themselves.
  StepProfile finish(ProfileOrigin origin);

 private:
  struct Op {
    std::string name;
    std::string arguments;
    Duration time{0};
    std::vector<TapeUse> uses;
    std::vector<Value> births;
    std::uint64_t inside_bytes = 0;
  };
  struct Entry {
    std::uint64_t bytes = 0;
    OpIndex birth = kCarriedIn;
    OpIndex death = kSurvives;
    StorageClass holds = StorageClass::kUnknown;
    bool was_there = true;
    bool ends_with_last_use = false;
    std::size_t last_user = 0;   ///< So many operators there were; 0: nobody used it yet.
    std::uint32_t last_use = 0;  ///< Its place among the uses of that operator.
  };
  struct Peaks {
    std::uint64_t paged = 0;  ///< With each value rounded up to pages.
    std::uint64_t small = 0;
  };

  Value add(std::uint64_t bytes, OpIndex birth, StorageClass holds);
  void end_with_last_uses();
  bool is_paged(Value value, std::uint64_t page) const;
  Peaks peaks(std::uint64_t page) const;
  double rounding_loss(std::uint64_t page) const;
  std::uint64_t choose_page() const;
  bool is_kept(const Op& op, std::uint64_t page) const;
  ValueIndex number(Value value, StepProfile& profile);
  void add_op(const Op& op, StepProfile& profile);
  std::vector<HiddenDependence> hidden_dependences(std::uint64_t page) const;

  std::vector<Op> ops_;
  std::vector<Entry> values_;
  Duration time_{0};
  std::uint64_t all_bytes_ = 0;
  std::vector<ValueIndex> numbers_;  ///< In the profile.
  std::vector<OpIndex> op_numbers_;
};

/// Runs an importer, so that whatever is wrong is a ConfigError that begins with the file's name.
template <typename Import>
StepProfile named(const std::string& name, const Import& import) {
  try {
    return import();
  } catch (const PlanError& error) {
    throw ConfigError("{}: {}", name, error.what());
  }
}

}  // namespace spillway::profile
