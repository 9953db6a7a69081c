#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "spillway/swap/spill_store.h"
#include "store/notifier.h"

namespace spillway::swap {

class StripedStore final : public SpillStore {
 public:
  StripedStore(std::vector<std::unique_ptr<SpillStore>> children,
               std::shared_ptr<Notifier> notifier);

 private:
  struct Stripe {
    std::unique_ptr<SpillStore> store;
    std::deque<Transfer> backlog;        // in the child's ids; I/O thread only
    std::atomic<std::size_t> queued{0};  // in the child or in the backlog
    double weight = 0.0;                 // free bytes, as of the last look
    double credit = 0.0;
  };

  std::optional<ExtentId> do_reserve_extent(StoreTier tier) override;
  void do_release_extent(ExtentId extent) override;
  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { wait_.wake(); }
  ExtentPlace do_locate(ExtentId extent) const override {
    return stripes_[stripe_of(extent)].store->locate(local_of(extent));
  }
  StoreReport do_report() const override;

  void collect(std::vector<TransferResult>& results);
  void look_at_free_space();
  std::vector<std::size_t> stripes_by_preference() const;
  std::optional<ExtentId> global(std::size_t stripe, ExtentId local) const;
  std::size_t stripe_of(ExtentId extent) const { return extent.value() % stripes_.size(); }
  ExtentId local_of(ExtentId extent) const;

  std::vector<Stripe> stripes_;
  ReapWait wait_;
  std::vector<TransferResult> scratch_;

  std::mutex mutex_;  // credits and weights
  std::uint32_t reservations_until_look_ = 0;
};

}  // namespace spillway::swap
