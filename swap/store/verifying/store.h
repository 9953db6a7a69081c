#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "spillway/swap/spill_store.h"
#include "store/extent_table.h"

namespace spillway::swap {

/// Checksum and size of what was written to an extent.
struct Seal {
  std::uint64_t sum = 0;
  std::uint32_t size = 0;  ///< 0: never written.
};

class VerifyingStore final : public SpillStore {
 public:
  VerifyingStore(std::unique_ptr<SpillStore> child, std::string place);

 private:
  std::optional<ExtentId> do_reserve_extent(StoreTier tier) override {
    return child_->reserve_extent(tier);
  }
  void do_release_extent(ExtentId extent) override { child_->release_extent(extent); }
  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { child_->wake(); }
  ExtentPlace do_locate(ExtentId extent) const override;
  StoreReport do_report() const override;

  Seal seal_of(ExtentId extent) const;
  /// Of a read that the child has done: fails it unless it gave what was written.
  void check(TransferResult& result);
  static bool is_right(TransferResult& result, const Seal& seal, const std::string& place);

  std::unique_ptr<SpillStore> child_;
  std::string place_;
  ExtentTable<Seal> seals_;  // written by the I/O thread
  std::atomic<std::uint64_t> checked_{0};
  std::atomic<std::uint64_t> wrong_{0};
  std::atomic<std::uint64_t> recovered_{0};
  std::unordered_set<ExtentId> wrong_extents_;  // by their latest read; of the I/O thread
};

}  // namespace spillway::swap
