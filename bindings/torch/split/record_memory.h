#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

#include "archive_file.h"

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace spillway::split {

/// Memory of a tensor that was loaded from an archive: the file itself, mapped, so that nothing is
/// read and no memory is taken before somebody looks. To be read only; a write is a fault. Any
/// thread.
class RecordMemory {
 public:
  using Record = std::tuple<c10::DataPtr, std::size_t>;
  using Reader = caffe2::serialize::PyTorchStreamReader;
  /// LibTorch's function that reads a record.
  using Read = Record (*)(Reader& reader, const std::string& name,
                          std::optional<c10::Allocator*> allocator);

  /// What `read` would return. Where a record is a tensor that lies in a file as it is, in this
  /// memory; else as without us. Throws what `read` throws.
  static Record read(Read read, Reader& reader, const std::string& name,
                     std::optional<c10::Allocator*> allocator);
  /// This thread is about to read from `from` on into memory, or from where the descriptor is (-1),
  /// which then moves. True: it has been done, all of it.
  static bool read_part(int descriptor, void* memory, std::size_t size, off_t from) noexcept;

  /// That of a storage, or null.
  static RecordMemory* of(const c10::StorageImpl& storage) { return of(storage.data_ptr()); }
  static RecordMemory* of(const c10::DataPtr& memory);
  static c10::DeleterFnPtr deleter();
  /// That around an address. For threads that do not end storages meanwhile.
  static const RecordMemory* around(const void* address) noexcept;
  /// Is told of each one that ends, on the thread that ends it. Set once.
  using EndObserver = void (*)(const void* address) noexcept;
  static void observe_ends(EndObserver observer);

  RecordMemory(std::uint64_t from, std::size_t size);
  ~RecordMemory();
  RecordMemory(const RecordMemory&) = delete;
  RecordMemory& operator=(const RecordMemory&) = delete;

  const FileRange& range() const { return range_; }
  /// Whether the program's thread has used it in an operator, so that it has a number.
  bool is_numbered = false;
  /// The first rank alone has the bytes, and what is here stands for them.
  bool is_elsewhere = false;

 private:
  friend class RecordReading;
  bool contains(const void* memory, std::size_t size) const;
  bool becomes_the_file();

  std::byte* pages_ = nullptr;
  std::size_t mapped_ = 0;      ///< Bytes of pages.
  std::byte* begin_ = nullptr;  ///< As far into its page as in the file.
  FileRange range_;             ///< Without a file: memory that is to be filled.
};

}  // namespace spillway::split
