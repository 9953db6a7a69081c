#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "spillway/base/bytes.h"
#include "spillway/device/device_span.h"
#include "spillway/device/event.h"

namespace spillway::allreduce {

enum class Element : std::uint8_t;

/// The memory that the parts of a sum lie in, and who calculates there: a device, on a queue of its
/// own. What it begins reads what earlier ones of its calls have written. It wakes who drives the
/// sum when one of its events is reached, unless that is so when it is returned. One thread.
class SumMemory {
 public:
  virtual ~SumMemory() = default;

  virtual device::DeviceId device() const = 0;
  /// Whether messages may read and write the parts where they lie. Else `copy` brings slices to
  /// room and back, and nothing but `copy` sees the parts.
  virtual bool carries_parts() const { return true; }
  /// Room beside the parts, aligned for every element.
  virtual std::shared_ptr<std::byte> allocate(Bytes size) = 0;
  virtual device::Event copy(std::byte* to, const std::byte* from, Bytes size) = 0;
  /// Writes ((sources[0] + sources[1]) + …) · factor to `target`, which may be one of them; each
  /// has `size`. Rounds as `begin_sum` says, after each addition and after the product; `factor` is
  /// 1 where nothing is multiplied.
  virtual device::Event add_up(Element element, std::span<const std::byte* const> sources,
                               std::byte* target, Bytes size, double factor) = 0;
};

}  // namespace spillway::allreduce
