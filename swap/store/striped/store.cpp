#include "store/striped/store.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "spillway/base/assert.h"
#include "store/striped/factory.h"

namespace spillway::swap {
namespace {

constexpr std::uint32_t kReservationsPerLook = 64;  // free space costs a system call per child
constexpr std::size_t kQueueSlack = 2;              // a queue this much longer counts as equal

StoreFacts facts_of_all(const std::vector<std::unique_ptr<SpillStore>>& stores) {
  SPILLWAY_ASSERT(!stores.empty());
  StoreFacts facts = stores.front()->facts();
  facts.queue_depth = 0;
  for (const auto& store : stores) {
    SPILLWAY_ASSERT(store->device() == facts.device && store->extent_size() == facts.extent_size);
    facts.queue_depth += store->queue_depth();
  }
  return facts;
}

}  // namespace

StripedStore::StripedStore(std::vector<std::unique_ptr<SpillStore>> children,
                           std::shared_ptr<Notifier> notifier)
    : SpillStore(facts_of_all(children)), stripes_(children.size()), wait_(std::move(notifier)) {
  for (std::size_t i = 0; i < children.size(); ++i) stripes_[i].store = std::move(children[i]);
}

// Ids interleave, so that an id alone says which child holds it and no table is needed.
std::optional<ExtentId> StripedStore::global(std::size_t stripe, ExtentId local) const {
  const std::uint64_t id = std::uint64_t{local.value()} * stripes_.size() + stripe;
  if (id >= ExtentId::kNone) return std::nullopt;
  return ExtentId(static_cast<std::uint32_t>(id));
}

ExtentId StripedStore::local_of(ExtentId extent) const {
  return ExtentId(extent.value() / static_cast<std::uint32_t>(stripes_.size()));
}

std::optional<ExtentId> StripedStore::do_reserve_extent(StoreTier tier) {
  const std::lock_guard lock(mutex_);
  if (reservations_until_look_-- == 0) look_at_free_space();
  double round = 0.0;
  for (Stripe& stripe : stripes_) {
    stripe.credit += stripe.weight;
    round += stripe.weight;
  }
  for (const std::size_t i : stripes_by_preference()) {
    const auto local = stripes_[i].store->reserve_extent(tier);
    if (!local) {
      stripes_[i].weight = stripes_[i].credit = 0.0;  // last choice until the next look
      continue;
    }
    stripes_[i].credit -= round;
    const auto extent = global(i, *local);
    if (!extent) stripes_[i].store->release_extent(*local);
    return extent;
  }
  return std::nullopt;
}

void StripedStore::look_at_free_space() {
  reservations_until_look_ = kReservationsPerLook;
  for (Stripe& stripe : stripes_) {
    const StoreReport report = stripe.store->report();
    const Bytes used = std::min(report.extents_in_use, report.capacity);
    stripe.weight = static_cast<double>((report.capacity - used).count());
  }
}

// Smooth weighted round robin by free space, except that a child whose queue has fallen behind
// waits until it has caught up: a slow disk takes what it can and does not slow the others.
std::vector<std::size_t> StripedStore::stripes_by_preference() const {
  std::size_t shortest = stripes_.front().queued.load();
  for (const Stripe& stripe : stripes_) shortest = std::min(shortest, stripe.queued.load());
  struct Rank {
    bool is_full;
    bool is_behind;
    double debt;
    std::size_t index;
    auto operator<=>(const Rank&) const = default;
  };
  std::vector<Rank> ranks;
  for (std::size_t i = 0; i < stripes_.size(); ++i) {
    const Stripe& stripe = stripes_[i];
    ranks.push_back(
        {stripe.weight == 0.0, stripe.queued.load() > shortest + kQueueSlack, -stripe.credit, i});
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::size_t> order;
  order.reserve(ranks.size());
  for (const Rank& rank : ranks) order.push_back(rank.index);
  return order;
}

void StripedStore::do_release_extent(ExtentId extent) {
  stripes_[stripe_of(extent)].store->release_extent(local_of(extent));
}

void StripedStore::do_submit(const Transfer& transfer) {
  Stripe& stripe = stripes_[stripe_of(transfer.extent)];
  Transfer local = transfer;
  local.extent = local_of(transfer.extent);
  ++stripe.queued;
  if (stripe.backlog.empty() && stripe.store->in_flight() < stripe.store->queue_depth())
    stripe.store->submit(local);
  else
    stripe.backlog.push_back(local);
}

void StripedStore::do_reap(std::vector<TransferResult>& results,
                           std::chrono::milliseconds timeout) {
  wait_.until_finished(results, timeout,
                       [this](std::vector<TransferResult>& out) { collect(out); });
}

void StripedStore::collect(std::vector<TransferResult>& results) {
  for (std::size_t i = 0; i < stripes_.size(); ++i) {
    Stripe& stripe = stripes_[i];
    scratch_.clear();
    stripe.store->reap(scratch_, std::chrono::milliseconds(0));
    stripe.queued -= scratch_.size();
    for (TransferResult& result : scratch_) {
      result.transfer.extent = *global(i, result.transfer.extent);
      results.push_back(std::move(result));
    }
    while (!stripe.backlog.empty() && stripe.store->in_flight() < stripe.store->queue_depth()) {
      stripe.store->submit(stripe.backlog.front());
      stripe.backlog.pop_front();
    }
  }
}

StoreReport StripedStore::do_report() const {
  StoreReport sum;
  sum.busy_time = tally().busy_time;  // the children overlap
  bool is_capacity_known = true;
  bool all_refuse = true;
  for (const Stripe& stripe : stripes_) {
    const StoreReport report = stripe.store->report();
    sum.written += report.written;
    sum.read += report.read;
    sum.extents_in_use += report.extents_in_use;
    sum.extents_peak += report.extents_peak;
    sum.capacity += report.capacity;
    sum.retries += report.retries;
    sum.checked += report.checked;
    sum.wrong += report.wrong;
    sum.recovered += report.recovered;
    is_capacity_known = is_capacity_known && report.capacity > Bytes();
    all_refuse = all_refuse && !report.refusal.empty();
    if (!report.refusal.empty())
      sum.refusal.append(sum.refusal.empty() ? "" : "; ").append(report.refusal);
  }
  if (!is_capacity_known) sum.capacity = Bytes();
  if (!all_refuse) sum.refusal.clear();
  return sum;
}

std::unique_ptr<SpillStore> make_striped_store(std::vector<std::unique_ptr<SpillStore>> children,
                                               std::shared_ptr<Notifier> notifier) {
  return std::make_unique<StripedStore>(std::move(children), std::move(notifier));
}

}  // namespace spillway::swap
