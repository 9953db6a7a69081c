#pragma once

#include <cstdint>
#include <vector>

#include "spillway/device/device.h"
#include "spillway/device/link_probe.h"

namespace spillway::device {

/// What a GPU does while chunks are mapped.
enum class Beside : std::uint8_t { kNothing, kWork, kCopies };

/// Seconds that the host spends in the calls for a chunk.
struct MappingTime {
  Bytes chunk;
  Beside beside = Beside::kNothing;
  Spread map;  ///< Laid beneath an address, with access to it.
  Spread unmap;
};

/// Measures it for chunks of these sizes: alone, beside copies within the device's memory, and
/// beside copies to and from the host. Empty for a device without virtual memory. Throws Error for
/// a device that is not CUDA's, or where memory is refused.
std::vector<MappingTime> measure_mapping(Device& device, const std::vector<Bytes>& chunks);

}  // namespace spillway::device
