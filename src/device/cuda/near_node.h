#pragma once

#include <optional>
#include <string>

#include "spillway/device/device_span.h"

namespace spillway::device {

/// The NUMA node next to the device with this bus address; none: unknown, or the machine has one.
std::optional<int> node_near(const std::string& bus_address);

/// Lets the pages of host memory, those that are there already included, come from `node` as long
/// as that has free ones. Memory of a thread whose memory policy somebody has chosen (numactl) is
/// left alone. Returns why the kernel refuses; empty: it does not.
std::string prefer_node(DeviceSpan host, int node);

}  // namespace spillway::device
