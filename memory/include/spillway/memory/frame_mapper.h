#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/named_values.h"
#include "spillway/memory/page_access.h"

namespace spillway::memory {

/// Pages and frames of the host. A frame sits either under a page or in a slot of the frame pool.
inline constexpr Bytes kPageSize{std::uint64_t{2} << 20};
inline constexpr std::size_t kPageBytes = std::size_t{2} << 20;
/// The page that holds `address`, of those from `begin` on.
inline PageIndex page_at(const std::byte* address, const std::byte* begin) {
  return static_cast<PageIndex>(static_cast<std::size_t>(address - begin) / kPageBytes);
}

/// Moves frames between the pool and the pages of the arena, and reports accesses to pages that
/// are empty or write-protected. One instance serves one arena and one pool. Thread-safe, except
/// that calls for the same page must not overlap.
class FrameMapper {
 public:
  virtual ~FrameMapper() = default;

  /// Reserves address space without memory. Pages of `arena` are empty until `map`. Throws
  /// UnsupportedError with the limit that refuses it. Once per mapper. `sink` may be called until
  /// the mapper's destructor returns, and may still use the mapper then.
  struct Regions {
    std::byte* arena = nullptr;
    std::byte* pool = nullptr;
  };
  virtual Regions reserve(Bytes arena_size, Bytes pool_size, AccessSink& sink) = 0;

  /// Has accesses to `pages` pages from `first` reported from now on, and gets whatever else for
  /// them the kernel might refuse later. Before that, an access is no business of the mapper.
  /// Throws UnsupportedError with the limit that refuses it; nothing has changed then. `map`
  /// prepares what was not prepared, and ends the process where that is refused.
  virtual void prepare(std::byte* /*first*/, std::size_t /*pages*/) {}

  /// Moves the frame at `pool_slot` under the empty `page`. With `Access::kRead` the page arrives
  /// write-protected, and no thread asleep on it can write in between; a thread that comes upon
  /// it in the short time between may (the caller treats pages that ever faulted as dirty).
  /// Wakes whoever waits for the page.
  virtual MoveResult map(std::byte* page, std::byte* pool_slot, Access allowed) = 0;

  /// Moves the frame of `page` to the empty `pool_slot`. The page reports accesses from then on.
  virtual MoveResult unmap(std::byte* pool_slot, std::byte* page) = 0;

  /// Write-protects `pages` present pages from `first`: when it returns, a write is reported
  /// before it happens.
  virtual void forbid_writes(std::byte* first, std::size_t pages) = 0;

  /// Makes present pages writable and wakes whoever waits to write them.
  virtual void allow_writes(std::byte* first, std::size_t pages) = 0;

  /// Lets threads that wait for `page` try again; for those that came too late for a `map`.
  virtual void wake(std::byte* page) = 0;
};

/// Destroys the contents of a page for which `unmap` said kBusy: it is empty from then on and its
/// frame is gone (`FramePool::forget_frame`). I/O that still holds the frame ends harmlessly.
void drop_page(std::byte* page);

/// The ways in which pages can be served, best first.
enum class MapperKind {
  kUserfaultfd,      ///< UFFDIO_MOVE; system calls on spilled memory work. Linux 6.8, privilege.
  kUserfaultfdUser,  ///< The same without privilege; system calls on spilled memory get EFAULT.
  kSignal,           ///< mremap and a SIGSEGV handler. Linux 5.7; system calls get EFAULT.
  kCopy,             ///< The same, but copies pages: for odd kernels. Slow.
};

/// Whether a kind works on this machine, found by moving a page, protecting it and faulting on it.
struct MapperProbe {
  MapperKind kind;
  bool is_viable = false;
  std::string reason;  ///< Why not, with the way to mend it; empty when viable.
};

/// Whether system calls find spilled memory; else they end with EFAULT unless it is held resident.
bool serves_system_calls(MapperKind kind);

/// The largest pool that a kind can serve in a process that may have `mappings_max` mappings
/// (vm.max_map_count), in whole pages; none: mappings do not limit it.
std::optional<Bytes> pool_limit(MapperKind kind, std::uint64_t mappings_max);

/// Why a pool of `size` is beyond that limit, with the ways to mend it; empty: it is not.
std::string reason_against_pool(MapperKind kind, Bytes size, std::uint64_t mappings_max);

/// All kinds with their names, best first.
std::span<const Named<MapperKind>> mapper_kinds();

std::string_view name_of(MapperKind kind);           ///< "userfaultfd", "copy", …
MapperKind mapper_kind_from(std::string_view name);  ///< Throws ConfigError with the nearest name.

/// Probes one kind. Leaves no thread and no handler behind. kSignal and kCopy are probed by faults
/// of the calling thread, at which debuggers stop.
MapperProbe probe_mapper(MapperKind kind);

/// Probes all kinds, best first.
std::vector<MapperProbe> probe_mappers();

/// Makes a mapper of that kind. Throws UnsupportedError with the reason that the probe would give.
std::unique_ptr<FrameMapper> make_frame_mapper(MapperKind kind);

}  // namespace spillway::memory
