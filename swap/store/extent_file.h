#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/own_descriptors.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/swap/spill_store.h"
#include "spillway/swap/spill_store_factory.h"
#include "store/unlinked_file.h"

namespace spillway::swap {

/// The extents of one directory: an unlinked file that grows in large steps, whose space is taken
/// from the disk when an extent is reserved, so that a full disk never shows as a failed write.
/// Extents that come back are given out again last in, first out, because blocks written before
/// are twice as fast to write. Thread-safe.
class ExtentFile {
 public:
  /// Throws IoError when no file can be made or the disk has no room for one extent.
  ExtentFile(SpillDirectory directory, std::shared_ptr<OwnDescriptors> descriptors,
             Bytes growth_step = 1_GiB, Bytes extent_size = Bytes(kExtentBytes));
  /// With a table for this file alone.
  explicit ExtentFile(SpillDirectory directory, Bytes growth_step = 1_GiB)
      : ExtentFile(std::move(directory), memory::make_own_descriptors(), growth_step) {}
  ~ExtentFile();
  ExtentFile(const ExtentFile&) = delete;
  ExtentFile& operator=(const ExtentFile&) = delete;

  std::optional<ExtentId> reserve();
  void release(ExtentId extent);

  /// Fills in what the file knows: extents in use, capacity, and the reason of the last refusal.
  void add_to(StoreReport& report) const;

  /// Takes no lock.
  ExtentPlace locate(ExtentId extent) const;

  /// Where the file is open, and its number there.
  const std::shared_ptr<OwnDescriptors>& descriptors() const { return descriptors_; }
  int fd() const { return file_.descriptor.get(); }
  /// Whether the number still means this file. It always does in a table that is apart.
  bool is_open() const { return identity_of(fd()) == identity_; }
  bool is_direct() const { return file_.is_direct; }
  const std::string& why_buffered() const { return file_.why_buffered; }

  /// Whether growing takes space from the disk at once; if not, a full disk shows as a failed
  /// write.
  bool reserves_space() const { return reserves_space_; }
  const std::string& why_unreserved() const { return why_unreserved_; }
  const std::string& path() const { return directory_.path; }

  Bytes extent_size() const { return extent_size_; }
  std::uint64_t offset_of(ExtentId extent) const { return extent_size_.count() * extent.value(); }

  /// "writing extent 5 of /scratch: Input/output error"; for EBADF what the program did.
  std::string describe(const Transfer& transfer, int error) const;

 private:
  bool grow();
  // Where the file is open:
  void open();
  void close();
  bool grow_file();
  int allocate(std::uint64_t extents);
  /// Zero or an errno, both.
  int reserve_space(std::uint64_t offset, std::uint64_t size) const;
  int set_size(std::uint64_t size) const;
  bool refuse(int error);
  std::string closed_by_program() const;

  SpillDirectory directory_;
  Bytes extent_size_;
  std::shared_ptr<OwnDescriptors> descriptors_;
  UnlinkedFile file_;
  FileIdentity identity_;
  void* mapped_ = nullptr;      // a page of it
  bool reserves_space_ = true;  // until the system refuses
  std::string why_unreserved_;

  mutable std::mutex mutex_;
  std::vector<ExtentId> free_;
  std::uint64_t step_;   // in extents
  std::uint64_t limit_;  // in extents
  std::uint64_t allocated_ = 0;
  std::uint64_t touched_ = 0;  // extents below have been given out at least once
  std::uint64_t in_use_ = 0;
  std::uint64_t most_in_use_ = 0;
  std::string refusal_;
};

}  // namespace spillway::swap
