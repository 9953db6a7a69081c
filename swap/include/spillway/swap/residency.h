#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/device/event.h"
#include "spillway/swap/storage_range.h"

namespace spillway::swap {

class SwapEngine;

/// Who uses the pages that a PinSet holds.
enum class Hold : std::uint8_t {
  kOperator,    ///< Instructions: pages that leave in spite of it come back when they are touched.
  kSystemCall,  ///< A call that is tried again where a page has left; none may be guarded.
  kKernel,      ///< The kernel, or a device on its behalf: the pages must not leave.
  kUntilFreed,  ///< A device, for as long as the storages live: nobody may wait for that.
};

/// The pages that one running operator, or one system call, holds resident. Released by
/// `SwapEngine::unpin`, or when it dies. One thread.
class PinSet {
 public:
  explicit PinSet(Hold hold = Hold::kOperator) : hold_(hold) {}
  PinSet(const PinSet&) = delete;
  PinSet& operator=(const PinSet&) = delete;
  ~PinSet();

 private:
  friend class SwapEngine;
  struct Pin {
    StorageId storage;
    std::uint32_t first;
    std::uint32_t count;  ///< 0: the whole range.
  };
  Hold hold_;
  SwapEngine* engine_ = nullptr;
  std::vector<Pin> pins_;
};

/// Per use of an operator: pages that it had to wait for. Empty: none.
using MissingPages = std::vector<std::uint32_t>;

/// Counts operators; a moment in the future is a predicted next use.
using OpClock = std::uint64_t;
inline constexpr OpClock kNeverUsed = static_cast<OpClock>(-1);   ///< Dies without another use.
inline constexpr OpClock kUnknownUse = static_cast<OpClock>(-2);  ///< No prediction.

/// Whether a fetched page keeps its copy in the store. Kept, it is write-protected when it arrives
/// and, as long as nobody writes to it, evicted without a write. Dropped, it arrives writable,
/// which saves the interruption of all cores that protects it.
enum class OnFetch : std::uint8_t { kKeepStoreCopy, kDropStoreCopy };

/// What a plan wants done at one moment. The caller clears it and uses it again.
struct ResidencyOrders {
  struct NextUse {
    RangePart part;
    OpClock at = kUnknownUse;
  };
  struct WriteOut {
    RangePart part;
    std::uint32_t pages = 0;
    /// So many of them, the first ones, go past the host memory of the store, and the others stay
    /// in it while it has room; none: the store decides.
    std::optional<std::uint32_t> far_pages = {};
  };
  struct Fetch {
    RangePart part;
    OnFetch copy = OnFetch::kKeepStoreCopy;
  };

  /// The operator clock that next uses are compared with, from now on.
  OpClock now = 0;
  std::vector<NextUse> next_uses;
  /// Start writing until the last `pages` pages of the part are out, those that are out already
  /// counted; they leave when written, unless they were touched again.
  std::vector<WriteOut> write_outs;
  /// Pages that fetches leave free from now on; none: as before. What an operator allocates within
  /// its pins is taken from these.
  std::optional<std::uint32_t> reserve_pages;
  /// Bring missing pages in as soon as the reserve stays free, in this order; no more once the
  /// clock reaches their next use as it is set now, whose operator pins them itself. Pages that are
  /// still on their way out stay.
  std::vector<Fetch> fetches;

  void clear() {
    next_uses.clear();
    write_outs.clear();
    reserve_pages.reset();
    fetches.clear();
  }
};

/// Memory for storages that may leave it: where they lie, and who holds them there.
class StorageMemory {
 public:
  virtual ~StorageMemory() = default;

  struct Allocation {
    std::byte* address = nullptr;
    StorageId storage;
  };
  /// Resident memory of `size` bytes, uninitialised, page-aligned. Evicts and waits as needed. With
  /// `within`, the range stays pinned until that set is released. Throws NoRoomError, or StoreError
  /// when nothing can be spilled any more (disk full or broken); no data is lost then.
  virtual Allocation allocate(Bytes size, PinSet* within) = 0;

  /// The same for memory that is not filled at once. What does not fit now gets its frames page by
  /// page at the first touch, so that the storage may exceed the budget. Never waits. With
  /// `within`, it stays pinned as by `allocate`; where it is large, that is one to be paged
  /// through. On a device that reports no touches, each page gets its frame when it is pinned.
  virtual Allocation allocate_unfilled(Bytes size, PinSet* within = nullptr) = 0;

  /// The same by memory of storages that have ended and that a device still uses: it needs no wait
  /// and moves nothing. `so_far`: what the caller's line of work (`EventState::line`) was given, in
  /// which all those uses stand, and behind which the device uses the new storage. Whoever lets go
  /// of `within`, or releases the storage, tells a moment that is not earlier. Nothing where there
  /// is no such memory, or none of that size while frames are left.
  virtual std::optional<Allocation> reuse(Bytes size, PinSet& within,
                                          const device::Event& so_far) = 0;

  /// Ends a storage. Never waits. `until`: as of `unpin`, for work that no set has held it for.
  virtual void release(StorageId storage, const device::Event& until = {}) = 0;

