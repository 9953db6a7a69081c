#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "spillway/swap/spill_store.h"
#include "store/extent_file.h"
#include "store/notifier.h"

namespace spillway::swap {

class PosixStore final : public SpillStore {
 public:
  PosixStore(std::unique_ptr<ExtentFile> file, std::size_t queue_depth, std::size_t thread_count,
             std::shared_ptr<Notifier> notifier);
  ~PosixStore() override;
  PosixStore(const PosixStore&) = delete;
  PosixStore& operator=(const PosixStore&) = delete;

 private:
  std::optional<ExtentId> do_reserve_extent(StoreTier) override { return file_->reserve(); }
  void do_release_extent(ExtentId extent) override { file_->release(extent); }
  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { wait_.wake(); }
  ExtentPlace do_locate(ExtentId extent) const override { return file_->locate(extent); }
  StoreReport do_report() const override;

  void start_threads(std::size_t count);
  void stop_threads();
  void carry_out_on_worker();
  TransferResult move(const Transfer& transfer) const;

  std::unique_ptr<ExtentFile> file_;
  ReapWait wait_;

  std::mutex mutex_;
  std::condition_variable work_arrived_;
  std::deque<Transfer> queue_;  // taken from the front: in order of submission
  std::vector<TransferResult> finished_;
  bool is_stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace spillway::swap
