#include "store/retrying/store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::swap {
namespace {

// The block layer turns timeouts, lost paths and lacking memory into these. A wrong checksum may
// have arisen on the way, so the bytes are fetched again.
bool may_pass(const TransferResult& result) {
  switch (result.error) {
    case EIO:
    case EAGAIN:
    case ENOMEM:
    case EINTR:
    case EBUSY:
    case ETIMEDOUT:
    case ENOLINK:
    case EBADMSG: return true;
    default: return false;
  }
}

}  // namespace

RetryingStore::RetryingStore(std::unique_ptr<SpillStore> child, std::shared_ptr<Notifier> notifier,
                             const Clock& clock, RetryOptions options)
    : SpillStore(child->facts()),
      child_(std::move(child)),
      wait_(std::move(notifier)),
      clock_(clock),
      options_(options),
      attempts_(queue_depth()) {
  for (std::size_t i = queue_depth(); i > 0; --i) idle_.push_back(i - 1);
}

std::optional<ExtentId> RetryingStore::do_reserve_extent(StoreTier tier) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return std::nullopt;
  }
  return child_->reserve_extent(tier);
}

void RetryingStore::do_submit(const Transfer& transfer) {
  SPILLWAY_ASSERT(!idle_.empty());
  const std::uint64_t index = idle_.back();
  idle_.pop_back();
  attempts_[index] = {transfer.tag, 1};
  Transfer marked = transfer;
  marked.tag = index;
  child_->submit(marked);
}

void RetryingStore::do_reap(std::vector<TransferResult>& results,
                            std::chrono::milliseconds timeout) {
  wait_.until_finished(results, timeout,
                       [this](std::vector<TransferResult>& out) { collect(out); });
}

void RetryingStore::collect(std::vector<TransferResult>& results) {
  resubmit_due();
  scratch_.clear();
  child_->reap(scratch_, std::chrono::milliseconds(0));
  for (TransferResult& result : scratch_) take(std::move(result), results);
  // The notifier sleeps in real time; under another clock the caller looks again by itself.
  if (!paused_.empty())
    wait_.notifier().notify_by(SteadyClock().now() + (paused_.begin()->first - clock_.now()));
}

void RetryingStore::resubmit_due() {
  const TimePoint now = clock_.now();
  while (!paused_.empty() && paused_.begin()->first <= now) {
    child_->submit(paused_.begin()->second);
    paused_.erase(paused_.begin());
  }
}

void RetryingStore::take(TransferResult result, std::vector<TransferResult>& results) {
  const std::uint64_t index = result.transfer.tag;
  Attempt& attempt = attempts_[index];
  if (may_pass(result) && attempt.count < options_.attempts_max) {
    const Duration pause = options_.first_pause * (std::int64_t{1} << (attempt.count - 1));
    ++attempt.count;
    ++retries_;
    paused_.emplace(clock_.now() + pause, result.transfer);
    return;
  }
  result.transfer.tag = attempt.tag;
  if (result.error != 0) give_up(result, attempt.count);
  idle_.push_back(index);
  results.push_back(std::move(result));
}

void RetryingStore::give_up(TransferResult& result, std::uint32_t attempts) {
  if (attempts > 1) result.detail += message(" ({} attempts)", attempts);
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = message("no new extents after an error: {}", result.detail);
  if (result.error == ENOSPC || result.error == EDQUOT)
    failure_ = message("No space left: {}", result.detail);
}

StoreReport RetryingStore::do_report() const {
  StoreReport report = child_->report();
  report.retries += retries_.load();
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) report.refusal = failure_;
  return report;
}

std::unique_ptr<SpillStore> make_retrying_store(std::unique_ptr<SpillStore> child,
                                                std::shared_ptr<Notifier> notifier,
                                                const Clock& clock, RetryOptions options) {
  return std::make_unique<RetryingStore>(std::move(child), std::move(notifier), clock, options);
}

}  // namespace spillway::swap
