#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "forked_children.h"
#include "late_uses.h"
#include "spillway/memory/frame_pool.h"
#include "spillway/memory/page_memory.h"
#include "spillway/swap/swap_engine.h"
#include "storage_table.h"

namespace spillway::swap {

inline constexpr const char* kTouchedAfterFree =
    "the program touched tensor memory after it was freed";

/// Everything behind SwapEngine. One mutex guards all of it; nothing under the mutex transfers,
/// logs, or touches paged memory, because a thread that faults may hold any lock of the trainer.
/// Two exceptions are in waiting.md. `_locked`: to be called with the mutex held.
class SwapEngine::State final : public memory::AccessSink, public StorageTable {
 public:
  State(const SwapEngineOptions& options, std::unique_ptr<memory::PageMemory> memory,
        std::unique_ptr<SpillStore> store, const Clock& clock);
  ~State() override;

  using Lock = std::unique_lock<std::mutex>;

  // swap_engine.cpp
  Allocation allocate(Bytes size, PinSet* within);
  Allocation allocate_unfilled(Bytes size, PinSet* within);
  void release(StorageId id, const device::Event& until);
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
  bool end_late_uses_locked();
  bool may_need_room_locked() const;
  bool is_use_awaited_locked() const;
  void end_some_late_uses_locked();
  bool has_ended_by_now_locked(const device::Event& until) const;
  void apply_locked(const ResidencyOrders& orders);
  void page_through(PinSet& set);
  void set_next_use_locked(const RangePart& part, OpClock at);
  void touch_page_locked(Range& range, std::uint32_t page);
  void end_faults_locked(memory::PageIndex index);

  // eviction.cpp
  /// Starts evictions until what is wanted fits with what is free or about to be.
  void start_evictions_locked();
  std::size_t wanted_frames_locked();
  Bytes make_room(Bytes wanted);
  void stop_moving_ahead();
  void write_out_locked(const ResidencyOrders::WriteOut& out);
  bool evict_page_locked(memory::PageIndex index, bool forced, StoreTier tier = StoreTier::kAny);
  bool leave_locked(memory::PageIndex index);
  /// What the kernel kept of these, or of all, is tried again: who held it may have let go since.
  void forget_refusals_locked(memory::PageIndex first, std::uint32_t count);
  void forget_refusals_locked();
  void stay_locked(memory::PageIndex index);
  void cancel_write_locked(Page& page);
  void settle_for_writing_locked(Range& range, std::uint32_t first, std::uint32_t count);

  // transfers.cpp
  void run_transfers();
  void submit(const std::vector<Transfer>& batch);
  void prepare_pages(const std::vector<TransferResult>& results);
  void forgive_standstill();
  void kick_locked();
  void fetch_locked(const RangePart& part, OnFetch copy);

  // drops.cpp
  bool drop(StorageId id);
  void drop_pages_locked(const Range& range);
  bool adopt(StorageId dropped, StorageId from, PinSet& within);
  StorageId wait_for_wanted();
  void give_up(StorageId dropped, const std::string& reason);
  void end_drops();
  void want_locked(StorageId id);
  void wait_for_dropped_locked(Lock& lock, std::span<const RangeUse> uses);

  // guards.cpp
  bool guard(StorageId id);
  void unguard_locked(Range& range);
  void end_guard_locked(Range& range);
  void write_protect_locked(const Range& range);
  void write_protect_guarded_locked(const Range& range);

  // faults.cpp
  void begin_access(memory::PageIndex index, memory::Access access) override;
  void begin_access(memory::PageIndex index, memory::Access access, std::uint32_t strays);
  memory::TrapEnd serve_access(memory::PageIndex index, memory::Access access,
                               const std::function<bool()>& is_interrupted) override;

  // forks.cpp
  bool is_inherited() const { return memory_->inherited_pages() != nullptr; }
  void begin_fork_locked();
  void leave_fork_in_parent();
  void enter_child();
  void fill_in_child(memory::PageIndex index);

