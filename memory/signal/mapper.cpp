#include "signal/mapper.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "raw_calls.h"
#include "sealed_pages.h"
#include "signal/factory.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/memory/kernel_refusal.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace spillway::memory::signal {
namespace {

constexpr int kWritable = PROT_READ | PROT_WRITE;

void require_mappings(MapperKind kind, Bytes pool_size) {
  std::uint64_t allowed = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> allowed)) return;
  const std::string reason = reason_against_pool(kind, pool_size, allowed);
  if (!reason.empty()) throw UnsupportedError("{}", reason);
}

void protect(std::byte* address, std::size_t size, int protection) {
  if (raw_mprotect(address, size, protection) != 0) {
    die_of_refusal("mprotect", address, errno);
  }
}

// Kernels before 5.7 and valgrind do not know DONTUNMAP.
void require_moving_in_place() {
  std::byte* const from = stage_page();
  std::byte* const to = stage_page();
  bool moved = false;
  if (from != nullptr && to != nullptr)
    moved =
        raw_mremap(from, kPageBytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
  const int error = errno;
  for (std::byte* page : {from, to})
    if (page != nullptr) raw_munmap(page, kPageBytes);
  if (!moved)
    throw UnsupportedError(
        "mremap does not move a page and leave its place mapped ({}); needs Linux "
        "5.7 and no valgrind; the mapper \"copy\" does without",
        why_refused(error, kPageSize));
}

// Copies need mremap, or else to write to sealed memory.
void require_placing() {
  std::byte* const page = stage_page();
  std::byte* const staged = stage_page();
  bool is_placed = false;
  if (page != nullptr && staged != nullptr) {
    seal_pages(page, 1);
    is_placed = place_page(page, staged);
  }
  const int error = errno;
  if (page != nullptr) raw_munmap(page, kPageBytes);
  if (!is_placed)
    throw UnsupportedError("a page can neither be moved by mremap nor written through "
                           "/proc/self/mem ({}); in a container allow the system call mremap",
                           why_refused(error, kPageSize));
}

// Without DONTUNMAP the source would be a hole in which another thread's mmap may land.
void move_frame(std::byte* to, std::byte* from) {
  constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  if (raw_mremap(from, kPageBytes, kFlags, to) != to) {
    die_of_refusal("mremap", to, errno);
  }
}

// An empty page is a mapping like the arena around it, and melts into that. What a frame leaves
// behind has the flags of the pool, and on older kernels the offset of where it came from: each
// page that was ever used would count against vm.max_map_count, however few frames there are.
void clear_place(std::byte* page) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (raw_mmap(page, kPageBytes, PROT_NONE, kFlags) == nullptr) die_of_refusal("mmap", page, errno);
}

}  // namespace

// A frame beneath a page is a mapping of its own, and so is the gap beside it. Where frames come
// from the pool and return there, slots do not melt into each other either.
std::uint64_t mappings_per_frame(Movement movement) { return movement == Movement::kRemap ? 3 : 2; }

std::unique_ptr<FrameMapper> make_mapper(Movement movement) {
  return std::make_unique<Mapper>(movement);
}

FrameMapper::Regions Mapper::reserve(Bytes arena_size, Bytes pool_size, AccessSink& sink) {
  SPILLWAY_ASSERT(!handler_.has_value());
  require_mappings(movement_ == Movement::kRemap ? MapperKind::kSignal : MapperKind::kCopy,
                   pool_size);
  if (movement_ == Movement::kRemap) {
    require_moving_in_place();
  } else {
    require_placing();
  }
  arena_ = AddressSpace(arena_size, AddressSpace::Opened::kAsNeeded, "paged storages");
  pool_ = AddressSpace(pool_size, AddressSpace::Opened::kAtOnce, "the frame pool");
  raw_madvise(pool_.begin(), pool_.size(), MADV_HUGEPAGE);
  // Frames at rest hold nothing that a core should show.
  raw_madvise(pool_.begin(), pool_.size(), MADV_DONTDUMP);
  changes_ = PageChanges(arena_.size() / kPageBytes);
  handler_.emplace(arena_.begin(), changes_, sink);
  return {arena_.begin(), pool_.begin()};
}

MoveResult Mapper::map(std::byte* page, std::byte* pool_slot, Access allowed) {
  // The slot that the frame has left counts on.
  arena_.count_writable(kPageBytes);
  if (movement_ == Movement::kCopy) return copy_in(page, pool_slot, allowed);
  // Protected before it moves: the page is never writable.
  if (allowed == Access::kRead) protect(pool_slot, kPageBytes, PROT_READ);
  move_frame(page, pool_slot);
  raw_madvise(page, kPageBytes, MADV_DODUMP);
  if (allowed == Access::kRead) protect(pool_slot, kPageBytes, kWritable);
  note_access(page, 1);
  return MoveResult::kMoved;
}

MoveResult Mapper::unmap(std::byte* pool_slot, std::byte* page) {
  FaultHandler::stay_in_front();
  arena_.count_writable(-static_cast<std::ptrdiff_t>(kPageBytes));
  if (movement_ == Movement::kCopy) return copy_out(pool_slot, page);
  // Closed before it moves: what stays behind traps from the first moment.
  protect(page, kPageBytes, PROT_NONE);
  move_frame(pool_slot, page);
  clear_place(page);
  protect(pool_slot, kPageBytes, kWritable);
  return MoveResult::kMoved;
}

// Filled elsewhere and put in place at once: nobody sees a page that is half there.
MoveResult Mapper::copy_in(std::byte* page, std::byte* pool_slot, Access allowed) {
  std::byte* const staged = stage_page();
  if (staged == nullptr) die_of_refusal("mmap", page, errno);
  std::memcpy(staged, pool_slot, kPageBytes);
  if (!place_page(page, staged, allowed == Access::kRead)) die_of_refusal("mremap", page, errno);
  discard(pool_slot, kPageBytes);
  note_access(page, 1);
  return MoveResult::kMoved;
}

// Readers may go on until the page is empty; writers trap from the first moment.
MoveResult Mapper::copy_out(std::byte* pool_slot, std::byte* page) {
  protect(page, kPageBytes, PROT_READ);
  std::memcpy(pool_slot, page, kPageBytes);
  clear_place(page);
  return MoveResult::kMoved;
}

void Mapper::forbid_writes(std::byte* first, std::size_t pages) {
  FaultHandler::stay_in_front();
  protect(first, pages * kPageBytes, PROT_READ);
}

void Mapper::allow_writes(std::byte* first, std::size_t pages) {
  protect(first, pages * kPageBytes, kWritable);
  note_access(first, pages);
}

// Nobody sleeps here: a trapped thread waits in the sink, and tries again when that returns.
void Mapper::wake(std::byte* /*page*/) {}

void Mapper::note_access(const std::byte* first, std::size_t pages) {
  const auto begin = static_cast<std::size_t>(first - arena_.begin()) / kPageBytes;
  for (std::size_t i = 0; i < pages; ++i) {
    changes_[begin + i].fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace spillway::memory::signal
