#include "store/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "spillway/base/error.h"
#include "spillway/swap/spill_store.h"

namespace spillway::swap {

MappedMemory::MappedMemory(std::size_t size) : size_(size) {
  void* mapping = ::mmap(nullptr, size + kExtentBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    throw IoError("cannot reserve {} of address space: {}", Bytes(size), std::strerror(errno));
  mapping_ = static_cast<std::byte*>(mapping);
  const std::size_t excess = reinterpret_cast<std::uintptr_t>(mapping) % kExtentBytes;
  begin_ = mapping_ + (kExtentBytes - excess) % kExtentBytes;
  ::madvise(begin_, size, MADV_HUGEPAGE);  // refused: slower, but right
}

MappedMemory::~MappedMemory() { ::munmap(mapping_, size_ + kExtentBytes); }

}  // namespace spillway::swap
