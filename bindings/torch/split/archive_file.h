#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "spillway/runtime/runtime.h"

namespace spillway::split {

/// A file from which the program has loaded an archive, kept open, so that it may be removed, and a
/// file made in its place, while bytes of it are still to be read. What is read has to be of the
/// file as it was then. Any thread.
class ArchiveFile {
 public:
  /// Of an open file of the program's; the same for each descriptor of it. Null where it cannot be
  /// kept open, or mapped.
  static std::shared_ptr<const ArchiveFile> of(int descriptor);
  /// Whether tensors of that file were loaded that are still to be read.
  static bool was_loaded(dev_t device, ino_t inode) noexcept;
  ~ArchiveFile();
  ArchiveFile(const ArchiveFile&) = delete;
  ArchiveFile& operator=(const ArchiveFile&) = delete;

  bool is(const struct stat& facts) const noexcept;
  /// Whether it has changed since: a sentence that names it; empty: it has not.
  std::string change() const;
  /// Throws IoError where bytes cannot be read, or are not what they were.
  void read(std::uint64_t from, std::byte* memory, std::size_t size) const;
  /// A number that hangs on the checksum, in the archive's directory, of the record in which `from`
  /// lies; 0: there is none. Throws IoError.
  std::uint64_t checksum_of(std::uint64_t from) const;
  /// Over pages of `memory`, to be read only. False: the system refuses.
  bool map(std::uint64_t from, std::byte* memory, std::size_t size) const noexcept;

 private:
  ArchiveFile(int descriptor, const struct stat& facts);
  std::vector<std::byte> directory() const;  ///< That of a zip archive; else nothing.
  std::map<std::uint64_t, std::uint32_t> checksums() const;

  const int descriptor_;
  const dev_t device_;
  const ino_t inode_;
  const off_t size_;
  const timespec changed_;
  const std::string path_;
  mutable std::mutex mutex_;
  /// Of each record, by where its header begins, once one was asked for.
  mutable std::optional<std::map<std::uint64_t, std::uint32_t>> checksums_;
};

/// Bytes of such a file.
struct FileRange {
  std::shared_ptr<const ArchiveFile> file;
  std::uint64_t from = 0;
  std::size_t size = 0;

  /// Fills memory of the program, which may be paged. Not inside of an operator. Throws IoError.
  void read_to(runtime::Runtime& runtime, void* memory) const;
};

}  // namespace spillway::split
