#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/swap/spill_store.h"
#include "spillway/swap/storage_range.h"
#include "spillway/swap/swap_errors.h"

namespace spillway::swap {

/// Counts operators; a moment in the future is a predicted next use.
using OpClock = std::uint64_t;
inline constexpr OpClock kNeverUsed = static_cast<OpClock>(-1);   ///< Dies without another use.
inline constexpr OpClock kUnknownUse = static_cast<OpClock>(-2);  ///< No prediction.

/// What becomes of the copies of fetched pages: kept, pages that leave unchanged write nothing;
/// dropped, a page needs no closing when it arrives, which interrupts all cores.
enum class Copy : std::uint8_t { kKeep, kDrop };

/// Who uses the pages that a PinSet holds.
enum class Hold : std::uint8_t {
  kOperator,    ///< Instructions: pages that leave in spite of it come back when they are touched.
  kSystemCall,  ///< A call that is tried again where a page has left; none may be guarded.
  kKernel,      ///< The kernel, or a device on its behalf: the pages must not leave.
};

class TransferObserver;

struct SwapEngineOptions {
  Bytes budget;                              ///< Of resident tensor bytes, small ones included.
  Bytes arena_size{std::uint64_t{1} << 40};  ///< Address space for paged storages.
  /// When nothing has moved for so long, whoever waits for room takes what running operators hold:
  /// one of them may be waiting for the very thread that waits.
  Duration patience = std::chrono::seconds(10);
  /// When nothing could leave for so long for a page that a thread touches, as no store takes more
  /// or the kernel uses all frames, the process ends: that thread cannot be told of an error.
  Duration fault_patience = std::chrono::seconds(60);
  std::vector<TransferObserver*> observers;  ///< Outlive the engine.
};

/// Everything the engine counted since it started. Times add up over threads.
struct SwapStatistics {
  Bytes counted;  ///< Resident now: frames and small blocks.
  Bytes counted_peak;
  Bytes live;  ///< Bytes of live storages wherever they are, in whole pages.
  Bytes live_peak;
  Bytes small_peak;
  Bytes spilled;             ///< Written to the store.
  Bytes fetched;             ///< Read from the store.
  Bytes left_clean;          ///< Left without a write, because the store had the bytes.
  Bytes dropped;             ///< Left without a copy, to be computed again.
  std::uint64_t faults = 0;  ///< Accesses that bypassed the operators; waits for a page count once.
  Duration fetch_wait{0};    ///< Operators waiting for their inputs.
  Duration room_wait{0};     ///< Operators waiting for room for their outputs.
  Duration fault_wait{0};    ///< Faults, from their first report until the access was allowed.
  std::uint64_t cancelled_writes = 0;
  StoreReport store;
};

class SwapEngine;

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

/// Keeps large storages at fixed addresses while their pages move between memory and a spill store
/// under a hard budget. Threads of the trainer allocate, pin and release; one I/O thread transfers;
/// the mapper's fault thread reports accesses that nobody announced. See swap/README.md for the
/// states of a page.
class SwapEngine {
 public:
  SwapEngine(const SwapEngineOptions& options, std::unique_ptr<memory::FrameMapper> mapper,
             std::unique_ptr<SpillStore> store, const Clock& clock);
  /// Waits for transfers in flight. Ranges that are still live lose their memory.
  ~SwapEngine();
  SwapEngine(const SwapEngine&) = delete;
  SwapEngine& operator=(const SwapEngine&) = delete;

  struct Allocation {
    std::byte* address = nullptr;
    StorageId storage;
  };
  /// Resident memory of `size` bytes, uninitialised, page-aligned. Evicts and waits as needed. With
  /// `within`, the range stays pinned until that set is released. Throws NoRoomError, or StoreError
  /// when nothing can be spilled any more (disk full or broken); no data is lost then.
  Allocation allocate(Bytes size, PinSet* within);

  /// The same for memory that is not filled at once. What does not fit now gets its frames page by
  /// page at the first touch, so that the range may exceed the budget. Never waits. With `within`,
  /// the range stays pinned as by `allocate`; where it is large, that is one to be paged through.
  Allocation allocate_unfilled(Bytes size, PinSet* within = nullptr);

  /// Ends a range. Never waits.
  void release(StorageId range);

  /// The range that `address` lies in with its pages, or none. Lock-free.
  RangeUse find(const void* address) const noexcept;
  /// The same with the pages that `size` bytes from `address` on lie in. None if `size` is 0.
  RangeUse find(const void* address, Bytes size) const noexcept;

