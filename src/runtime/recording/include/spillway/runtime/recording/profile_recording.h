#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/profile/step_profile.h"
#include "spillway/profile/tape_recorder.h"
#include "spillway/runtime/recording/op_names.h"
#include "spillway/runtime/recording/typical_times.h"

namespace spillway::runtime {

/// Collects, while a trainer runs, what its profile is made of: names of operators and, of each
/// kind of step, the latest one with the times of its repetitions. One thread notes, any may ask
/// for the profile.
class ProfileRecording {
 public:
  static constexpr std::uint32_t kMostKinds = 8;  ///< Of step that are kept.

  struct Options {
    std::uint32_t steps = 0;  ///< Repetitions after which it is complete; 0: never.
    /// Which kind of step is wanted, by how often it came: 1 is the most frequent one.
    std::uint32_t kind = 1;
    Bytes page_size = profile::StepProfile().page_size;
    /// The times of operators are those that `note_times` tells, and not those of the step.
    bool is_timed_on_device = false;
  };

  explicit ProfileRecording(const Options& options) : options_(options) {}

  /// The operator with this signature on the tape. Asks for its text once per signature.
  void note_op(std::uint64_t signature, const OpText& text) { names_.note(signature, text); }

  /// Bytes of parameters that are too small for the tape. The most that was noted counts: threads
  /// that do not train know of fewer. Any thread.
  void note_small_parameters(Bytes bytes);

  /// A step has ended. `identity` is equal for steps of equal operators.
  void note_step(std::uint64_t identity, const profile::RecordedStep& step);

  /// What the operators of a step that `note_step` told took on their device. Steps may be left
  /// out, and it is known only when later ones have ended.
  void note_times(std::uint64_t identity, const OpTimes& times);

  /// Begins anew: what has come so far were no steps.
  void forget_steps();

  /// Whether the wanted kind of step has come, and was measured, as often as was asked for.
  bool is_complete() const { return is_complete_.load(std::memory_order_relaxed); }

  /// The profile of the wanted kind of step. Throws PlanError with the reason when it has not come
  /// twice. The caller knows where it comes from, how many bytes are too small for the tape, and
  /// the rates of the store, whose slowdown of operators is taken off their times.
  profile::StepProfile profile(profile::ProfileOrigin origin, Bytes small_bytes,
                               const profile::TransferRates& rates) const;

  /// Whether any step has come, of whatever kind.
  bool has_steps() const;

  /// Whether some kind of step has come twice: there is a profile.
  bool has_repeated() const;

  /// "kind 1 of 2, which came 8 and 2 times"; empty when all repeated steps were of one kind.
  std::string kinds_text() const;

 private:
  static constexpr std::size_t kMostTimes = 32;  ///< Repetitions whose times are kept.

  struct Shape {
    std::uint64_t identity = 0;
    std::size_t ops = 0;
    std::uint64_t seen = 0;
    std::uint64_t measured = 0;
    std::uint64_t last_seen = 0;
    StepTimes times;               ///< Newest first.
    profile::RecordedStep step;    ///< The latest one.
    profile::RecordedStep before;  ///< Right before it.
    bool has_before = false;
  };

  std::vector<const Shape*> ranked() const;
  Shape& shape_of(std::uint64_t identity, std::size_t ops);
  Shape* find_shape(std::uint64_t identity, std::size_t ops);
  void add_times(Shape& shape, OpTimes times);
  void name_ops(const profile::StepTape& tape, profile::StepProfile& profile) const;
  static void set_phases(const profile::RecordedStep& step, profile::StepProfile& profile);
  static void set_times(const Shape& shape, double slowdown, profile::StepProfile& profile);

  Options options_;
  std::atomic<bool> is_complete_{false};
  mutable std::mutex mutex_;
  OpNames names_;
  std::vector<std::unique_ptr<Shape>> shapes_;
  std::uint64_t steps_ = 0;
  Bytes small_parameters_;
  std::uint64_t cut_steps_ = 0;     ///< Too long to be recorded whole.
  profile::RecordedStep previous_;  ///< The latest step of all.
  bool has_previous_ = false;
};

}  // namespace spillway::runtime
