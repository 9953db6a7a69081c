#include "unit_times.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace spillway::split {
namespace {

bool is_timed(OpPhase phase) { return phase == OpPhase::kForward || phase == OpPhase::kBackward; }

}  // namespace

std::optional<device::Event> UnitTimes::moment() const {
  const runtime::Runtime* const gpu = gpu_.load(std::memory_order_acquire);
  return gpu == nullptr ? std::nullopt : gpu->moment();
}

void UnitTimes::Measured::add(std::uint32_t unit, OpPhase phase, Duration time) {
  if (seconds.size() <= unit) seconds.resize(unit + 1);
  pipeline::UnitSeconds& of_unit = seconds[unit];
  (phase == OpPhase::kForward ? of_unit.forward : of_unit.backward) +=
      std::chrono::duration<float>(time).count();
}

/// False, and nothing has changed: it has not come to the end of all.
bool UnitTimes::Measured::add_gpu() {
  const auto has_ended = [](const Pair& one) {
    return one.to.is_done() && one.to.wait().succeeded();
  };
  // Nearly always the latest says for all.
  if (!std::all_of(on_gpu.rbegin(), on_gpu.rend(), has_ended)) return false;
  for (const Pair& one : on_gpu) add(one.unit, one.phase, device::elapsed(one.from, one.to));
  on_gpu.clear();
  return true;
}

void UnitTimes::add(std::uint32_t unit, OpPhase phase, Duration time) {
  if (!is_timed(phase)) return;
  const std::lock_guard lock(mutex_);
  now_.add(unit, phase, time);
}

void UnitTimes::add(std::uint32_t unit, OpPhase phase, device::Event from, device::Event to) {
  // A stream that is captured has no moments.
  if (!is_timed(phase) || from.state() == nullptr || to.state() == nullptr) return;
  const std::lock_guard lock(mutex_);
  now_.on_gpu.push_back({unit, phase, std::move(from), std::move(to)});
}

std::vector<pipeline::UnitSeconds> UnitTimes::end_step(std::size_t units, Step wanted) {
  const std::lock_guard lock(mutex_);
  Measured ended = std::exchange(now_, {});
  if (wanted == Step::kTheOneBefore) std::swap(ended, before_);
  std::vector<pipeline::UnitSeconds> taken;
  if (ended.add_gpu()) taken = std::move(ended.seconds);
  taken.resize(units);
  return taken;
}

}  // namespace spillway::split
