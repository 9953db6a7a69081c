#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/swap/spill_store.h"
#include "store/notifier.h"
#include "store/retrying/factory.h"

namespace spillway::swap {

class RetryingStore final : public SpillStore {
 public:
  RetryingStore(std::unique_ptr<SpillStore> child, std::shared_ptr<Notifier> notifier,
                const Clock& clock, RetryOptions options);

 private:
  /// A transfer with a place in the child, under which it is known there as `tag`.
  struct Attempt {
    std::uint64_t tag = 0;  // the caller's
    std::uint32_t count = 0;
  };

  std::optional<ExtentId> do_reserve_extent(StoreTier tier) override;
  void do_release_extent(ExtentId extent) override { child_->release_extent(extent); }
  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { wait_.wake(); }
  ExtentPlace do_locate(ExtentId extent) const override { return child_->locate(extent); }
  StoreReport do_report() const override;

  void collect(std::vector<TransferResult>& results);
  void resubmit_due();
  void take(TransferResult result, std::vector<TransferResult>& results);
  void give_up(TransferResult& result, std::uint32_t attempts);

  std::unique_ptr<SpillStore> child_;
  ReapWait wait_;
  const Clock& clock_;
  RetryOptions options_;

  std::vector<Attempt> attempts_;              // by the tag that the child sees
  std::vector<std::uint64_t> idle_;            // indices into attempts_
  std::multimap<TimePoint, Transfer> paused_;  // by the moment to try again
  std::vector<TransferResult> scratch_;

  std::atomic<std::uint64_t> retries_{0};
  mutable std::mutex mutex_;
  std::string failure_;  // empty: healthy
};

}  // namespace spillway::swap
