#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "spillway/base/clock.h"
#include "spillway/device/device_span.h"

namespace spillway::device {

/// What work came to. `error` is empty when it succeeded.
struct Outcome {
  std::string error;
  bool succeeded() const { return error.empty(); }
};

/// Whether a moment keeps its time, for `elapsed`. A GPU notes it more slowly.
enum class Timing : std::uint8_t { kNone, kKept };

/// What a backend keeps of an event: a cudaEvent_t, or a flag and a condition variable. All methods
/// from any thread.
class EventState {
 public:
  explicit EventState(DeviceId device, Timing timing = Timing::kKept)
      : device_(device), timing_(timing) {}
  virtual ~EventState() = default;
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;

  DeviceId device() const { return device_; }
  Timing timing() const { return timing_; }

  /// Once true, the caller sees what the work before it has written.
  virtual bool is_done() const = 0;
  virtual Outcome wait() const = 0;
  /// `earlier` is of the same backend, and both are done and keep their time.
  virtual Duration time_since(const EventState& earlier) const = 0;
  /// Stands for the order in which this and others of its kind are reached, a stream as a rule;
  /// null: none is known.
  virtual const void* line() const { return nullptr; }
  /// Why it is not reached however long one waits, unless the program does something; empty: it
  /// will be.
  virtual std::string obstacle() const { return {}; }

 private:
  const DeviceId device_;
  const Timing timing_;
};

/// A moment in the work of a queue, reached once everything given to the queue before `record` has
/// ended. A ticket to poll, to wait for, or to let other queues wait for; copies mean the same
/// moment. The default one has been reached. Any thread.
class Event {
 public:
  Event() = default;
  /// For backends.
  explicit Event(std::shared_ptr<const EventState> state) : state_(std::move(state)) {}

  bool is_done() const { return state_ == nullptr || state_->is_done(); }

  /// Sleeps until it is reached; no thread that runs a queue's own work may. Returns the first
  /// failure of the work between the event before this one in the queue and this one.
  Outcome wait() const { return state_ == nullptr ? Outcome() : state_->wait(); }

  /// Null for the default one; for backends.
  const std::shared_ptr<const EventState>& state() const { return state_; }

 private:
  std::shared_ptr<const EventState> state_;
};

/// The time from one moment to a later one, as the device saw it. Both were recorded with
/// `Timing::kKept` by queues of one device and are done. Throws Error for events that are not, or
/// of two devices.
Duration elapsed(const Event& from, const Event& to);

}  // namespace spillway::device
