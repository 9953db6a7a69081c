#include "store/posix/store.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/memory/kernel_refusal.h"
#include "store/posix/factory.h"
#include "store/whole_transfer.h"

namespace spillway::swap {
namespace {

// More threads than this gain nothing on 2 MiB transfers and cost a trainer its cores.
constexpr std::size_t kMostThreads = 8;

}  // namespace

PosixStore::PosixStore(std::unique_ptr<ExtentFile> file, std::size_t queue_depth,
                       std::size_t thread_count, std::shared_ptr<Notifier> notifier)
    : SpillStore({.queue_depth = queue_depth,
                  .descriptors = file->descriptors(),
                  .extent_size = file->extent_size()}),
      file_(std::move(file)),
      wait_(std::move(notifier)) {
  start_threads(thread_count);
}

PosixStore::~PosixStore() { stop_threads(); }

void PosixStore::start_threads(std::size_t count) {
  try {
    while (workers_.size() < count) {
      workers_.push_back(descriptors()->start_thread([this] { carry_out_on_worker(); }));
      pthread_setname_np(workers_.back().native_handle(), "spill-posix");
    }
  } catch (const std::system_error&) {
    if (!workers_.empty()) return;  // fewer threads only make it slower
    throw IoError("cannot start a thread for {}: {}", file_->path(), memory::why_no_thread());
  }
}

void PosixStore::stop_threads() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    queue_.clear();
  }
  work_arrived_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void PosixStore::do_submit(const Transfer& transfer) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(transfer);
  }
  work_arrived_.notify_one();
}

void PosixStore::carry_out_on_worker() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_arrived_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    if (is_stopping_) return;
    const Transfer transfer = queue_.front();
    queue_.pop_front();
    lock.unlock();
    TransferResult result = move(transfer);
    lock.lock();
    finished_.push_back(std::move(result));
    wait_.notifier().notify();
  }
}

TransferResult PosixStore::move(const Transfer& transfer) const {
  const std::uint64_t offset = file_->offset_of(transfer.extent);
  const int error = move_whole(transfer.direction, transfer.size, [&](std::size_t done) -> ssize_t {
    // Where the table is shared with the program the number may mean one of its files by now.
    if (!file_->is_open()) return -EBADF;
    std::byte* memory = transfer.memory + done;
    const std::size_t left = transfer.size - done;
    const auto place = static_cast<off_t>(offset + done);
    // Not by the C library's names: under the preload library they would hold the very page that is
    // to leave.
    const long call = transfer.direction == Direction::kWrite ? SYS_pwrite64 : SYS_pread64;
    const long moved = ::syscall(call, file_->fd(), memory, left, place);
    return moved < 0 ? -errno : moved;
  });
  return {transfer, error, error == 0 ? std::string() : file_->describe(transfer, error)};
}

void PosixStore::do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) {
  wait_.until_finished(results, timeout, [this](std::vector<TransferResult>& out) {
    const std::lock_guard lock(mutex_);
    out.insert(out.end(), std::make_move_iterator(finished_.begin()),
               std::make_move_iterator(finished_.end()));
    finished_.clear();
  });
}

StoreReport PosixStore::do_report() const {
  StoreReport report = tally();
  file_->add_to(report);
  return report;
}

std::unique_ptr<SpillStore> make_posix_store(std::unique_ptr<ExtentFile> file,
                                             std::size_t queue_depth,
                                             std::shared_ptr<Notifier> notifier) {
  return std::make_unique<PosixStore>(std::move(file), queue_depth,
                                      std::min(queue_depth, kMostThreads), std::move(notifier));
}

}  // namespace spillway::swap
