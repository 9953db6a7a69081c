#pragma once

#include <memory>

#include "spillway/base/clock.h"
#include "spillway/device/devices.h"

namespace spillway::device {

/// The CPU as a device: its memory is the host's, its queues are threads. `clock` stamps events.
std::unique_ptr<Device> make_cpu_device(
    std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>());

DeviceBackend cpu_backend();

}  // namespace spillway::device
