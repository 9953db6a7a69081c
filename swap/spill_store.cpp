#include "spillway/swap/spill_store.h"

#include "spillway/base/assert.h"

namespace spillway::swap {
namespace {

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

void SpillStore::submit(const Transfer& transfer) {
  SPILLWAY_ASSERT(transfer.extent.is_some());
  SPILLWAY_ASSERT(reinterpret_cast<std::uintptr_t>(transfer.memory) % kTransferAlignment == 0);
  SPILLWAY_ASSERT(transfer.size > 0 && transfer.size % kTransferAlignment == 0);
  SPILLWAY_ASSERT(Bytes(transfer.size) <= extent_size());
  SPILLWAY_ASSERT(in_flight_ < queue_depth());
  if (in_flight_++ == 0) busy_since_ns_.store(now_ns());
  do_submit(transfer);
}

void SpillStore::reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) {
  const std::size_t before = results.size();
  do_reap(results, timeout);
  const std::size_t finished = results.size() - before;
  SPILLWAY_ASSERT(finished <= in_flight_);
  for (std::size_t i = before; i < results.size(); ++i) {
    if (results[i].error != 0) continue;
    const Transfer& transfer = results[i].transfer;
    (transfer.direction == Direction::kWrite ? written_bytes_ : read_bytes_) += transfer.size;
  }
  in_flight_ -= finished;
  if (finished > 0 && in_flight_ == 0) busy_ns_ += now_ns() - busy_since_ns_.exchange(0);
}

StoreReport SpillStore::tally() const {
  StoreReport report;
  report.written = Bytes(written_bytes_.load());
  report.read = Bytes(read_bytes_.load());
  const std::int64_t since = busy_since_ns_.load();
  const std::int64_t running = since == 0 ? 0 : now_ns() - since;
  report.busy_time = std::chrono::nanoseconds(busy_ns_.load() + running);
  return report;
}

}  // namespace spillway::swap
