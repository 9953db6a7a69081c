#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "spillway/device/device.h"

namespace spillway::transport {

/// Values in the memory of a device, with a queue of their own.
template <typename Value>
class DeviceValues {
 public:
  DeviceValues(device::Device& device, std::size_t count)
      : count_(count),
        id_(device.id()),
        memory_(device.allocate(Bytes(count * sizeof(Value)))),
        queue_(device.make_queue("values")) {}
  DeviceValues(device::Device& device, std::vector<Value> values)
      : DeviceValues(device, values.size()) {
    set(std::move(values));
  }

  device::DeviceSpan span() const {
    return {id_, memory_.span().data, Bytes(count_ * sizeof(Value))};
  }
  device::Queue& queue() { return *queue_; }

  /// The event is reached when they are there.
  device::Event set(std::vector<Value> values) {
    host_ = std::move(values);
    queue_->copy(span(), device::host_span_of_all(host_));
    ready_ = queue_->record();
    return ready_;
  }
  const device::Event& ready() const { return ready_; }

  /// After all that its queue waits for.
  std::vector<Value> get() {
    std::vector<Value> values(count_);
    queue_->copy(device::host_span_of_all(values), span());
    EXPECT_EQ(queue_->record().wait().error, "");
    return values;
  }

 private:
  const std::size_t count_;
  const device::DeviceId id_;
  device::DeviceMemory memory_;
  std::unique_ptr<device::Queue> queue_;
  std::vector<Value> host_;
  device::Event ready_;
};

}  // namespace spillway::transport
