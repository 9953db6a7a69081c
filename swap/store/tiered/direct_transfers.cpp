#include "store/tiered/direct_transfers.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/memory/kernel_refusal.h"

namespace spillway::swap {
namespace {

constexpr std::size_t kMostWaiting = 8;  // Each waits for one transfer.

int lent(OwnDescriptors& descriptors, int number) {
  const int here = descriptors.lend(number);
  if (here < 0) throw IoError("a spill file cannot be lent: {}", std::strerror(errno));
  return here;
}

}  // namespace

LentFile::LentFile(OwnDescriptors& descriptors, int number, device::DirectFileIo& device,
                   device::DirectFiles asked)
    : number_(lent(descriptors, number)), identity_(identity_of(number_)) {
  try {
    device::DirectFileIo::Opened opened = device.open_file(number_, asked);
    file_ = std::move(opened.file);
    if (file_ == nullptr) throw UnsupportedError("{}", opened.reason);
  } catch (...) {
    ::close(number_);
    throw;
  }
}

LentFile::~LentFile() {
  file_.reset();
  // The program may have closed it, and use the number.
  if (is_open()) ::close(number_);
}

device::Outcome LentFile::move(Direction direction, device::DeviceSpan memory,
                               std::uint64_t offset) {
  using Way = device::DirectFile::Way;
  if (!is_open()) return {"the program has closed the descriptor of a spill file"};
  try {
    return file_->move(direction == Direction::kRead ? Way::kFromFile : Way::kToFile, memory,
                       offset);
  } catch (const std::exception& error) {
    return {message("a direct transfer has failed: {}", error.what())};
  }
}

DirectTransfers::DirectTransfers(device::DeviceId device,
                                 std::vector<std::unique_ptr<LentFile>> files, std::size_t depth,
                                 std::shared_ptr<Notifier> notifier)
    : device_(device), files_(std::move(files)), notifier_(std::move(notifier)) {
  const SignalsBlocked blocked;
  workers_.reserve(kMostWaiting);  // With threads there, nothing else may throw.
  try {
    while (workers_.size() < std::min(depth, kMostWaiting)) {
      workers_.emplace_back([this] { carry_out_on_worker(); });
      ::pthread_setname_np(workers_.back().native_handle(), "spill-direct");
    }
  } catch (const std::system_error&) {
    if (workers_.empty()) throw IoError("cannot start a thread: {}", memory::why_no_thread());
  }
}

DirectTransfers::~DirectTransfers() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    queue_.clear();
  }
  work_arrived_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

LentFile* DirectTransfers::file_at(const ExtentPlace& place) const {
  // Checksums are taken of bytes that come by.
  if (place.has_checksum) return nullptr;
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&](const auto& file) { return file->holds(place); });
  return found == files_.end() ? nullptr : found->get();
}

void DirectTransfers::submit(const Transfer& transfer, const ExtentPlace& place) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({transfer, place.offset, file_at(place)});
  }
  work_arrived_.notify_one();
}

void DirectTransfers::collect(std::vector<TransferResult>& results) {
  const std::lock_guard lock(mutex_);
  results.insert(results.end(), std::make_move_iterator(finished_.begin()),
                 std::make_move_iterator(finished_.end()));
  finished_.clear();
}

void DirectTransfers::carry_out_on_worker() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_arrived_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    if (is_stopping_) return;
    const Job job = queue_.front();
    queue_.pop_front();
    lock.unlock();
    const Transfer& transfer = job.transfer;
    device::Outcome outcome = job.file->move(
        transfer.direction, {device_, transfer.memory, Bytes(transfer.size)}, job.offset);
    const int error = outcome.succeeded() ? 0 : EIO;
    lock.lock();
    finished_.push_back({transfer, error, std::move(outcome.error)});
    notifier_->notify();
  }
}

}  // namespace spillway::swap
