#include "store/extent_place.h"

#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "store/whole_transfer.h"

namespace spillway::swap {
namespace {

// What fails once may pass: a path that comes back, a bit that flipped on the way.
constexpr int kAttempts = 3;

int read_once(const ExtentPlace& place, std::byte* memory, std::size_t size) {
  if (place.memory != nullptr) {
    std::memcpy(memory, place.memory, size);
  } else {
    if (!is_file_open(place)) return EBADF;
    const int error = move_whole(Direction::kRead, size, [&](std::size_t done) -> ssize_t {
      const auto offset = static_cast<off_t>(place.offset + done);
      const ssize_t moved = ::pread(place.file, memory + done, size - done, offset);
      return moved < 0 ? -errno : moved;
    });
    if (error != 0) return error;
  }
  if (!place.has_checksum) return 0;
  if (place.checked_size != size) return EINVAL;
  return XXH3_64bits(memory, size) == place.checksum ? 0 : EBADMSG;
}

}  // namespace

bool is_file_open(const ExtentPlace& place) {
  return place.file >= 0 && identity_of(place.file) == FileIdentity{place.device, place.inode};
}

int read_extent(const ExtentPlace& place, std::byte* memory, std::size_t size) {
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    error = read_once(place, memory, size);
    if (error == 0 || error == EBADF || error == EINVAL) break;
  }
  return error;
}

}  // namespace spillway::swap
