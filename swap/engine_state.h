#pragma once

#include <functional>
#include <mutex>
#include <thread>

#include "engine_books.h"
#include "forked_children.h"
#include "late_uses.h"
#include "spillway/memory/frame_pool.h"
#include "spillway/memory/page_memory.h"
#include "spillway/swap/swap_engine.h"
#include "storage_table.h"

namespace spillway::swap {

inline constexpr const char* kTouchedAfterFree =
    "the program touched tensor memory after it was freed";

/// Everything behind SwapEngine: its verbs, by the file that has them. One mutex guards all of it;
/// nothing under the mutex transfers, logs, or touches paged memory, because a thread that faults
/// may hold any lock of the trainer. Two exceptions are in waiting.md. `_locked`: to be called with
/// the mutex held.
class SwapEngine::State final : public memory::AccessSink, public StorageTable, public EngineBooks {
 public:
  State(const SwapEngineOptions& options, std::unique_ptr<memory::PageMemory> memory,
        std::unique_ptr<SpillStore> store, const Clock& clock);
  ~State() override;

  using Lock = std::unique_lock<std::mutex>;

  // allocation.cpp, reuse.cpp
  Allocation allocate(Bytes size, PinSet* within);
  Allocation allocate_unfilled(Bytes size, PinSet* within);
  std::optional<Allocation> reuse(Bytes size, PinSet& within, const void* line);
  void release(StorageId id, const device::Event& until);

  // accounts.cpp
  void account_small(Bytes size, PinSet* within);
  void release_small(Bytes size) noexcept;
  std::uint32_t storage_pages() const noexcept;
  SwapStatistics statistics();
  Bytes resident_locked() const;
  Bytes take_peak();

  // pins.cpp
  void pin(PinSet& set, std::span<const RangeUse> uses, MissingPages* absent,
           const ResidencyOrders* orders);
  void unpin(PinSet& set, const ResidencyOrders* orders, const device::Event& until);
  void apply_locked(const ResidencyOrders& orders);
  void page_through(PinSet& set);

  // eviction.cpp
  Bytes make_room(Bytes wanted);
  void stop_moving_ahead();

  // drops.cpp
  bool drop(StorageId id);
  bool adopt(StorageId dropped, StorageId from, PinSet& within);
  StorageId wait_for_wanted();
  void give_up(StorageId dropped, const std::string& reason);
  void end_drops();

  // guards.cpp
  bool guard(StorageId id);
  void unguard_locked(Range& range);

  // faults.cpp
  void begin_access(memory::PageIndex index, memory::Access access) override;
  memory::TrapEnd serve_access(memory::PageIndex index, memory::Access access,
                               const std::function<bool()>& is_interrupted) override;

  // forks.cpp
  bool is_inherited() const { return memory_->inherited_pages() != nullptr; }
  void begin_fork_locked();
  void leave_fork_in_parent();
  void enter_child();

  class WayToHost;
  std::byte* address_of(memory::PageIndex index) const { return memory_->span_of(index).data; }

  mutable std::mutex mutex_;

 private:
  class RoomWait;

  // allocation.cpp
  memory::PageIndex take_addresses_locked(std::uint32_t count, Bytes size);
  Allocation hand_out_locked(memory::PageIndex first, std::uint32_t pages, Bytes size,
                             PinSet* within);
  void take_kept_room_locked(std::uint32_t pages);
  void map_locked(memory::PageIndex index, memory::SlotId slot, memory::Access allowed);
  void map_fresh_locked(memory::PageIndex index, memory::SlotId slot);
  void note_mapped_locked(memory::PageIndex index, memory::SlotId slot, memory::Access allowed);
  void note_resident_locked(memory::PageIndex index, memory::Access allowed);
  void release_page_locked(memory::PageIndex index);
  void release_pages_locked(Range& range);

  // accounts.cpp
  void note_counted_locked();

  // room_wait.cpp
  void acquire_frames_locked(Lock& lock, std::vector<memory::SlotId>& frames, std::size_t count,
                             const PinSet* within);
  void wait_locked(Lock& lock, bool holds_pins, Duration& waited);
  void wake_waiters_locked();
  [[noreturn]] void refuse_locked(std::size_t pages, const PinSet* within) const;
  std::size_t pages_pinned_by_kernel_locked() const;
  std::string pinned_by_kernel_text_locked() const;

  // pins.cpp
  void enter_locked(PinSet& set);
  void exit_locked(const PinSet& set);
  void start_parts_locked(Range& range);
  void set_next_use_locked(const RangePart& part, OpClock at);
  void touch_page_locked(Range& range, std::uint32_t page);
  void hold_locked(PinSet& set, const RangeUse& use);
  void let_go_locked(const PinSet::Pin& pin);
  void let_go_late_locked(const PinSet::Pin& pin);
  bool end_late_uses_locked();
  void end_some_late_uses_locked();
  bool may_need_room_locked() const;
  bool is_use_awaited_locked() const;
  bool has_ended_by_now_locked(const device::Event& until) const;
  /// Calls `act` for each page that a set holds, again for those that it holds twice.
  void each_held_page_locked(const PinSet& set,
                             const std::function<void(memory::PageIndex)>& act) const;
  std::size_t held_pages_locked(const PinSet* set) const;
  std::size_t missing_pages_locked(std::span<const RangeUse> uses, bool asks);
  std::vector<memory::PageIndex> pages_being_read_locked(std::span<const RangeUse> uses);
  void count_missing_locked(std::span<const RangeUse> uses, MissingPages& missing);
  void ask_for_page_locked(memory::PageIndex index, std::deque<memory::PageIndex>& queue);

