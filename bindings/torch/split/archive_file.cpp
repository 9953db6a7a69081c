#include "archive_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/mix.h"
#include "spillway/base/own_descriptors.h"
#include "staged_bytes.h"

namespace spillway::split {
namespace {

/// Of a zip archive: its last bytes, what may lie before them and say where the end for larger
/// archives begins, that, and an entry of its directory without the name (APPNOTE.TXT, 4.3).
constexpr std::size_t kEnd = 22, kLocator = 20, kFarEnd = 56, kEntry = 46;
constexpr std::uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50;
constexpr std::uint32_t kFarAway = 0xffffffff;  ///< A field for larger archives has the number.

/// Which archives keep with the lowest byte first, as the hosts of LibTorch do.
template <class Number>
Number number(const std::byte* from) {
  Number value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Where a record begins whose entry says kFarAway: among `fields` behind the entry one has the
/// numbers that have no room in it, both sizes first.
std::uint64_t begin_of_far(const std::byte* entry, std::span<const std::byte> fields) {
  constexpr std::size_t kHead = 4;
  constexpr std::uint16_t kFar = 1;
  std::size_t at = kHead;
  for (const std::size_t of_size : {20, 24})
    if (number<std::uint32_t>(entry + of_size) == kFarAway) at += sizeof(std::uint64_t);
  while (fields.size() >= kHead) {
    const std::size_t size = number<std::uint16_t>(fields.data() + 2);
    if (size > fields.size() - kHead) break;
    if (number<std::uint16_t>(fields.data()) == kFar && at + sizeof(std::uint64_t) <= kHead + size)
      return number<std::uint64_t>(fields.data() + at);
    fields = fields.subspan(kHead + size);
  }
  return kFarAway;
}

/// Those of which tensors were loaded that are still to be read.
struct Loaded {
  std::mutex mutex;
  std::multiset<std::pair<dev_t, ino_t>> files;
  std::weak_ptr<const ArchiveFile> latest;
};

Loaded& loaded() {
  static auto* made = new Loaded;
  return *made;
}

std::string path_of(int descriptor) {
  std::array<char, PATH_MAX> path{};
  const std::string link = message("/proc/self/fd/{}", descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "an archive";
}

bool can_be_mapped(int descriptor) {
  void* const page = ::mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (page == MAP_FAILED) return false;
  ::munmap(page, 1);
  return true;
}

}  // namespace

ArchiveFile::ArchiveFile(int descriptor, const struct stat& facts)
    : descriptor_(descriptor),
      device_(facts.st_dev),
      inode_(facts.st_ino),
      size_(facts.st_size),
      changed_(facts.st_mtim),
      path_(path_of(descriptor)) {}

ArchiveFile::~ArchiveFile() {
  {
    Loaded& all = loaded();
    const std::lock_guard lock(all.mutex);
    all.files.erase(all.files.find({device_, inode_}));
  }
  // The number may be another file's by now, where the program has closed all that it could.
  if (identity_of(descriptor_) == FileIdentity{device_, inode_}) ::close(descriptor_);
}

std::shared_ptr<const ArchiveFile> ArchiveFile::of(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) return nullptr;
  Loaded& all = loaded();
  std::shared_ptr<const ArchiveFile> latest;  // May end here, after the lock.
  const std::lock_guard lock(all.mutex);
  latest = all.latest.lock();
  if (latest != nullptr && latest->is(facts)) return latest;
  if (!can_be_mapped(descriptor)) return nullptr;
  const int kept = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  if (kept < 0) return nullptr;
  const std::shared_ptr<const ArchiveFile> made(new ArchiveFile(moved_up(kept), facts));
  all.files.insert({facts.st_dev, facts.st_ino});
  all.latest = made;
  return made;
}

bool ArchiveFile::was_loaded(dev_t device, ino_t inode) noexcept {
  Loaded& all = loaded();
  const std::lock_guard lock(all.mutex);
  return all.files.contains({device, inode});
}

bool ArchiveFile::is(const struct stat& facts) const noexcept {
  return facts.st_dev == device_ && facts.st_ino == inode_ && facts.st_size == size_ &&
         facts.st_mtim.tv_sec == changed_.tv_sec && facts.st_mtim.tv_nsec == changed_.tv_nsec;
}

std::string ArchiveFile::change() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) == 0 && is(facts)) return {};
  if (facts.st_dev != device_ || facts.st_ino != inode_)
    return message("{} is not open any more, and the program has loaded tensors from it whose "
                   "bytes were still to be read: close no files that you have not opened",
                   path_);
  return message("{} has changed, and the program has loaded tensors from it whose bytes were "
                 "still to be read: write a new file, and rename it to this one",
                 path_);
}

