#include "spillway/device/devices.h"

#include <algorithm>
#include <array>

#include "spillway/base/error.h"

namespace spillway::device {
namespace {

constexpr std::array kKinds{DeviceKind::kCpu, DeviceKind::kCuda};

BackendStatus status_of(DeviceKind kind, std::span<const DeviceBackend> backends) {
  for (const DeviceBackend& backend : backends)
    if (backend.kind == kind) return backend.probe();
  BackendStatus absent;
  absent.kind = kind;
  absent.reason = kind == DeviceKind::kCuda
                      ? "this build has no CUDA backend (configure with SPILLWAY_WITH_CUDA=ON)"
                      : "this program has no CPU backend";
  return absent;
}

}  // namespace

std::vector<BackendStatus> devices(std::span<const DeviceBackend> backends) {
  std::vector<BackendStatus> all;
  for (const DeviceKind kind : kKinds) all.push_back(status_of(kind, backends));
  return all;
}

std::unique_ptr<Device> open_device(DeviceId id, std::span<const DeviceBackend> backends) {
  const BackendStatus status = status_of(id.kind, backends);
  if (!status.reason.empty()) throw UnsupportedError("{}: {}", id, status.reason);
  if (std::find(status.devices.begin(), status.devices.end(), id) == status.devices.end()) {
    std::string known;
    for (const DeviceId each : status.devices)
      known.append(known.empty() ? "" : ", ").append(to_string(each));
    throw UnsupportedError("{} is not there (found: {})", id, known);
  }
  const auto backend =
      std::find_if(backends.begin(), backends.end(),
                   [&](const DeviceBackend& each) { return each.kind == id.kind; });
  return backend->open(id);
}

}  // namespace spillway::device
