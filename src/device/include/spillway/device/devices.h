#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/device/device.h"

namespace spillway::device {

/// What a kind of device comes to on this machine.
struct BackendStatus {
  DeviceKind kind = DeviceKind::kCpu;
  std::vector<DeviceId> devices;
  std::string reason;  ///< Why there are none, with the way to mend it; empty: there are some.
};

/// How a kind of device is found and opened. A library with a backend hands out one of these; who
/// composes a program lists those that it has linked:
///   const std::array backends{device::cpu_backend(), device::cuda_backend()};
struct DeviceBackend {
  DeviceKind kind = DeviceKind::kCpu;
  BackendStatus (*probe)() = nullptr;  ///< Never throws.
  /// One of those that `probe` tells. Throws Error when it is gone meanwhile.
  std::unique_ptr<Device> (*open)(DeviceId id) = nullptr;
};

/// All kinds there are, in their order; those without a backend say how to get one.
std::vector<BackendStatus> devices(std::span<const DeviceBackend> backends);

/// Throws UnsupportedError with the reason for a device that is not there.
std::unique_ptr<Device> open_device(DeviceId id, std::span<const DeviceBackend> backends);

}  // namespace spillway::device