void ArchiveFile::read(std::uint64_t from, std::byte* memory, std::size_t size) const {
  while (size > 0) {
    const ssize_t read = ::pread(descriptor_, memory, size, static_cast<off_t>(from));
    if (read < 0 && errno == EINTR) continue;
    const int error = errno;
    const std::string changed = change();
    if (!changed.empty()) throw IoError("{}", changed);
    if (read <= 0)
      throw IoError("{} bytes at {} of {} cannot be read, which the program has loaded: {}", size,
                    from, path_, read < 0 ? std::strerror(error) : "the file ends before");
    from += static_cast<std::uint64_t>(read);
    memory += read;
    size -= static_cast<std::size_t>(read);
  }
}

std::vector<std::byte> ArchiveFile::directory() const {
  const auto size = static_cast<std::uint64_t>(size_);
  std::vector<std::byte> end(kLocator + kEnd);
  if (size < end.size()) return {};
  read(size - end.size(), end.data(), end.size());
  const std::byte* const last = end.data() + kLocator;
  std::uint64_t bytes = number<std::uint32_t>(last + 12);
  std::uint64_t from = number<std::uint32_t>(last + 16);
  const auto far = number<std::uint64_t>(end.data() + 8);
  if (number<std::uint32_t>(end.data()) == kLocatorMark && far <= size && size - far >= kFarEnd) {
    std::vector<std::byte> far_end(kFarEnd);
    read(far, far_end.data(), far_end.size());
    bytes = number<std::uint64_t>(far_end.data() + 40);
    from = number<std::uint64_t>(far_end.data() + 48);
  }
  if (number<std::uint32_t>(last) != kEndMark || from > size || bytes > size - from) return {};
  std::vector<std::byte> directory(bytes);
  read(from, directory.data(), directory.size());
  return directory;
}

std::map<std::uint64_t, std::uint32_t> ArchiveFile::checksums() const {
  const std::vector<std::byte> all = directory();
  std::map<std::uint64_t, std::uint32_t> found;
  for (std::size_t at = 0; at + kEntry <= all.size();) {
    const std::byte* const entry = all.data() + at;
    const std::size_t more = number<std::uint16_t>(entry + 30);
    const std::size_t behind = at + kEntry + number<std::uint16_t>(entry + 28);
    at = behind + more + number<std::uint16_t>(entry + 32);
    if (at > all.size()) break;
    std::uint64_t begin = number<std::uint32_t>(entry + 42);
    if (begin == kFarAway) begin = begin_of_far(entry, {all.data() + behind, more});
    found.emplace(begin, number<std::uint32_t>(entry + 16));
  }
  return found;
}

std::uint64_t ArchiveFile::checksum_of(std::uint64_t from) const {
  const std::lock_guard lock(mutex_);
  if (!checksums_) checksums_ = checksums();
  const auto behind = checksums_->upper_bound(from);
  return behind == checksums_->begin() ? 0 : mix(1, std::prev(behind)->second);
}

bool ArchiveFile::map(std::uint64_t from, std::byte* memory, std::size_t size) const noexcept {
  return ::mmap(memory, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor_,
                static_cast<off_t>(from)) != MAP_FAILED;
}

void FileRange::read_to(runtime::Runtime& runtime, void* memory) const {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  for (std::size_t done = 0; done < size; done += kPiece) {
    StagedBytes piece(Bytes(std::min(kPiece, size - done)));
    const device::DeviceSpan bytes = piece.span();
    file->read(from + done, static_cast<std::byte*>(bytes.data), bytes.size.count());
    piece.copy_to(runtime, static_cast<std::byte*>(memory) + done);
  }
}

}  // namespace spillway::split
