#pragma once

#include <memory>
#include <string>

#include "spillway/swap/spill_store.h"
#include "store/verifying/seal_table.h"

namespace spillway::swap {

class VerifyingStore final : public SpillStore {
 public:
  VerifyingStore(std::unique_ptr<SpillStore> child, std::string place);

 private:
  std::optional<ExtentId> do_reserve_extent() override { return child_->reserve_extent(); }
  void do_release_extent(ExtentId extent) override { child_->release_extent(extent); }
  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { child_->wake(); }
  ExtentPlace do_locate(ExtentId extent) const override;
  StoreReport do_report() const override { return child_->report(); }

  void check(TransferResult& result) const;

  std::unique_ptr<SpillStore> child_;
  std::string place_;
  SealTable seals_;  // written by the I/O thread
};

}  // namespace spillway::swap
