#pragma once

#include <liburing.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "spillway/swap/spill_store.h"
#include "store/extent_file.h"
#include "store/notifier.h"

namespace spillway::swap {

class IoUringStore final : public SpillStore {
 public:
  IoUringStore(std::unique_ptr<ExtentFile> file, std::size_t queue_depth,
               std::shared_ptr<Notifier> notifier);
  ~IoUringStore() override;
  IoUringStore(const IoUringStore&) = delete;
  IoUringStore& operator=(const IoUringStore&) = delete;

 private:
  /// One transfer on its way; its index travels through the kernel.
  struct Flight {
    Transfer transfer;
    std::size_t done = 0;
  };

  std::optional<ExtentId> do_reserve_extent(StoreTier) override { return file_->reserve(); }
  void do_release_extent(ExtentId extent) override { file_->release(extent); }
  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { wait_.wake(); }
  ExtentPlace do_locate(ExtentId extent) const override { return file_->locate(extent); }
  StoreReport do_report() const override;

  void open_ring();
  void count_sent(std::ptrdiff_t more);
  void queue(std::size_t index);
  void flush();
  void collect(std::vector<TransferResult>& results);
  void handle(std::size_t index, int result, std::vector<TransferResult>& results);
  void finish(std::size_t index, int error, std::vector<TransferResult>& results);

  std::unique_ptr<ExtentFile> file_;
  ReapWait wait_;
  ::io_uring ring_{};
  std::vector<Flight> flights_;
  std::vector<std::size_t> idle_;   // indices into flights_
  std::deque<std::size_t> unsent_;  // in the ring's queue, not yet taken by the kernel
  std::size_t sent_ = 0;            // in the kernel
  int broken_ = 0;                  // an errno value: the kernel takes nothing any more
};

}  // namespace spillway::swap
