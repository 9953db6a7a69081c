#include "spillway/device/direct_files.h"

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::device {

namespace {

constexpr std::uint64_t kFileBlock = 4096;

}  // namespace

Outcome DirectFile::move(Way way, DeviceSpan memory, std::uint64_t offset) {
  SPILLWAY_ASSERT(offset % kFileBlock == 0 && memory.size.count() % kFileBlock == 0 &&
                  reinterpret_cast<std::uintptr_t>(memory.data) % kFileBlock == 0);
  for (Bytes done; done < memory.size;) {
    Moved moved = do_move(way, memory.part(done, memory.size - done), offset + done.count());
    if (!moved.error.empty()) return {std::move(moved.error)};
    // What has come of a block comes again: direct I/O takes no other start.
    const Bytes whole(moved.bytes / kFileBlock * kFileBlock);
    if (whole == Bytes())
      return {message("{} of {} bytes were moved, and no more", (done + Bytes(moved.bytes)).count(),
                      memory.size.count())};
    done += whole;
  }
  return {};
}

DirectFileIo* direct_file_io(Device& device) { return dynamic_cast<DirectFileIo*>(&device); }

}  // namespace spillway::device
