// The moments of a device that a StepTraceRecorder is told, and its times, which come later.

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/runtime/recording/step_trace_recorder.h"

namespace spillway::runtime {

namespace {

// Devices tell times as numbers of few digits, which count from some moment: never one long ago.
constexpr Duration kMostFromBase = std::chrono::seconds(1);

}  // namespace

std::optional<device::Event> StepTraceRecorder::moment() const {
  return options_.moment ? std::optional(options_.moment()) : std::nullopt;
}

/// The number of the stream that the calling thread gives work to.
std::uint32_t StepTraceRecorder::stream_locked() {
  if (!options_.stream) return 0;
  const std::uint64_t stream = options_.stream();
  const auto known = std::find(streams_.begin(), streams_.end(), stream);
  const auto number = static_cast<std::uint32_t>(known - streams_.begin());
  if (known == streams_.end()) streams_.push_back(stream);
  return number;
}

/// Asks for what is done by now: the events of a long run would fill the device's memory.
void StepTraceRecorder::settle_moments_locked() {
  for (; unsettled_ > 0; --unsettled_) {
    Span& span = spans_[spans_.size() - unsettled_];
    if (!span.from.is_done() || !span.to.is_done()) return;
    span.on_device = on_device_locked(span);
    span.from = span.to = {};
  }
}

/// None where a moment was not recorded, or the device has been lost.
std::optional<StepTraceRecorder::DeviceSpan> StepTraceRecorder::on_device_locked(const Span& span) {
  if (span.from.state() == nullptr || span.to.state() == nullptr) return std::nullopt;
  try {
    if (base_.state() == nullptr) base_ = span.from;
    const Duration begin = device::elapsed(base_, span.from);
    const DeviceSpan found{base_at_ + begin, base_at_ + device::elapsed(base_, span.to)};
    if (begin > kMostFromBase) {
      base_ = span.from;
      base_at_ += begin;
    }
    return found;
  } catch (const Error& error) {
    log_debug("an operator is missing in the trace of its device: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace spillway::runtime
