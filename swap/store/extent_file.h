#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
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
  explicit ExtentFile(SpillDirectory directory, Bytes growth_step = 1_GiB);

  std::optional<ExtentId> reserve();
  void release(ExtentId extent);

  /// Fills in what the file knows: extents in use, capacity, and the reason of the last refusal.
  void add_to(StoreReport& report) const;

  /// Takes no lock.
  ExtentPlace locate(ExtentId extent) const;

  int fd() const { return file_.descriptor.get(); }
  bool is_direct() const { return file_.is_direct; }
  const std::string& why_buffered() const { return file_.why_buffered; }

  /// Whether growing takes space from the disk at once; if not, a full disk shows as a failed
  /// write.
  bool reserves_space() const { return reserves_space_; }
  const std::string& why_unreserved() const { return why_unreserved_; }
  const std::string& path() const { return directory_.path; }

  static std::uint64_t offset_of(ExtentId extent) {
    return std::uint64_t{extent.value()} * kExtentBytes;
  }

  /// "writing extent 5 of /scratch: Input/output error"
  std::string describe(const Transfer& transfer, int error) const;

 private:
  bool grow();
  int allocate(std::uint64_t extents);
  /// Zero or an errno, both.
  int reserve_space(std::uint64_t offset, std::uint64_t size) const;
  int set_size(std::uint64_t size) const;
  void refuse(int error);

  SpillDirectory directory_;
  UnlinkedFile file_;
  std::uint64_t device_ = 0;  // with inode_: which file the descriptor means
  std::uint64_t inode_ = 0;
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
