#include "device_times.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"

namespace spillway::runtime {

namespace {

bool was_recorded(const device::Event& event) {
  SPILLWAY_ASSERT(event.state() == nullptr || event.state()->timing() == device::Timing::kKept);
  return event.state() != nullptr;
}

}  // namespace

void DeviceTimes::begin_step(bool is_wanted) {
  latest_ = {};
  measures_ = is_wanted && pending_.size() < kMostPending;
}

void DeviceTimes::note_begin(const device::Event& at) {
  if (!was_recorded(at) || latest_.begins.size() >= kMostOps) return give_up();
  if (std::exchange(awaits_end_, false)) pending_.back().begins.push_back(at);
  if (measures_) latest_.begins.push_back(at);
}

void DeviceTimes::note_apart(const device::Event& from, const device::Event& to) {
  if (!was_recorded(from) || !was_recorded(to)) return give_up();
  Moments* const step = awaits_end_ ? &pending_.back() : measures_ ? &latest_ : nullptr;
  if (step != nullptr && !step->begins.empty())
    step->aparts.push_back({step->begins.size() - 1, from, to});
}

/// What began before is of no use without this moment.
void DeviceTimes::give_up() {
  if (std::exchange(awaits_end_, false)) pending_.pop_back();
  measures_ = false;
  latest_ = {};
}

bool DeviceTimes::end_step(ShapeId shape, const std::vector<Bytes>& moved) {
  // Without an end the step before has no time; a step of no operators is none.
  if (std::exchange(awaits_end_, false)) pending_.pop_back();
  const bool is_whole = measures_ && shape != kNoShape && !latest_.begins.empty() &&
                        latest_.begins.size() == moved.size();
  measures_ = false;
  if (!is_whole) return false;
  latest_.shape = shape;
  latest_.moved = moved;
  pending_.push_back(std::exchange(latest_, {}));
  awaits_end_ = true;
  return true;
}

std::vector<DeviceTimes::Step> DeviceTimes::take_done() {
  std::vector<Step> done;
  while (pending_.size() > (awaits_end_ ? 1U : 0U) && pending_.front().are_done()) {
    const Moments step = std::move(pending_.front());
    pending_.pop_front();
    try {
      done.push_back({step.shape, {step.times(), step.moved}});
    } catch (const Error& error) {
      log_debug("a step is left out of the times of operators: {}", error.what());
    }
  }
  return done;
}

/// The last one first, which is mostly the only one that may not be.
bool DeviceTimes::Moments::are_done() const {
  return std::all_of(begins.rbegin(), begins.rend(),
                     [](const device::Event& event) { return event.is_done(); }) &&
         std::all_of(aparts.rbegin(), aparts.rend(),
                     [](const Apart& apart) { return apart.to.is_done() && apart.from.is_done(); });
}

std::vector<Duration> DeviceTimes::Moments::times() const {
  std::vector<Duration> times;
  for (std::size_t op = 0; op + 1 < begins.size(); ++op)
    times.push_back(device::elapsed(begins[op], begins[op + 1]));
  for (const Apart& apart : aparts) times[apart.op] -= device::elapsed(apart.from, apart.to);
  // Streams of one device may overtake each other.
  for (Duration& time : times) time = std::max(time, Duration(0));
  return times;
}

}  // namespace spillway::runtime
