#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/base/autograd_facts.h"
#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/profile/step_tape.h"
#include "spillway/profile/storage_class.h"

namespace spillway::profile {

/// Which storage a value of a recorded step was, for recognising it in other steps.
struct ValueOrigin {
  std::uint32_t range = 0;       ///< Id of the storage; reused after its death.
  std::uint64_t serial = 0;      ///< Counts births: never reused.
  std::uint64_t birth_key = 0;   ///< Names the place of its birth; equal steps give equal keys.
  ValueIndex before = kNoValue;  ///< The value that it was in the preceding step, if carried in.
  Bytes bytes;                   ///< 0: as many as its pages.
  StorageClass holds = StorageClass::kUnknown;  ///< What was noted of it.
};

/// A tape with what ties it to the steps around it. `becomes` is not yet set, see `join_steps`.
struct RecordedStep {
  StepTape tape;
  std::vector<ValueOrigin> origins;  ///< One per value.
  /// Per operator: bytes that moved to and from the store in its time. Empty in joined steps.
  std::vector<Bytes> moved_of_op;
  std::vector<AutogradFacts> autograd_of_op;  ///< One per operator.
  bool is_whole = true;  ///< False: longer than the recorder's bound, tail missing.

  void clear() {
    tape.clear();
    origins.clear();
    moved_of_op.clear();
    autograd_of_op.clear();
    is_whole = true;
  }
};

/// Turns the events of one thread into tapes. Values are numbered in the order in which a step
/// first meets them, so equal steps have equal tapes; live storages that a step never meets stand
/// at the end, oldest first, and shared pages behind all others. Frees and allocations between
/// operators belong to the operator before.
/// Does not allocate once its vectors have grown. Not thread-safe.
class TapeRecorder {
 public:
  struct Options {
    std::uint32_t max_ops = 1U << 17;  ///< Longer steps are cut off and marked not whole.
  };

  explicit TapeRecorder(const Options& options) : options_(options) {}

  /// `is_replayable`: as far as the operator itself goes, see `TapeOp`. `moved`: what all transfers
  /// have moved until now, in either direction; it only grows.
  void begin_op(std::uint64_t signature, TimePoint now, bool is_replayable = false,
                Bytes moved = {}, const AutogradFacts& autograd = {});
  /// An input of the operator that has begun. Repeated uses of a range are merged.
  void use(std::uint32_t range, std::uint32_t pages, bool writes);
  /// `is_filled`: by the operator that runs. Else the trainer fills it by itself, maybe again
  /// later, and no operator that reads it can be repeated. `bytes`: before rounding to pages.
  void allocated(std::uint32_t range, std::uint32_t pages, Bytes bytes = {}, bool is_filled = true);
  /// The operator that runs touches a page that small storages share. Behind all `use`s of it.
  void use_shared(std::uint32_t range, bool writes);
  /// Such a page was made, inside an operator or outside of one.
  void allocated_shared(std::uint32_t range);
  void freed(std::uint32_t range);
  /// What a live storage is known to hold, from now on until it is freed.
  void note_class(std::uint32_t range, StorageClass holds);
  /// Time that is no part of the operator's own: its thread waited for pages or for room. `moved`:
  /// bytes that moved meanwhile; they slowed nobody down.
  void waited(Duration time, Bytes moved = {}) {
    waited_ += time;
    moved_in_waits_ += moved;
  }
  void end_op();

  /// Ends the step at `now`, the begin of the next operator. Swaps the record into `finished`,
  /// whose old content is dropped and whose memory is reused. `moved`: as in `begin_op`.
  void finish_step(TimePoint now, RecordedStep& finished, Bytes moved = {});

  /// Storages that were born inside the operator that is running or ended last, and are alive.
  std::span<const std::uint32_t> born_in_op() const { return born_in_op_; }
  /// Of the step so far, as the next one.
  const StepTape& tape() const { return step_.tape; }
  std::span<const AutogradFacts> autograd() const { return step_.autograd_of_op; }
  const std::vector<std::uint32_t>& live_ranges() const { return live_; }
  bool is_live(std::uint32_t range) const {
    return range < ranges_.size() && ranges_[range].is_live;
  }
  bool is_live(std::uint32_t range, std::uint64_t serial) const {
    return range < ranges_.size() && ranges_[range].is_live && ranges_[range].serial == serial;
  }

  /// What is known of a live storage.
  struct Range {
    std::uint64_t serial = 0;
    std::uint64_t birth_key = 0;
    std::uint64_t born_at = 0;  ///< Operator count at birth.
    std::uint64_t step = 0;     ///< Step in which `value` holds.
    std::uint32_t pages = 0;
    Bytes bytes;
    StorageClass holds = StorageClass::kUnknown;
    std::uint32_t live_position = 0;
    ValueIndex value = kNoValue;
    std::uint32_t last_use = 0;  ///< Position in `uses` of the latest one, plus one.
    bool is_live = false;
    bool is_filled = true;  ///< By operators, as far as is known.
    bool is_shared = false;
  };
  const Range& range(std::uint32_t id) const { return ranges_[id]; }

 private:
  Range& enter(std::uint32_t range, std::uint32_t pages);
  Range& enter_shared(std::uint32_t range);
  void leave(std::uint32_t range);
  bool add_use(std::uint32_t range, bool writes);
  void note_birth(std::uint32_t range);
  ValueIndex value_of(std::uint32_t range, OpIndex birth);
  void close_op(TimePoint now, Bytes moved);
  void add_untouched();
  void put_shared_last();
  void mark_what_cannot_replay();
  bool records() const { return step_.is_whole; }

  Options options_;
  RecordedStep step_;
  std::vector<Range> ranges_;
  std::vector<std::uint32_t> live_;
  std::vector<std::uint32_t> born_in_op_;
  std::vector<std::uint32_t> untouched_;
  std::uint64_t recent_[4] = {0, 0, 0, 0};  ///< Signatures of the last operators.
  std::uint64_t op_count_ = 0;
  std::uint64_t next_serial_ = 1;
  std::uint64_t step_count_ = 1;
  std::uint32_t births_of_op_ = 0;
  std::uint32_t inside_now_ = 0;
  std::uint32_t uses_before_op_ = 0;
  TimePoint op_begin_{};
  Duration waited_{0};
  Bytes moved_before_op_;
  Bytes moved_in_waits_;
  bool in_op_ = false;
};

}  // namespace spillway::profile
