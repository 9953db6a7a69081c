#pragma once

#include <cstddef>
#include <string>

namespace spillway::cli {

/// A file's bytes, read-only; empty when it cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// The object at `offset`, or null when it would reach beyond the end.
  template <typename Object>
  const Object* at(std::size_t offset, std::size_t count = 1) const {
    if (offset > size_ || count > (size_ - offset) / sizeof(Object)) return nullptr;
    return reinterpret_cast<const Object*>(data_ + offset);
  }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace spillway::cli
