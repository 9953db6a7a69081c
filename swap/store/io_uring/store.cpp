#include "store/io_uring/store.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/swap/spill_store_factory.h"
#include "store/io_uring/factory.h"
#include "store/whole_transfer.h"

namespace spillway::swap {
namespace {

constexpr std::chrono::milliseconds kPauseOfBusyRing{1};

// The kernel lacks memory or room in a queue for the moment; the transfers stay queued.
bool is_passing(int error) {
  return error == EAGAIN || error == EBUSY || error == EINTR || error == ENOMEM;
}

std::string why_refused(int error) {
  if (error == ENOSYS) return "the kernel has no io_uring (Linux 5.6 or newer is needed)";
  if (error == EPERM || error == EACCES) {
    int disabled = 0;
    std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled;
    if (disabled != 0)
      return message(
          "io_uring is switched off (sysctl kernel.io_uring_disabled is {}; 0 allows it)",
          disabled);
    return "io_uring is forbidden to this process, as container filters do (with Docker: "
           "--security-opt seccomp=<profile that allows io_uring_setup, io_uring_enter and "
           "io_uring_register>)";
  }
  if (error == ENOMEM) return "io_uring got no locked memory (raise ulimit -l)";
  return message("io_uring cannot be set up: {}", std::strerror(error));
}

std::string why_no_ring() {
  ::io_uring ring{};
  const int error = -::io_uring_queue_init(2, &ring, 0);
  if (error != 0) return why_refused(error);
  std::string reason;
  ::io_uring_probe* probe = ::io_uring_get_probe_ring(&ring);
  if (probe == nullptr || ::io_uring_opcode_supported(probe, IORING_OP_READ) == 0 ||
      ::io_uring_opcode_supported(probe, IORING_OP_WRITE) == 0)
    reason = "io_uring cannot read and write files here (Linux 5.6 or newer is needed)";
  if (probe != nullptr) ::io_uring_free_probe(probe);
  ::io_uring_queue_exit(&ring);
  return reason;
}

}  // namespace

std::string why_no_io_uring() {
  const std::shared_ptr<OwnDescriptors> own = memory::make_own_descriptors();
  if (!own->is_apart())
    return message("io_uring needs a table of descriptors of its own: {}", own->why_shared());
  std::string reason;
  own->run([&] { reason = why_no_ring(); });
  return reason;
}

IoUringStore::IoUringStore(std::unique_ptr<ExtentFile> file, std::size_t queue_depth,
                           std::shared_ptr<Notifier> notifier)
    : SpillStore({.queue_depth = queue_depth,
                  .descriptors = file->descriptors(),
                  .extent_size = file->extent_size()}),
      file_(std::move(file)),
      wait_(std::move(notifier)) {
  if (!descriptors()->is_apart())
    throw UnsupportedError("io_uring needs a table of descriptors of its own: {}",
                           descriptors()->why_shared());
  flights_.resize(queue_depth);
  for (std::size_t i = queue_depth; i > 0; --i) idle_.push_back(i - 1);
  try {
    descriptors()->run([this] { open_ring(); });
  } catch (const std::system_error&) {
    throw IoError("cannot start a thread for {}: {}", file_->path(), memory::why_no_thread());
  }
}

void IoUringStore::open_ring() {
  const int event = wait_.notifier().event_in(descriptors());
  int error = -::io_uring_queue_init(static_cast<unsigned>(flights_.size()), &ring_, 0);
  if (error != 0) throw UnsupportedError(why_refused(error));
  error = -::io_uring_register_eventfd(&ring_, event);
  if (error == 0) return;
  ::io_uring_queue_exit(&ring_);
  throw UnsupportedError(why_refused(error));
}

IoUringStore::~IoUringStore() {
  // The kernel writes into memory that its owner will reuse: wait until it is through.
  descriptors()->run([this] {
    while (sent_ > 0) {
      ::io_uring_cqe* completion = nullptr;
      const int error = -::io_uring_wait_cqe(&ring_, &completion);
      if (error == EINTR || error == EAGAIN) continue;
      if (error != 0) break;
      ::io_uring_cqe_seen(&ring_, completion);
      count_sent(-1);
    }
    ::io_uring_queue_exit(&ring_);
  });
}

void IoUringStore::count_sent(std::ptrdiff_t more) {
  sent_ += static_cast<std::size_t>(more);
  wait_.notifier().expect_of_kernel(more);
}

void IoUringStore::do_submit(const Transfer& transfer) {
  SPILLWAY_ASSERT(!idle_.empty());
  const std::size_t index = idle_.back();
  idle_.pop_back();
  flights_[index] = {transfer, 0};
  queue(index);
  descriptors()->run([this] { flush(); });
}

void IoUringStore::queue(std::size_t index) {
  unsent_.push_back(index);
  if (broken_ != 0) return;
  ::io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
  SPILLWAY_ASSERT(entry != nullptr);  // the ring has at least one entry per flight
  const Flight& flight = flights_[index];
  const Transfer& transfer = flight.transfer;
  const std::uint64_t offset = file_->offset_of(transfer.extent) + flight.done;
  const auto size = static_cast<unsigned>(transfer.size - flight.done);
  if (transfer.direction == Direction::kWrite)
    ::io_uring_prep_write(entry, file_->fd(), transfer.memory + flight.done, size, offset);
  else
    ::io_uring_prep_read(entry, file_->fd(), transfer.memory + flight.done, size, offset);
  ::io_uring_sqe_set_data64(entry, index);
}

// Hands over what is queued. What the kernel has no room for is tried again by the next reap.
void IoUringStore::flush() {
  while (!unsent_.empty() && broken_ == 0) {
    const int taken = ::io_uring_submit(&ring_);
    if (taken > 0) {
      const auto count = static_cast<std::size_t>(taken);
      SPILLWAY_ASSERT(count <= unsent_.size());
      unsent_.erase(unsent_.begin(), unsent_.begin() + taken);
      count_sent(taken);
    } else if (taken == 0 || is_passing(-taken)) {
      wait_.notifier().notify_by(SteadyClock().now() + kPauseOfBusyRing);
      return;
    } else {
      broken_ = -taken;
    }
  }
}

void IoUringStore::do_reap(std::vector<TransferResult>& results,
                           std::chrono::milliseconds timeout) {
  wait_.until_finished(results, timeout, [this](std::vector<TransferResult>& out) {
    descriptors()->run([&] { collect(out); });
  });
}

void IoUringStore::collect(std::vector<TransferResult>& results) {
  ::io_uring_cqe* completion = nullptr;
  while (::io_uring_peek_cqe(&ring_, &completion) == 0) {
    const auto index = static_cast<std::size_t>(::io_uring_cqe_get_data64(completion));
    const int result = completion->res;
    ::io_uring_cqe_seen(&ring_, completion);
    count_sent(-1);
    handle(index, result, results);
  }
  flush();
  if (broken_ == 0) return;
  for (const std::size_t index : unsent_) finish(index, broken_, results);
  unsent_.clear();
}

void IoUringStore::handle(std::size_t index, int result, std::vector<TransferResult>& results) {
  Flight& flight = flights_[index];
  const Transfer& transfer = flight.transfer;
  const Progress progress = advance(transfer.direction, flight.done, result, transfer.size);
  flight.done = progress.done;
  if (progress.error == 0 && progress.done < transfer.size)
    queue(index);
  else
    finish(index, progress.error, results);
}

void IoUringStore::finish(std::size_t index, int error, std::vector<TransferResult>& results) {
  const Transfer& transfer = flights_[index].transfer;
  results.push_back(
      {transfer, error, error == 0 ? std::string() : file_->describe(transfer, error)});
  idle_.push_back(index);
}

StoreReport IoUringStore::do_report() const {
  StoreReport report = tally();
  file_->add_to(report);
  return report;
}

std::unique_ptr<SpillStore> make_io_uring_store(std::unique_ptr<ExtentFile> file,
                                                std::size_t queue_depth,
                                                std::shared_ptr<Notifier> notifier) {
  return std::make_unique<IoUringStore>(std::move(file), queue_depth, std::move(notifier));
}

}  // namespace spillway::swap
