#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/swap/spill_store.h"
#include "store/mapped_memory.h"
#include "store/notifier.h"

namespace spillway::swap {

class RamStore final : public SpillStore {
 public:
  RamStore(Bytes capacity, std::size_t queue_depth, std::shared_ptr<Notifier> notifier,
           Bytes extent_size);

 private:
  std::optional<ExtentId> do_reserve_extent(StoreTier) override;
  void do_release_extent(ExtentId extent) override;
  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { wait_.wake(); }
  ExtentPlace do_locate(ExtentId extent) const override;
  StoreReport do_report() const override;

  std::byte* place_of(ExtentId extent) const {
    return memory_.begin() + extent_size().count() * extent.value();
  }

  ReapWait wait_;
  std::vector<TransferResult> finished_;  // I/O thread only
  std::size_t extent_count_;
  MappedMemory memory_;

  mutable std::mutex mutex_;
  std::vector<ExtentId> free_;
  std::uint32_t touched_ = 0;
  std::uint64_t in_use_ = 0;
  std::uint64_t most_in_use_ = 0;
  bool was_refused_ = false;
};

}  // namespace spillway::swap