  /// Makes `uses` resident and holds them so; written ones become dirty. Only their own pages: the
  /// others of a range may leave meanwhile. Waits for reads. Throws as `allocate`, and
  /// UnreadableError and RecomputeError for what does not come back, with nothing pinned. Where
  /// operators of several threads stand in each other's way, or nothing moves any more, pages of
  /// those that wait leave and come back when they are touched. `missing` is filled where there is
  /// something to wait for.
  /// `orders`, if any, are followed first, without another call.
  virtual void pin(PinSet& set, std::span<const RangeUse> uses, MissingPages* missing = nullptr,
                   const ResidencyOrders* orders = nullptr) = 0;
  /// Releases the set, and then follows `orders`, if any. Where a device still works on the pages,
  /// `until` is the moment when it has done so: until then they stay, released storages included.
  /// What the device says of its work (`Event::wait`) is for the caller to look at: bytes that it
  /// could not compute are kept like others.
  virtual void unpin(PinSet& set, const ResidencyOrders* orders = nullptr,
                     const device::Event& until = {}) = 0;

  /// Gives memory back to the device, for an allocator that is not ours: that of frames at rest,
  /// and then of pages, which leave for it. Waits for their transfers, and for uses that end late.
  /// Returns how much it was, in whole pages; less than `wanted` where operators hold the rest or
  /// the store takes no more. The budget stays, so the engine may take as much again.
  virtual Bytes make_room(Bytes wanted) = 0;

  /// Bytes of a page, the unit of all that this counts in pages.
  virtual Bytes page_size() const noexcept = 0;
  /// The storage that `address` lies in with its pages, or none. Lock-free.
  virtual RangeUse find(const void* address) const noexcept = 0;
  /// Where a storage lies.
  virtual std::byte* address_of(StorageId storage) const = 0;
};

/// Residency as plans see it.
class ResidencyAdvice {
 public:
  virtual ~ResidencyAdvice() = default;

  /// Pages that paged storages may take now: the budget less what small blocks were granted. Any
  /// thread, no lock.
  virtual std::uint32_t storage_pages() const noexcept = 0;

  /// Follows a plan. What names a storage that has ended meanwhile is left out. Any thread.
  virtual void apply(const ResidencyOrders& orders) = 0;
};

/// Storages whose bytes are nowhere, because somebody is going to compute them again.
class DroppedStorages {
 public:
  virtual ~DroppedStorages() = default;

  /// Gives up the bytes of a storage: somebody is going to compute them again. Its address stays,
  /// and whoever touches or pins it waits until `adopt`. Where a device still uses it, its pages
  /// leave when that has ended. False, and nothing has changed, where something holds or moves its
  /// pages, or a fault has ever touched them. Children of an earlier fork keep what they could
  /// read.
  virtual bool drop(StorageId storage) = 0;

  /// Ends a drop: the dropped storage gets the pages of another one of equal size, whose bytes are
  /// the right ones. Each page changes its address at once, so nobody sees it half done. `within`
  /// holds `from`, whose contents are undefined after that. Where the memory lets frames move that
  /// a device is still computing into, nobody waits, and `within` holds `dropped`, too; elsewhere
  /// that ends first. False when nobody holds it, or somebody
  /// in need took pages of it all the same: pin it and try again. What the kernel does not let move
  /// is copied, which takes room: waits and throws as `allocate`, and may be tried again then.
  virtual bool adopt(StorageId dropped, StorageId from, PinSet& within) = 0;

  /// That storage cannot be recomputed: operators that wait for it get RecomputeError; a thread
  /// that touches it cannot be told, so the process ends.
  virtual void give_up(StorageId dropped, const std::string& reason) = 0;

  /// A storage that somebody waits for, as soon as there is one: a dropped one, or a guarded one
  /// that is to be written; none after `end_drops`. For the one thread that computes them again.
  virtual StorageId wait_for_wanted() = 0;

  /// Ends all guards, too.
  virtual void end_drops() = 0;
};

/// Storages that somebody has to be asked about before they are written past the operators.
class WriteGuards {
 public:
  virtual ~WriteGuards() = default;

  /// Sees to it that the next write past the operators is known before it happens: whoever tries it
  /// waits for `unguard`. Announced writes (`pin`) end that, too. Copies of the pages stay good.
  /// False, and nothing has changed, while a system call holds the storage, and after `end_drops`.
  /// Where the memory of the device reports no writes, whoever may write so holds the storage until
  /// it is freed: false for those, and nothing is to be waited for with the others.
  virtual bool guard(StorageId storage) = 0;
  /// Whether somebody waits to write to a guarded storage.
  virtual bool is_write_awaited(StorageId storage) const = 0;
  virtual void unguard(StorageId storage) = 0;
};

/// What fork(2) asks of whoever keeps memory. In this order; the second or the third follows the
/// first, in the parent and in the child.
class ForkHooks {
 public:
  virtual ~ForkHooks() = default;

  /// Takes the lock that both others release.
  virtual void before_fork() = 0;
  virtual void after_fork_in_parent() = 0;
  /// Turns the child's copy off: pages that were out read as they were at the fork, until all its
  /// descendants are gone.
  virtual void after_fork_in_child() = 0;
};

}  // namespace spillway::swap