  // eviction.cpp
  /// Starts evictions until what is wanted fits with what is free or about to be.
  void start_evictions_locked();
  std::size_t wanted_frames_locked();
  struct Candidate;
  std::vector<Candidate> candidates_locked() const;
  std::size_t evict_unpinned_locked(std::size_t wanted);
  enum class Holders { kAny, kPagedThrough };
  std::size_t evict_pinned_locked(std::size_t wanted, const PinSet* spared, Holders holders);
  bool can_leave_locked(const Page& page, bool forced) const;
  void write_out_locked(const ResidencyOrders::WriteOut& out);
  bool evict_page_locked(memory::PageIndex index, bool forced, StoreTier tier = StoreTier::kAny);
  bool leave_locked(memory::PageIndex index);
  void stay_locked(memory::PageIndex index);
  /// What the kernel kept of these, or of all, is tried again: who held it may have let go since.
  void forget_refusals_locked(memory::PageIndex first, std::uint32_t count);
  void forget_refusals_locked();
  void keep_locked(Page& page);
  void cancel_write_locked(Page& page);
  void settle_for_writing_locked(Range& range, std::uint32_t first, std::uint32_t count);
  void drop_extent_locked(Page& page);
  void release_extent_locked(ExtentId extent);
  void end_children_locked();

  // transfers.cpp
  void run_transfers();
  void submit(const std::vector<Transfer>& batch);
  void prepare_pages(const std::vector<TransferResult>& results);
  void forgive_standstill();
  void kick_locked();
  void fetch_locked(const RangePart& part, OnFetch copy);
  void give_fresh_frame_locked(memory::PageIndex index);
  void start_read_locked(memory::PageIndex index, std::vector<Transfer>& batch);
  void collect_locked(std::vector<Transfer>& batch);
  bool collect_read_locked(std::deque<memory::PageIndex>& queue, std::vector<Transfer>& batch);
  bool collect_fetch_locked(std::vector<Transfer>& batch);
  bool collect_write_locked(std::vector<Transfer>& batch);
  void write_protect_queued_locked(memory::PageIndex index);
  void give_up_writing_locked();
  void finish_locked(const TransferResult& result);
  void finish_read_locked(memory::PageIndex index, const TransferResult& result);
  void finish_write_locked(memory::PageIndex index, const TransferResult& result);

  // drops.cpp
  void drop_pages_locked(const Range& range);
  bool is_movable_locked(Lock& lock, memory::PageIndex index);
  bool adopt_page_locked(Lock& lock, memory::PageIndex target, memory::PageIndex source,
                         const PinSet& within);
  void want_locked(StorageId id);
  void wait_for_dropped_locked(Lock& lock, std::span<const RangeUse> uses);

  // guards.cpp
  void end_guard_locked(Range& range);
  void write_protect_locked(const Range& range);
  void write_protect_guarded_locked(const Range& range);
  void forbid_writes_locked(memory::PageIndex first, std::uint32_t pages) {
    if (access_ != nullptr) access_->forbid_writes(first, pages);
  }
  void allow_writes_locked(memory::PageIndex first, std::uint32_t pages) {
    if (access_ != nullptr) access_->allow_writes(first, pages);
  }

  // faults.cpp
  void begin_access(memory::PageIndex index, memory::Access access, std::uint32_t strays);
  bool begin_fault_locked(memory::PageIndex index, memory::Access access, TimePoint start);
  bool note_waiting_fault_locked(memory::PageIndex index, TimePoint start);
  void end_faults_locked(memory::PageIndex index);
  bool is_fault_unserved_locked() const;
  std::string why_no_frame_locked() const;
  std::string lost_fault_locked();
  void wake_locked(memory::PageIndex index) {
    if (access_ != nullptr) access_->wake(index);
  }

  // forks.cpp
  void fill_in_child(memory::PageIndex index);
  bool show_in_child(memory::PageIndex index);

  const SwapEngineOptions options_;
  const std::unique_ptr<SpillStore> store_;
  const std::shared_ptr<OwnDescriptors> descriptors_;  ///< The store's, where it has some.
  const Clock& clock_;
  std::unique_ptr<memory::PageMemory> memory_;
  memory::AccessControl* const access_;       ///< Null where nobody reports accesses and writes.
  memory::FramesInUse* const frames_in_use_;  ///< Null: frames move when their use has ended.
  const std::size_t budget_pages_;
  std::unique_ptr<memory::FramePool> pool_;
  ForkedChildren children_{descriptors_};
  LateUses<std::vector<PinSet::Pin>> late_uses_;  ///< What sets and ended storages held.
  std::thread transfer_thread_;
};

}  // namespace spillway::swap
