#include "store/mapped_memory.h"

#include <sys/mman.h>

#include "spillway/base/error.h"
#include "spillway/swap/spill_store.h"

namespace spillway::swap {
namespace {

memory::AddressSpace reserve(std::size_t size) {
  const std::size_t in_extents = (size + kExtentBytes - 1) / kExtentBytes * kExtentBytes;
  try {
    return {Bytes(in_extents), memory::AddressSpace::Opened::kAtOnce, "a store in memory"};
  } catch (const UnsupportedError& refused) {
    throw IoError("{}", refused.what());
  }
}

}  // namespace

MappedMemory::MappedMemory(std::size_t size) : size_(size), space_(reserve(size)) {
  // Refused, both: slower or larger cores, but right.
  ::madvise(space_.begin(), space_.size(), MADV_HUGEPAGE);
  ::madvise(space_.begin(), space_.size(), MADV_DONTDUMP);
}

}  // namespace spillway::swap
