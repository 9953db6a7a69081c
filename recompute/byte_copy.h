#pragma once

#include <cstddef>
#include <memory>

namespace spillway::recompute {

/// Bytes of its own that lie as their original did with respect to a cache line: kernels may sum in
/// another order where the alignment differs.
class ByteCopy {
 public:
  ByteCopy(const void* original, std::size_t size);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace spillway::recompute
