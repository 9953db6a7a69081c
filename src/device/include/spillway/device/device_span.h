#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>

#include "spillway/base/assert.h"
#include "spillway/base/bytes.h"

namespace spillway::device {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

/// Names a device. The default is the CPU, whose memory is the host's.
struct DeviceId {
  DeviceKind kind = DeviceKind::kCpu;
  std::uint16_t index = 0;

  constexpr bool is_host() const { return kind == DeviceKind::kCpu; }
  constexpr auto operator<=>(const DeviceId&) const = default;
};

const char* name_of(DeviceKind kind);  ///< "cpu", "cuda"
std::string to_string(DeviceId id);    ///< "cpu", "cuda:0"
std::ostream& operator<<(std::ostream& out, DeviceId id);

/// Bytes in the memory of a device. An address alone does not say whose memory it means, and host
/// code may touch what lies on the host only:
///   queue.copy(block.first(size), host_span(tensor, size));
struct DeviceSpan {
  DeviceId device;
  std::byte* data = nullptr;
  Bytes size;

  DeviceSpan first(Bytes count) const { return part(Bytes(), count); }
  DeviceSpan part(Bytes offset, Bytes count) const {
    SPILLWAY_ASSERT(offset <= size && count <= size - offset);
    return {device, data + offset.count(), count};
  }
};

inline DeviceSpan host_span(std::byte* data, Bytes size) { return {DeviceId(), data, size}; }

/// The bytes of a value on the host.
template <typename Value>
DeviceSpan host_span_of(Value& value) {
  static_assert(std::is_trivially_copyable_v<Value> && !std::is_pointer_v<Value>);
  return host_span(reinterpret_cast<std::byte*>(&value), Bytes(sizeof value));
}

/// Those of all that lies in a vector or a string.
template <typename Values>
DeviceSpan host_span_of_all(Values& values) {
  using Value = typename Values::value_type;
  static_assert(std::is_trivially_copyable_v<Value> && !std::is_pointer_v<Value>);
  return host_span(reinterpret_cast<std::byte*>(values.data()),
                   Bytes(values.size() * sizeof(Value)));
}

}  // namespace spillway::device
