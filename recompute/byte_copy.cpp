#include "byte_copy.h"

#include <cstdint>
#include <cstring>

namespace spillway::recompute {
namespace {

constexpr std::uintptr_t kLine = 64;

}  // namespace

ByteCopy::ByteCopy(const void* original, std::size_t size)
    : memory_(std::make_unique_for_overwrite<std::byte[]>(size + kLine)), size_(size) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(original) % kLine;
  const auto start = reinterpret_cast<std::uintptr_t>(memory_.get()) % kLine;
  data_ = memory_.get() + (kLine + wanted - start) % kLine;
  if (size > 0) std::memcpy(data_, original, size);
}

}  // namespace spillway::recompute
