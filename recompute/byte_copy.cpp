#include "byte_copy.h"

#include <cstdint>
#include <cstring>

namespace spillway::recompute {
namespace {

constexpr std::uintptr_t kLine = 64;

}  // namespace

ByteCopy ByteCopy::room(const void* original, std::size_t size) {
  ByteCopy copy;
  copy.memory_ = std::make_unique_for_overwrite<std::byte[]>(size + kLine);
  const auto wanted = reinterpret_cast<std::uintptr_t>(original) % kLine;
  const auto start = reinterpret_cast<std::uintptr_t>(copy.memory_.get()) % kLine;
  copy.data_ = copy.memory_.get() + (kLine + wanted - start) % kLine;
  copy.size_ = size;
  return copy;
}

ByteCopy::ByteCopy(const void* original, std::size_t size) {
  *this = room(original, size);
  if (size > 0) std::memcpy(data_, original, size);
}

}  // namespace spillway::recompute