  void forbid_writes_locked(memory::PageIndex first, std::uint32_t pages) {
    if (access_ != nullptr) access_->forbid_writes(first, pages);
  }
  void allow_writes_locked(memory::PageIndex first, std::uint32_t pages) {
    if (access_ != nullptr) access_->allow_writes(first, pages);
  }
  void wake_locked(memory::PageIndex index) {
    if (access_ != nullptr) access_->wake(index);
  }
  std::byte* address_of(memory::PageIndex index) const { return memory_->span_of(index).data; }

  mutable std::mutex mutex_;
  std::condition_variable changed_;  ///< Frames, pins or page states changed.
  std::atomic<bool> pressure_{false};
  std::atomic<bool> off_{false};  ///< In a forked child.
  SwapEngineOptions options_;
  OpClock now_op_ = 0;
  std::uint32_t fetch_reserve_ = 0;
  std::deque<Fetch> fetches_;
  std::unique_ptr<SpillStore> store_;
  std::shared_ptr<OwnDescriptors> descriptors_;  ///< The store's, where it has some.
  class WayToHost;

 private:
  void enter_locked(PinSet& set);
  void exit_locked(const PinSet& set);
  void acquire_frames_locked(Lock& lock, std::vector<memory::SlotId>& frames, std::size_t count,
                             const PinSet* within);
  class RoomWait;
  [[noreturn]] void refuse_locked(std::size_t pages, const PinSet* within) const;
  std::size_t pages_pinned_by_kernel_locked() const;
  std::string pinned_by_kernel_text_locked() const;
  void wake_waiters_locked();
  void wait_locked(Lock& lock, bool holds_pins, Duration& waited);
  memory::PageIndex take_addresses_locked(std::uint32_t count, Bytes size);
  StorageId new_range_locked(memory::PageIndex first, std::uint32_t pages, Bytes size);
  void release_page_locked(memory::PageIndex index);
  void start_parts_locked(Range& range);
  void hold_locked(PinSet& set, const RangeUse& use);
  void let_go_locked(const PinSet::Pin& pin);
  void let_go_late_locked(const PinSet::Pin& pin);
  void release_pages_locked(Range& range);
  std::size_t missing_pages_locked(std::span<const RangeUse> uses, bool asks);
  void count_missing_locked(std::span<const RangeUse> uses, MissingPages& missing);
  void ask_for_page_locked(memory::PageIndex index, std::deque<memory::PageIndex>& queue);
  void give_fresh_frame_locked(memory::PageIndex index);
  void note_counted_locked();
  void map_locked(memory::PageIndex index, memory::SlotId slot, memory::Access allowed);
  void map_fresh_locked(memory::PageIndex index, memory::SlotId slot);
  void note_mapped_locked(memory::PageIndex index, memory::SlotId slot, memory::Access allowed);
  void note_resident_locked(memory::PageIndex index, memory::Access allowed);
  /// Calls `act` for each page that a set holds, again for those that it holds twice.
  void each_held_page_locked(const PinSet& set,
                             const std::function<void(memory::PageIndex)>& act) const;
  std::size_t held_pages_locked(const PinSet* set) const;
  bool show_in_child(memory::PageIndex index);
  void drop_extent_locked(Page& page);
  void release_extent_locked(ExtentId extent);
  void end_children_locked();
  bool can_leave_locked(const Page& page, bool forced) const;
  struct Candidate;
  std::vector<Candidate> candidates_locked() const;
  std::size_t evict_unpinned_locked(std::size_t wanted);
  enum class Holders { kAny, kPagedThrough };
  std::size_t evict_pinned_locked(std::size_t wanted, const PinSet* spared, Holders holders);
  void collect_locked(std::vector<Transfer>& batch);
  void give_up_writing_locked();
  bool collect_read_locked(std::deque<memory::PageIndex>& queue, std::vector<Transfer>& batch);
  bool collect_fetch_locked(std::vector<Transfer>& batch);
  bool collect_write_locked(std::vector<Transfer>& batch);
  void write_protect_queued_locked(memory::PageIndex index);
  void keep_locked(Page& page);
  void start_read_locked(memory::PageIndex index, std::vector<Transfer>& batch);
  void finish_locked(const TransferResult& result);
  void finish_read_locked(memory::PageIndex index, const TransferResult& result);
  void finish_write_locked(memory::PageIndex index, const TransferResult& result);

