#include "spillway/runtime/recording/transfer_meter.h"

#include <algorithm>
#include <numeric>

#include "spillway/base/transfer_rate.h"

namespace spillway::runtime {

using swap::Direction;

void TransferMeter::begin_transfer(const swap::Transfer& transfer, StorageId /*storage*/,
                                   bool /*is_awaited*/, TimePoint at) {
  moved_twice_.fetch_add(transfer.size, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  pass_time_locked(at);
  ++(transfer.direction == Direction::kWrite ? writes_ : reads_);
  started_[transfer.tag] = passed_;
}

void TransferMeter::end_transfers(std::span<const swap::TransferResult> results, TimePoint at,
                                  Bytes /*resident*/) {
  for (const swap::TransferResult& result : results)
    moved_twice_.fetch_add(result.transfer.size, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  pass_time_locked(at);
  for (const swap::TransferResult& result : results) count_locked(result);
  const auto horizon = static_cast<double>(options_.horizon.count());
  for (Moved& moved : moved_)
    if (moved.written + moved.read > horizon)
      moved = {moved.seconds / 2, moved.written / 2, moved.read / 2};
}

void TransferMeter::stood_still(TimePoint from, TimePoint until) {
  const std::lock_guard lock(mutex_);
  pass_time_locked(from);
  last_ = std::max(last_, until);
  started_.clear();  // Nobody knows when what was under way has ended.
}

void TransferMeter::pass_time_locked(TimePoint at) {
  if (writes_ + reads_ > 0 && at > last_) {
    const Kind kind = writes_ == 0 ? kReading : reads_ == 0 ? kWriting : kBoth;
    const double passed = seconds(at - last_);
    passed_[kind] += passed;
    moved_[kind].seconds += passed;
  }
  last_ = std::max(last_, at);
}

/// Its bytes have moved evenly over the time that it was under way.
void TransferMeter::count_locked(const swap::TransferResult& result) {
  const swap::Transfer& transfer = result.transfer;
  const auto started = started_.extract(transfer.tag);
  const bool writes = transfer.direction == Direction::kWrite;
  --(writes ? writes_ : reads_);
  if (started.empty() || result.error != 0) return;
  Times during = passed_;
  for (std::size_t kind = 0; kind < kKinds; ++kind) during[kind] -= started.mapped()[kind];
  const double sum = std::accumulate(during.begin(), during.end(), 0.0);
  if (sum <= 0.0) return;
  for (std::size_t kind = 0; kind < kKinds; ++kind)
    (writes ? moved_[kind].written : moved_[kind].read) +=
        static_cast<double>(transfer.size) * during[kind] / sum;
}

profile::TransferRates TransferMeter::rates() const {
  const auto trust = static_cast<double>(options_.trust.count());
  profile::TransferRates rates = options_.before;
  const std::lock_guard lock(mutex_);
  const Moved& both = moved_[kBoth];
  // One direction is not slower alone than beside the other one.
  const auto alone = [&](double moved, const Moved& kind, TransferRate before,
                         double moved_beside) {
    const double seen = (moved + trust) / (kind.seconds + before.seconds_for(trust));
    const double beside =
        (moved_beside + trust * rates.duplex_share) / (both.seconds + before.seconds_for(trust));
    return std::clamp(TransferRate(std::max(seen, beside)), kLeastTransferRate, kMostTransferRate);
  };
  const double share_before = rates.duplex_share;
  rates.write = alone(moved_[kWriting].written, moved_[kWriting], rates.write, both.written);
  rates.read = alone(moved_[kReading].read, moved_[kReading], rates.read, both.read);
  // The model's two directions run at one share of their rates: the mean, weighted by time.
  const double known = (rates.write + rates.read).seconds_for(trust);
  const double full =
      (rates.write.seconds_for(both.written) + rates.read.seconds_for(both.read)) / 2;
  rates.duplex_share =
      std::clamp((full + share_before * known) / (both.seconds + known), 0.05, 1.0);
  return rates;
}

}  // namespace spillway::runtime
