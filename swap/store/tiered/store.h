#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "spillway/device/device.h"
#include "spillway/device/host_slabs.h"
#include "spillway/swap/spill_store.h"
#include "store/extent_table.h"
#include "store/notifier.h"
#include "store/tiered/direct_transfers.h"

namespace spillway::swap {

/// States of an extent, by what it holds:
///
///           reserve: a slab is free            write: copied
///   free ───────────────────────────▶ slab ───────────────────▶ slab, written
///    │ ▲                                ▲                        │        ▲
///    │ └────────────── release ─────────┘  room gets short: demote        │ failed, or
///    │ no slab is free                                           ▼        │ reserved anew
///    └───────────────▶ lower ◀───────────────────────── slab, on its way ─┘
///                            the lower store has it: slab back
///
/// A slab that came back is given out by `reserve` only, so that nobody writes to it while whoever
/// reserves, the engine, stands still for a fork: a child finds each extent where its table says.
class TieredStore final : public SpillStore, private HostExtents {
 public:
  TieredStore(std::shared_ptr<device::Device> device, std::unique_ptr<device::HostSlabs> slabs,
              std::unique_ptr<SpillStore> lower, std::shared_ptr<Notifier> notifier,
              DiskObserver* disks, std::unique_ptr<DirectTransfers> direct);

 private:
  using SharedSlab =
      std::shared_ptr<device::HostSlab>;  // Of an extent, and of transfers under way.

  struct Held {
    SharedSlab slab;        // None: in the lower store, or free.
    ExtentId lower;         // None: in a slab, or free.
    std::size_t size = 0;   // Bytes in the slab.
    std::uint64_t age = 0;  // Key in `demotable_`; 0: not there.
    StoreTier tier = StoreTier::kAny;
    bool is_demoting = false;
    bool is_released = false;  // While on its way to the lower store, whose end sets it free.
    bool is_renewed = false;   // Reserved again since then: it keeps its slab.
  };
  struct CopyJob {
    Transfer transfer;
    SharedSlab slab;
    device::Event done;
    ExtentId lower;  // Of a page that is staged; none: the slab is the extent's.
  };
  /// Copies in one direction, in order.
  struct Lane {
    std::unique_ptr<device::Queue> queue;
    std::unique_ptr<device::Queue> ends;  // Tells of them, so that `queue` goes on; null: it does.
    std::deque<CopyJob> jobs;             // I/O thread only
  };
  enum class LowerKind : std::uint8_t { kStraight, kStaged, kByDevice, kDemotion };
  /// What the lower store carries: a transfer of the caller, straight or through a slab, or a slab
  /// on its way there. Or a transfer that the device makes itself, with the files of that store.
  struct LowerJob {
    LowerKind kind = LowerKind::kStraight;
    Transfer transfer;  // The caller's; for a demotion only its extent and size.
    ExtentId lower;
    SharedSlab slab = {};  // Of what is staged, once it has one, and of demotions.
  };
  struct Totals {
    std::uint64_t in_use = 0;
    std::uint64_t most_in_use = 0;
    std::uint64_t slabs_peak = 0;
    std::uint64_t written = 0;  // Bytes, as the next two.
    std::uint64_t read = 0;
    std::uint64_t demoted = 0;
    std::uint64_t directly_written = 0;
    std::uint64_t directly_read = 0;
    bool was_refused = false;
  };

  std::optional<ExtentId> do_reserve_extent(StoreTier tier) override;
  void do_release_extent(ExtentId extent) override;
  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { wait_.wake(); }
  ExtentPlace do_locate(ExtentId extent) const override;
  StoreReport do_report() const override;

  Place place_of(ExtentId extent) const override;
  std::byte* hold(ExtentId extent, std::size_t size) override;
  void let_go(ExtentId extent) override;
  bool is_making_room() const override;

  ExtentId new_extent_locked();
  bool find_place_locked(Held& held);
  void settle_locked(ExtentId extent);
  void free_locked(ExtentId extent);
  void start_copy(const Transfer& transfer, SharedSlab slab, ExtentId lower = {});
  LowerKind way_to_lower(const Transfer& transfer, ExtentId lower) const;
  void advance_lower();
  bool start_lower(LowerJob& job);
  void give_to_lower(LowerJob job);

  void collect(std::vector<TransferResult>& results);
  void finish_copies(Lane& lane, std::vector<TransferResult>& results);
  void finish_copy(const CopyJob& job, std::vector<TransferResult>& results);
  void finish_staged_copy(const CopyJob& job, std::vector<TransferResult>& results);
  void note_copy(const Transfer& transfer);
  void finish_lower(std::vector<TransferResult>& results);
  void finish_by_device(LowerJob job, TransferResult& result, std::vector<TransferResult>& results);
  void finish_demotion(const LowerJob& job, const TransferResult& result);
  void start_demotions();
  std::optional<LowerJob> next_demotion();
  std::uint32_t slabs() const { return slabs_->count() - staging_slabs_; }

  const std::shared_ptr<device::Device> device_;
  const std::unique_ptr<device::HostSlabs> slabs_;
  ReapWait wait_;
  const std::shared_ptr<Notifier> notifier_;
  DiskObserver* const disks_;          // May be null.
  const std::uint32_t staging_slabs_;  // Where the lower store cannot reach the device's memory.
  const std::size_t spare_slabs_;      // Demotions keep so many free.
  ExtentTable<std::atomic<std::uint64_t>> places_;  // See place_in_slab, place_in_lower.

  mutable std::mutex mutex_;
  std::vector<Held> held_;  // By extent.
  std::vector<ExtentId> free_;
  std::vector<ExtentId> released_;               // While they were demoted.
  std::map<std::uint64_t, ExtentId> demotable_;  // Oldest first.
  std::uint64_t latest_age_ = 0;
  bool is_lower_full_ = false;    // As far as demotions are concerned.
  std::string demotion_failure_;  // From then on nothing is demoted.
  Totals totals_;

  // I/O thread only:
  std::vector<LowerJob> lower_jobs_;  // By the tag that the lower store sees.
  std::vector<std::size_t> idle_;     // Indices into lower_jobs_.
  std::deque<LowerJob> backlog_;
  std::deque<LowerJob> copied_;           // Staged, and now for the lower store.
  std::vector<SharedSlab> staging_;       // Idle ones.
  std::vector<Transfer> deferred_;        // Writes to extents that are being demoted.
  std::atomic<std::size_t> demoting_{0};  // Others read it.
  std::vector<TransferResult> scratch_;
  bool is_direct_broken_ = false;            // From the first failure on all is staged.
  const std::unique_ptr<SpillStore> lower_;  // Waits for what it carries, from the slabs above.
  const std::unique_ptr<DirectTransfers> direct_;  // May be null.
  std::array<Lane, 2> lanes_;                      // By direction. Last: they end their work first.
};

}  // namespace spillway::swap
