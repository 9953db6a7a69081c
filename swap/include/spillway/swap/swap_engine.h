#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/memory/page_memory.h"
#include "spillway/swap/host_work.h"
#include "spillway/swap/residency.h"
#include "spillway/swap/spill_store.h"
#include "spillway/swap/storage_range.h"
#include "spillway/swap/swap_errors.h"

namespace spillway::swap {

class TransferObserver;

struct SwapEngineOptions {
  Bytes budget;                              ///< Of resident tensor bytes, small ones included.
  Bytes arena_size{std::uint64_t{1} << 40};  ///< Address space for paged storages.
  std::string arena_reason;  ///< Ends the message that it is used up: what made it so small.
  /// When nothing has moved for so long, whoever waits for room takes what running operators hold:
  /// one of them may be waiting for the very thread that waits.
  Duration patience = std::chrono::seconds(10);
  /// When nothing could leave for so long for a page that a thread touches, as no store takes more
  /// or the kernel uses all frames, the process ends: that thread cannot be told of an error.
  Duration fault_patience = std::chrono::seconds(60);
  std::vector<TransferObserver*> observers;  ///< Outlive the engine.
  /// Has others give back what they hold of a device's memory and do not use. Called on a thread
  /// that wants room where frames could not be made, without any lock of the engine. May be empty.
  std::function<void()> others_give_back = {};
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
  Bytes dropped;             ///< Left without a copy, to be recomputed.
  std::uint64_t faults = 0;  ///< Accesses that bypassed the operators; waits for a page count once.
  Duration fetch_wait{0};    ///< Operators waiting for their inputs.
  Duration room_wait{0};     ///< Operators waiting for room for their outputs.
  Duration fault_wait{0};    ///< Faults, from their first report until the access was allowed.
  Bytes worked_on_host;      ///< Pages that the host worked on in place of the device.
  Duration host_wait{0};     ///< For these to be in host memory.
  std::uint64_t cancelled_writes = 0;
  StoreReport store;
};

/// Keeps large storages at fixed addresses while their pages move between memory and a spill store
/// under a hard budget. Threads of the trainer allocate, pin and release; one I/O thread transfers;
/// memory that can reports accesses that nobody announced. See swap/README.md for the
/// states of a page.
class SwapEngine final : public StorageMemory,
                         public ResidencyAdvice,
                         public DroppedStorages,
                         public WriteGuards,
                         public HostWork,
                         public ForkHooks {
 public:
  SwapEngine(const SwapEngineOptions& options, std::unique_ptr<memory::PageMemory> memory,
             std::unique_ptr<SpillStore> store, const Clock& clock);
  /// Waits for transfers in flight and for late uses. Ranges that are still live lose their memory.
  ~SwapEngine() override;
  SwapEngine(const SwapEngine&) = delete;
  SwapEngine& operator=(const SwapEngine&) = delete;

  Allocation allocate(Bytes size, PinSet* within) override;
  Allocation allocate_unfilled(Bytes size, PinSet* within = nullptr) override;
  std::optional<Allocation> reuse(Bytes size, PinSet& within, const device::Event& so_far) override;
  void release(StorageId storage, const device::Event& until = {}) override;

  Bytes page_size() const noexcept override;
  RangeUse find(const void* address) const noexcept override;
  /// The same with the pages that `size` bytes from `address` on lie in. None if `size` is 0.
  RangeUse find(const void* address, Bytes size) const noexcept;

  /// Whether anything ever had to leave. While false, pinning is needless and skipped by callers.
  bool is_under_pressure() const noexcept;

  void pin(PinSet& set, std::span<const RangeUse> uses, MissingPages* missing = nullptr,
           const ResidencyOrders* orders = nullptr) override;
  void unpin(PinSet& set, const ResidencyOrders* orders = nullptr,
             const device::Event& until = {}) override;
  Bytes make_room(Bytes wanted) override;
  /// From now on nothing is moved ahead of need. Returns once what is under way has ended, or after
  /// `patience` without an end of something. For the end of the process: drivers end before
  /// threads.
  void stop_moving_ahead();
  /// Lets pages that `set` holds, or will hold, leave where there is no other room, until it is
  /// released; they come back when they are touched. For an operator that needs more than the
  /// budget: right, but slow. Without it, or where the memory of the device reports no touches,
  /// that is refused by NoRoomError.
  void page_through(PinSet& set);

  /// Accounts a heap block that is too small to be paged; makes room for it. Throws as `allocate`.
  void account_small(Bytes size, PinSet* within);
  void release_small(Bytes size) noexcept;

  std::uint32_t storage_pages() const noexcept override;
  void apply(const ResidencyOrders& orders) override;

  bool drop(StorageId storage) override;
  bool is_dropped(StorageId storage) const;
  bool adopt(StorageId dropped, StorageId from, PinSet& within) override;
  void give_up(StorageId dropped, const std::string& reason) override;
  StorageId wait_for_wanted() override;
  void end_drops() override;
  bool guard(StorageId storage) override;
  bool is_write_awaited(StorageId storage) const override;
  void unguard(StorageId storage) override;

  bool hold_on_host(HostHold& hold, std::span<const HostUse> uses) override;
  void let_go_on_host(HostHold& hold) override;

  std::byte* address_of(StorageId storage) const override;

  SwapStatistics statistics() const;
  /// What calls of this thread have waited so far for pages to come or to leave, in any engine.
  static Duration waited_by_this_thread();
  /// Tensor bytes in memory now: frames that hold something, and small blocks.
  Bytes resident() const;
  /// The most of them at once since the last call of this.
  Bytes take_peak();

  /// Whether forked children read the pages. For others nothing is kept, and a fork costs nothing.
  bool is_inherited() const;
  void before_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::swap
