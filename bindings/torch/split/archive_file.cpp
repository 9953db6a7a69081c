#include "archive_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/own_descriptors.h"
#include "staged_bytes.h"

namespace spillway::split {
namespace {

/// Of a zip archive: its last bytes, what may lie before them and say where the end for larger
/// archives begins, that, and an entry of its directory without the name (APPNOTE.TXT, 4.3).
constexpr std::size_t kEnd = 22, kLocator = 20, kFarEnd = 56, kEntry = 46;
constexpr std::uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50;

/// Which archives keep with the lowest byte first, as the hosts of LibTorch do.
template <class Number>
Number number(const std::byte* from) {
  Number value;
  std::memcpy(&value, from, sizeof(value));
  return value;
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
  std::vector<std::byte> end(std::min<std::uint64_t>(size, kEnd + kLocator));
  read(size - end.size(), end.data(), end.size());
  if (end.size() < kEnd + kLocator) return end;
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
  if (number<std::uint32_t>(last) != kEndMark || from > size || bytes > size - from) return end;
  std::vector<std::byte> directory(bytes);
  read(from, directory.data(), directory.size());
  return directory;
}

std::uint64_t ArchiveFile::digest() const {
  if (digest_) return *digest_;
  const std::vector<std::byte> all = directory();
  std::uint64_t digest = 0;
  for (std::size_t at = 0; at + kEntry <= all.size();) {
    const std::byte* const entry = all.data() + at;
    // Checksum and size. The names begin with that of the archive, which ranks may call
    // differently.
    digest = XXH3_64bits_withSeed(entry + 16, 12, digest);
    at += kEntry + number<std::uint16_t>(entry + 28) + number<std::uint16_t>(entry + 30) +
          number<std::uint16_t>(entry + 32);
  }
  digest_ = digest;
  return digest;
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