  /// Whether anything ever had to leave. While false, pinning is needless and skipped by callers.
  bool is_under_pressure() const noexcept;

  /// Makes `uses` resident and holds them so; written ones become dirty. Only their own pages: the
  /// others of a range may leave meanwhile. Waits for reads. Throws as `allocate`, and
  /// UnreadableError and RecomputeError for what does not come back, with nothing pinned. Where
  /// operators of several threads stand in each other's way, or nothing moves any more, pages of
  /// those that wait leave and come back when they are touched. `missing` is filled where there is
  /// something to wait for.
  void pin(PinSet& set, std::span<const RangeUse> uses, MissingPages* missing = nullptr);
  void unpin(PinSet& set);
  /// Lets pages that `set` holds, or will hold, leave where there is no other room, until it is
  /// released; they come back when they are touched. For an operator that needs more than the
  /// budget: right, but slow. Without it, that is refused by NoRoomError.
  void page_through(PinSet& set);

  /// Accounts a heap block that is too small to be paged; makes room for it. Throws as `allocate`.
  void account_small(Bytes size, PinSet* within);
  void release_small(Bytes size) noexcept;

  /// Moves the operator clock that next uses are compared with.
  void advance(OpClock now);
  void set_next_use(const RangePart& part, OpClock at);
  /// Starts writing until the last `pages` pages of the part are out, those that are out already
  /// counted; they leave when written, unless they were touched again.
  void write_out(const RangePart& part, std::uint32_t pages);
  /// Pages that paged storages may take now: the budget less what small blocks were granted.
  std::uint32_t storage_pages() const noexcept;
  /// Brings missing pages in as soon as the reserve stays free, in the order of the calls; no more
  /// once `advance` reaches their next use as it is set now, whose operator pins them itself.
  /// Pages that are still on their way out stay.
  void fetch(const RangePart& part, Copy copy = Copy::kKeep);
  /// What an operator allocates within its pins is taken from the reserve, until it is set anew.
  void set_fetch_reserve(std::uint32_t pages);

  /// Gives up the bytes of a range: somebody is going to compute them again. Its address stays, and
  /// whoever touches or pins it waits until `adopt`. False, and nothing has changed, where
  /// something holds or moves its pages, or a fault has ever touched them. Children of an earlier
  /// fork keep what they could read.
  bool drop(StorageId range);
  bool is_dropped(StorageId range) const;
  /// Where a range lies.
  std::byte* address_of(StorageId range) const;
  /// Ends a drop: the dropped range gets the pages of another one of equal size, whose bytes are
  /// the right ones. Each page changes its address at once, so nobody sees it half done. `within`
  /// holds `from`, whose contents are undefined after that. False when nobody holds it, or somebody
  /// in need took pages of it all the same: pin it and try again. What the kernel does not let move
  /// is copied, which takes room: waits and throws as `allocate`, and may be tried again then.
  bool adopt(StorageId dropped, StorageId from, const PinSet& within);
  /// Sees to it that the next write past the operators is known before it happens: whoever tries it
  /// waits for `unguard`. Announced writes (`pin`) end that, too. Copies of the pages stay good.
  /// False, and nothing has changed, while a system call holds the range or after `end_drops`.
  bool guard(StorageId range);
  /// Whether somebody waits to write to a guarded range.
  bool is_write_awaited(StorageId range) const;
  void unguard(StorageId range);

  /// A range that somebody waits for, as soon as there is one: a dropped one, or a guarded one that
  /// is to be written; none after `end_drops`. For the one thread that computes them again.
  StorageId wait_for_wanted();
  /// That range cannot be computed again: operators that wait for it get RecomputeError;
  /// a thread that touches it cannot be told, so the process ends.
  void give_up(StorageId dropped, const std::string& reason);
  /// Ends all guards, too.
  void end_drops();

  SwapStatistics statistics() const;
  /// What calls of this thread have waited so far for pages to come or to leave, in any engine.
  static Duration waited_by_this_thread();
  /// Tensor bytes in memory now: frames that hold something, and small blocks.
  Bytes resident() const;
  /// The most of them at once since the last call of this.
  Bytes take_peak();

  /// Around fork(2): takes the engine's lock, releases it in both, and turns the engine off in the
  /// child, where spilled pages read as they were at the fork, until all its descendants are gone.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::swap
