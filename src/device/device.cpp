#include "spillway/device/device.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::device {

const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return "cuda";
  }
  return "unknown";
}

std::string to_string(DeviceId id) {
  return id.is_host() ? name_of(id.kind) : message("{}:{}", name_of(id.kind), id.index);
}

std::ostream& operator<<(std::ostream& out, DeviceId id) { return out << to_string(id); }

Duration elapsed(const Event& from, const Event& to) {
  const auto& first = from.state();
  const auto& second = to.state();
  if (first == nullptr || second == nullptr)
    throw Error("an event that was never recorded has no time");
  if (first->device() != second->device())
    throw Error("no time passes between events of two devices: {} and {}", first->device(),
                second->device());
  if (first->timing() == Timing::kNone || second->timing() == Timing::kNone)
    throw Error("an event of {} keeps no time unless it is recorded with Timing::kKept",
                first->device());
  if (!first->is_done() || !second->is_done())
    throw Error("no time is known yet between events of {} that are not done", first->device());
  return second->time_since(*first);
}

void Queue::copy(DeviceSpan to, DeviceSpan from) {
  const auto is_in_reach = [this](const DeviceSpan& span) {
    return span.device.is_host() || span.device == device_ ||
           std::find(peers_.begin(), peers_.end(), span.device) != peers_.end();
  };
  SPILLWAY_ASSERT(is_in_reach(to) && is_in_reach(from));
  SPILLWAY_ASSERT(to.size == from.size);
  SPILLWAY_ASSERT(to.size == Bytes() || (to.data != nullptr && from.data != nullptr));
  do_copy(to, from);
}

void Queue::run(std::function<Outcome()> work) {
  SPILLWAY_ASSERT(work != nullptr);
  do_run(std::move(work));
}

void Queue::wait(const Event& event) {
  if (event.state() != nullptr) do_wait(event.state());
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), span_(std::exchange(other.span_, {})) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(span_, other.span_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (owner_ != nullptr) owner_->do_release(span_);
}

DeviceMemory Device::allocate(Bytes size) { return {*this, {id_, do_allocate(size), size}}; }

std::string Device::pin_host(DeviceSpan host) {
  SPILLWAY_ASSERT(host.device.is_host() && host.data != nullptr);
  if (!capabilities_.pinned_host_memory) return message("{} cannot pin memory of the host", id_);
  return do_pin_host(host);
}

}  // namespace spillway::device
