#include "spillway/swap/spill_store.h"

#include "spillway/base/assert.h"

namespace spillway::swap {

void SpillStore::submit(const Transfer& transfer) {
  SPILLWAY_ASSERT(transfer.extent.is_some());
  SPILLWAY_ASSERT(reinterpret_cast<std::uintptr_t>(transfer.memory) % 4096 == 0);
  SPILLWAY_ASSERT(transfer.size > 0 && transfer.size % 4096 == 0);
  SPILLWAY_ASSERT(in_flight_ < queue_depth_);
  ++in_flight_;
  do_submit(transfer);
}

void SpillStore::reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) {
  const std::size_t before = results.size();
  do_reap(results, timeout);
  const std::size_t finished = results.size() - before;
  SPILLWAY_ASSERT(finished <= in_flight_);
  in_flight_ -= finished;
}

}  // namespace spillway::swap
