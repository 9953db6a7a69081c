#include "store/extent_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

}  // namespace

ExtentFile::ExtentFile(SpillDirectory directory, std::shared_ptr<OwnDescriptors> descriptors,
                       Bytes growth_step, Bytes extent_size)
    : directory_(std::move(directory)),
      extent_size_(extent_size),
      descriptors_(std::move(descriptors)),
      step_(std::max<std::uint64_t>(growth_step / extent_size, 1)),
      limit_(directory_.limit == Bytes() ? ExtentId::kNone : directory_.limit / extent_size) {
  if (limit_ == 0)
    throw IoError("No space left in {} (its limit of {} holds no extent of {})", directory_.path,
                  directory_.limit, extent_size_);
  descriptors_->run([this] { open(); });
  descriptors_->show_to_children(fd());
}

ExtentFile::~ExtentFile() {
  if (!descriptors_->is_reachable()) {
    static_cast<void>(file_.descriptor.release());
    return;
  }
  descriptors_->hide_from_children(fd());
  descriptors_->run([this] { close(); });
}

/// The program may have closed it in a table that is shared, and use the number.
void ExtentFile::close() {
  if (!is_open()) static_cast<void>(file_.descriptor.release());
  const FileDescriptor closed = std::move(file_.descriptor);
  if (mapped_ != MAP_FAILED) ::munmap(mapped_, kTransferAlignment);
  mapped_ = MAP_FAILED;
}

void ExtentFile::open() {
  file_ = open_unlinked_file(directory_.path);
  identity_ = identity_of(fd());
  // While a page of it is mapped no other file gets its inode, so that files stay told apart. The
  // page is never touched.
  mapped_ = ::mmap(nullptr, kTransferAlignment, PROT_READ, MAP_SHARED, fd(), 0);
  if (mapped_ != MAP_FAILED) ::madvise(mapped_, kTransferAlignment, MADV_DONTFORK);
  const int error = allocate(1);
  if (error != 0) {
    refuse(error);
    close();  // Here, not where the members end: there the number is the program's.
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
  place.file = descriptors_->number_in_child(fd());
  place.offset = offset_of(extent);
  place.device = identity_.device;
  place.inode = identity_.inode;
  return place;
}

bool ExtentFile::grow() {
  bool has_grown = false;
  descriptors_->run([&] { has_grown = is_open() ? grow_file() : refuse(EBADF); });
  return has_grown;
}

bool ExtentFile::grow_file() {
  int error = 0;
  while (allocated_ < limit_) {
    error = allocate(std::min(step_, limit_ - allocated_));
    if (error == 0) return true;
    const bool may_fit_less = error == ENOSPC || error == EDQUOT || error == EFBIG;
    if (!may_fit_less || step_ == 1) break;
    step_ /= 2;
  }
  return refuse(error);
}

int ExtentFile::allocate(std::uint64_t extents) {
  const std::uint64_t offset = extent_size_.count() * allocated_;
  const std::uint64_t size = extent_size_.count() * extents;
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

/// Notes why there is no more; false, for its caller's sake.
bool ExtentFile::refuse(int error) {
  const Bytes used = extent_size_ * in_use_;
  const std::string& path = directory_.path;
  switch (error) {
    case 0:
      refusal_ =
          message("No space left in {} (the limit of {} is used up)", path, directory_.limit);
      return false;
    case ENOSPC:
      refusal_ = message("No space left in {} (disk full: {} spilled here, {} free)", path, used,
                         free_bytes(fd()));
      return false;
    case EDQUOT:
      refusal_ =
          message("No space left in {} (disk quota exceeded with {} spilled here)", path, used);
      return false;
    case EFBIG:
      refusal_ =
          message("No space left in {} (largest file allowed reached with {}; see ulimit -f)", path,
                  extent_size_ * allocated_);
      return false;
    case EBADF:
      refusal_ = message("cannot take space in {}: {}", path, closed_by_program());
      return false;
    default: refusal_ = message("cannot take space in {}: {}", path, std::strerror(error));
  }
  return false;
}

std::string ExtentFile::closed_by_program() const {
  return message(
      "the program has closed or replaced descriptor {}, which is Spillway's, and the kernel gives "
      "Spillway no table of its own: {}; close only what the program has opened",
      fd(), descriptors_->why_shared());
}

void ExtentFile::add_to(StoreReport& report) const {
  Bytes free;
  descriptors_->run([&] { free = is_open() ? free_bytes(fd()) : Bytes(); });
  const std::lock_guard lock(mutex_);
  const std::uint64_t reachable = allocated_ + free / extent_size_;
  report.extents_in_use = extent_size_ * in_use_;
  report.extents_peak = extent_size_ * most_in_use_;
  report.capacity = extent_size_ * std::min(reachable, limit_);
  report.refusal = refusal_;
}

std::string ExtentFile::describe(const Transfer& transfer, int error) const {
  return message("{} extent {} of {}: {}{}",
                 transfer.direction == Direction::kWrite ? "writing" : "reading", transfer.extent,
                 directory_.path,
                 error == EBADF ? closed_by_program() : std::string(std::strerror(error)),
                 error == EFBIG ? " (the program has lowered RLIMIT_FSIZE, ulimit -f)" : "");
}

}  // namespace spillway::swap
