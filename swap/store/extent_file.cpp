#include "store/extent_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::swap {
namespace {

Bytes free_bytes(int fd) {
  struct statvfs system {};
  if (::fstatvfs(fd, &system) != 0) return Bytes();
  return Bytes(std::uint64_t{system.f_bavail} * std::uint64_t{system.f_frsize});
}

// Growing past the limit of `ulimit -f` would raise SIGXFSZ, which ends the process.
std::uint64_t largest_file_allowed() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  return limit.rlim_cur;
}

std::uint64_t extents_in(Bytes size) { return size.count() / kExtentBytes; }

}  // namespace

ExtentFile::ExtentFile(SpillDirectory directory, Bytes growth_step)
    : directory_(std::move(directory)),
      file_(open_unlinked_file(directory_.path)),
      step_(std::max<std::uint64_t>(extents_in(growth_step), 1)),
      limit_(directory_.limit == Bytes() ? ExtentId::kNone : extents_in(directory_.limit)) {
  if (limit_ == 0)
    throw IoError("No space left in {} (its limit of {} holds no extent of {})", directory_.path,
                  directory_.limit, Bytes(kExtentBytes));
  struct stat facts {};
  if (::fstat(fd(), &facts) == 0) {
    device_ = facts.st_dev;
    inode_ = facts.st_ino;
  }
  const int error = allocate(1);
  if (error != 0) {
    refuse(error);
    throw IoError(refusal_);
  }
}

std::optional<ExtentId> ExtentFile::reserve() {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && touched_ == allocated_ && !grow()) return std::nullopt;
  ExtentId extent;
  if (free_.empty()) {
    extent = ExtentId(static_cast<std::uint32_t>(touched_++));
  } else {
    extent = free_.back();
    free_.pop_back();
  }
  most_in_use_ = std::max(most_in_use_, ++in_use_);
  refusal_.clear();
  return extent;
}

void ExtentFile::release(ExtentId extent) {
  const std::lock_guard lock(mutex_);
  SPILLWAY_ASSERT(extent.value() < touched_ && in_use_ > 0);
  free_.push_back(extent);
  --in_use_;
}

ExtentPlace ExtentFile::locate(ExtentId extent) const {
  ExtentPlace place;
  place.file = fd();
  place.offset = offset_of(extent);
  place.device = device_;
  place.inode = inode_;
  return place;
}

bool ExtentFile::grow() {
  int error = 0;
  while (allocated_ < limit_) {
    error = allocate(std::min(step_, limit_ - allocated_));
    if (error == 0) return true;
    const bool may_fit_less = error == ENOSPC || error == EDQUOT || error == EFBIG;
    if (!may_fit_less || step_ == 1) break;
    step_ /= 2;
  }
  refuse(error);
  return false;
}

int ExtentFile::allocate(std::uint64_t extents) {
  const std::uint64_t offset = allocated_ * kExtentBytes;
  const std::uint64_t size = extents * kExtentBytes;
  if (offset + size > largest_file_allowed()) return EFBIG;
  int error = reserves_space_ ? reserve_space(offset, size) : 0;
  // A file system without it, or a filter of system calls: the program may have installed one
  // since.
  if (error == EOPNOTSUPP || error == ENOSYS || error == EPERM || error == EACCES) {
    reserves_space_ = false;
    why_unreserved_ = message("fallocate is refused: {}", std::strerror(error));
    error = 0;
  }
  if (error == 0 && !reserves_space_) error = set_size(offset + size);
  if (error == 0) allocated_ += extents;
  return error;
}

int ExtentFile::reserve_space(std::uint64_t offset, std::uint64_t size) const {
  while (::fallocate(fd(), 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

int ExtentFile::set_size(std::uint64_t size) const {
  while (::ftruncate(fd(), static_cast<off_t>(size)) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

void ExtentFile::refuse(int error) {
  const Bytes used = Bytes(in_use_ * kExtentBytes);
  const std::string& path = directory_.path;
  switch (error) {
    case 0:
      refusal_ =
          message("No space left in {} (the limit of {} is used up)", path, directory_.limit);
      return;
    case ENOSPC:
      refusal_ = message("No space left in {} (disk full: {} spilled here, {} free)", path, used,
                         free_bytes(fd()));
      return;
    case EDQUOT:
      refusal_ =
          message("No space left in {} (disk quota exceeded with {} spilled here)", path, used);
      return;
    case EFBIG:
      refusal_ =
          message("No space left in {} (largest file allowed reached with {}; see ulimit -f)", path,
                  Bytes(allocated_ * kExtentBytes));
      return;
    default: refusal_ = message("cannot take space in {}: {}", path, std::strerror(error));
  }
}

void ExtentFile::add_to(StoreReport& report) const {
  const Bytes free = free_bytes(fd());
  const std::lock_guard lock(mutex_);
  const std::uint64_t reachable = allocated_ + extents_in(free);
  report.extents_in_use = Bytes(in_use_ * kExtentBytes);
  report.extents_peak = Bytes(most_in_use_ * kExtentBytes);
  report.capacity = Bytes(std::min(reachable, limit_) * kExtentBytes);
  report.refusal = refusal_;
}

std::string ExtentFile::describe(const Transfer& transfer, int error) const {
  return message("{} extent {} of {}: {}{}",
                 transfer.direction == Direction::kWrite ? "writing" : "reading", transfer.extent,
                 directory_.path, std::strerror(error),
                 error == EFBIG ? " (the program has lowered RLIMIT_FSIZE, ulimit -f)" : "");
}

}  // namespace spillway::swap
