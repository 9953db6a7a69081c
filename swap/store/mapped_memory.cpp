#include "store/mapped_memory.h"

#include <sys/mman.h>

#include "spillway/base/error.h"

namespace spillway::swap {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

memory::AddressSpace reserve(std::size_t size) {
  const std::size_t whole = (size + kHugePage - 1) / kHugePage * kHugePage;
  try {
    return {Bytes(whole), memory::AddressSpace::Opened::kAtOnce, "a store in memory"};
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

void MappedMemory::hide_from_children() {
  // Refused: slower forks, but right.
  ::madvise(space_.begin(), space_.size(), MADV_DONTFORK);
}

}  // namespace spillway::swap
