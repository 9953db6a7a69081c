#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/transport/transport.h"

namespace spillway::pipeline {

using Packed = std::vector<std::byte>;

inline device::DeviceSpan span_of(Packed& bytes) {
  return device::host_span(bytes.data(), Bytes(bytes.size()));
}

/// Numbers and texts as the bytes of a message.
class Packer {
 public:
  void add(std::uint64_t number) { append(&number, sizeof number); }
  void add(std::string_view text) {
    add(text.size());
    append(text.data(), text.size());
  }
  Packed take() { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t size) {
    const auto* const first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
  }

  Packed bytes_;
};

/// Takes out what a Packer has put in, in the same order. Throws TransportError where that is not
/// in there.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : left_(bytes) {}

  std::uint64_t number() {
    std::uint64_t number = 0;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  std::string text() {
    const std::span<const std::byte> bytes = take(number());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> take(std::uint64_t size) {
    if (size > left_.size()) throw transport::TransportError("a message of the job ends too early");
    const std::span<const std::byte> taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }

  std::span<const std::byte> left_;
};

}  // namespace spillway::pipeline