  const Clock& clock_;
  std::unique_ptr<memory::PageMemory> memory_;
  memory::AccessControl* access_;       ///< Null where nobody reports accesses and writes.
  memory::FramesInUse* frames_in_use_;  ///< Null where frames move when their use has ended.
  std::size_t budget_pages_;
  std::unique_ptr<memory::FramePool> pool_;

  bool begin_fault_locked(memory::PageIndex index, memory::Access access, TimePoint start);
  bool note_waiting_fault_locked(memory::PageIndex index, TimePoint start);
  bool is_fault_unserved_locked() const;
  std::string why_no_frame_locked() const;
  std::string lost_fault_locked();
  FaultBook faults_;
  std::deque<memory::PageIndex> fault_reads_;
  std::deque<memory::PageIndex> demand_reads_;
  std::deque<memory::PageIndex> writes_;
  std::size_t frames_wanted_ = 0;  ///< By allocations that wait.
  std::size_t leaving_ = 0;        ///< Pages that will give their frame back.
  std::size_t reading_ = 0;
  std::size_t writing_ = 0;
  std::size_t free_transfers_ = 0;  ///< Room in the store's queue.
  bool transfers_idle_ = false;     ///< The I/O thread sleeps or is about to.
  bool stopping_ = false;
  bool moves_ahead_ = true;
  ForkedChildren children_{descriptors_};
  std::size_t extents_held_ = 0;  ///< Reserved and not released.
  bool is_child_known_ = false;   ///< In a child: the parent keeps its extents.
  std::size_t active_sets_ = 0;
  std::vector<const PinSet*> kernel_sets_;                  ///< Those of them that the kernel uses.
  std::vector<const PinSet*> paged_through_;                ///< Those of operators that do not fit.
  LateUses<std::vector<PinSet::Pin>> late_uses_;            ///< What sets and ended storages held.
  std::vector<ResidencyOrders::WriteOut> late_write_outs_;  ///< They wait for late uses to end.
  std::minstd_rand random_;                                 ///< Equal runs choose alike.
  std::size_t waiting_sets_ = 0;
  const RoomWait* first_in_line_ = nullptr;
  std::uint64_t wakes_ = 0;  ///< Counts whatever may have ended a wait.
  std::size_t waiters_ = 0;
  std::condition_variable drop_wanted_;
  DropBook drops_;
  HostReads host_reads_;
  bool is_movable_locked(Lock& lock, memory::PageIndex index);
  bool adopt_page_locked(Lock& lock, memory::PageIndex target, memory::PageIndex source,
                         const PinSet& within);
  std::uint64_t touch_clock_ = 0;
  std::uint32_t arrivals_ = 0;
  std::uint64_t refusals_ = 0;  ///< Counts pages that were to leave and that the kernel kept.
  std::string store_failure_;   ///< Why nothing more can be written; empty: it can.
  ReadFailure read_failure_;
  bool write_turn_ = true;
  std::size_t awaited_reads_ = 0;  ///< The first of the batch that is being collected.

  std::atomic<std::uint64_t> small_bytes_{0};
  std::atomic<std::uint64_t> small_granted_{0};
  SwapStatistics counts_;
  Bytes latest_peak_;  ///< Resident, since take_peak.
  std::thread transfer_thread_;
};

}  // namespace spillway::swap
