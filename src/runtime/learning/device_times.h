#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "learned_plan.h"
#include "spillway/device/event.h"
#include "spillway/runtime/recording/typical_times.h"

namespace spillway::runtime {

/// What the operators of steps take on a device that works behind the host's back, by moments of
/// its work: an operator lasts until the device comes to the next one, less what was set apart.
/// Nobody waits for a moment, so the times of a step are there when a later one ends.
class DeviceTimes {
 public:
  /// So many measured steps may have moments that are not done; until one of them is, no other step
  /// is measured.
  static constexpr std::size_t kMostPending = 4;
  /// A step of more operators is not measured.
  static constexpr std::size_t kMostOps = std::size_t{1} << 17;

  /// The step that begins is to be measured. The first one is.
  void begin_step(bool is_wanted);
  /// Whether it is of use to note moments now.
  bool wants_moments() const { return measures_ || awaits_end_; }

  /// The device comes to the operator that has begun. A moment that was never recorded gives the
  /// step up.
  void note_begin(const device::Event& at);
  /// From one moment to the other the device did nothing for the operators: it had run dry, while
  /// the host waited for memory, or did something again. Such times do not overlap.
  void note_apart(const device::Event& from, const device::Event& to);

  /// The step has ended; the next `note_begin` ends its last operator. `moved`: by operator, see
  /// RecordedStep. False: it was not measured, or not all of it.
  bool end_step(ShapeId shape, const std::vector<Bytes>& moved);

  struct Step {
    ShapeId shape = kNoShape;
    OpTimes times;
  };
  /// The steps whose moments have come to be done, oldest first.
  std::vector<Step> take_done();

 private:
  struct Apart {
    std::size_t op = 0;
    device::Event from, to;
  };
  /// One more begin than operators when it is complete.
  struct Moments {
    ShapeId shape = kNoShape;
    std::vector<device::Event> begins;
    std::vector<Apart> aparts;
    std::vector<Bytes> moved;

    bool are_done() const;
    std::vector<Duration> times() const;
  };
  void give_up();

  bool measures_ = true;         ///< The step that runs.
  bool awaits_end_ = false;      ///< The latest of `pending_` has no end yet.
  Moments latest_;               ///< Of the step that runs.
  std::deque<Moments> pending_;  ///< Steps that have ended, oldest first.
};

}  // namespace spillway::runtime
