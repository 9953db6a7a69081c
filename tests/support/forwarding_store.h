#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/swap/spill_store.h"

namespace spillway::swap {

/// Hands everything on to another store; tests override what they look at or spoil.
class ForwardingStore : public SpillStore {
 protected:
  explicit ForwardingStore(std::unique_ptr<SpillStore> child)
      : SpillStore(child->facts()), child_(std::move(child)) {}

  std::optional<ExtentId> do_reserve_extent(StoreTier tier) override {
    return child_->reserve_extent(tier);
  }
  void do_release_extent(ExtentId extent) override { child_->release_extent(extent); }
  void do_submit(const Transfer& transfer) override { child_->submit(transfer); }
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override {
    child_->reap(results, timeout);
  }
  void do_wake() override { child_->wake(); }
  ExtentPlace do_locate(ExtentId extent) const override { return child_->locate(extent); }
  StoreReport do_report() const override { return child_->report(); }

  const std::unique_ptr<SpillStore> child_;
};

}  // namespace spillway::swap
