#include "support/fault_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "spillway/base/assert.h"
#include "store/ram/factory.h"
#include "store/retrying/factory.h"
#include "store/verifying/factory.h"

namespace spillway::swap {
namespace {

double rate(std::mt19937_64& random, double most) {
  return random() % 3 == 0 ? 0.0 : most * static_cast<double>(random() % 1000) / 1000.0;
}

}  // namespace

FaultStore::FaultStore(std::unique_ptr<SpillStore> child, std::shared_ptr<Notifier> notifier,
                       FaultOptions options)
    : ForwardingStore(std::move(child)),
      wait_(std::move(notifier)),
      options_(std::move(options)),
      random_(options_.seed),
      copies_(queue_depth() * extent_size().count()),
      routes_(queue_depth()) {}

bool FaultStore::chance(double probability) {
  return std::uniform_real_distribution<double>(0.0, 1.0)(random_) < probability;
}

std::size_t FaultStore::idle_route() const {
  const auto found = std::find_if(routes_.begin(), routes_.end(),
                                  [](const Route& route) { return route.is_idle; });
  SPILLWAY_ASSERT(found != routes_.end());
  return static_cast<std::size_t>(found - routes_.begin());
}

void FaultStore::flip_a_bit(std::byte* memory, std::size_t size) {
  const std::uint64_t bit = random_() % (size * 8);
  memory[bit / 8] ^= std::byte{1} << (bit % 8);
}

void FaultStore::do_submit(const Transfer& transfer) {
  const bool is_write = transfer.direction == Direction::kWrite;
  const bool is_dead = is_write && submitted_ >= options_.transfers_until_death;
  ++submitted_;
  const bool may_fail = is_write ? !options_.spares_writes : !options_.spares_reads;
  if (is_dead || (may_fail && chance(options_.failing))) {
    const int error = is_dead ? EIO : options_.errors[random_() % options_.errors.size()];
    hold({transfer, error, is_dead ? "the disk is dead" : "a fault on purpose"});
    wait_.notifier()
        .notify();  // As every store that finishes at once: it may be asked in mid-reap.
    return;
  }
  const std::size_t index = idle_route();
  Route& route = routes_[index];
  route = {transfer, 0, !is_write && chance(options_.flipping_reads), false};
  Transfer sent = transfer;
  sent.tag = index;
  if (may_fail && transfer.size >= 2 * kTransferAlignment && chance(options_.breaking_off)) {
    route.error = EIO;
    sent.size = transfer.size / 2 / kTransferAlignment * kTransferAlignment;
  } else if (is_write && chance(options_.flipping_writes)) {
    sent.memory = copies_.begin() + index * extent_size().count();
    std::memcpy(sent.memory, transfer.memory, transfer.size);
    flip_a_bit(sent.memory, sent.size);
  }
  child_->submit(sent);
}

void FaultStore::hold(TransferResult result) {
  constexpr int kLongestDelay = 6;
  const int reaps = chance(options_.delaying) ? 1 + static_cast<int>(random_() % kLongestDelay) : 0;
  held_.push_back({std::move(result), reaps});
}

void FaultStore::do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) {
  wait_.until_finished(results, timeout,
                       [this](std::vector<TransferResult>& out) { collect(out); });
}

void FaultStore::collect(std::vector<TransferResult>& results) {
  std::vector<TransferResult> from_child;
  child_->reap(from_child, std::chrono::milliseconds(0));
  for (TransferResult& result : from_child) {
    Route& route = routes_[result.transfer.tag];
    if (result.error == 0 && route.error != 0) {
      result.error = route.error;
      result.detail = "broken off on purpose";
    }
    if (route.flips_read && result.error == 0)
      flip_a_bit(route.original.memory, route.original.size);
    result.transfer = route.original;
    route.is_idle = true;
    hold(std::move(result));
  }
  std::shuffle(held_.begin(), held_.end(), random_);
  const auto is_late = [](const Held& held) { return held.reaps_left > 0; };
  const auto due = std::stable_partition(held_.begin(), held_.end(), is_late);
  for (auto held = due; held != held_.end(); ++held) results.push_back(std::move(held->result));
  held_.erase(due, held_.end());
  for (Held& held : held_) --held.reaps_left;
  if (!held_.empty()) wait_.notifier().notify();  // nobody else will call for what is held back
}

std::unique_ptr<SpillStore> make_faulty_disk(std::mt19937_64& random, Faults kinds, Bytes capacity,
                                             std::shared_ptr<Notifier> notifier,
                                             const Clock& clock) {
  FaultOptions faults;
  faults.seed = random();
  faults.failing = rate(random, 0.5);
  faults.breaking_off = rate(random, 0.3);
  if (kinds == Faults::kAll) {
    faults.flipping_writes = rate(random, 0.1);
    faults.flipping_reads = rate(random, 0.2);
  }
  faults.spares_reads = kinds == Faults::kOfWrites;
  faults.delaying = rate(random, 0.8);
  faults.errors = {EIO, EAGAIN, ENOMEM, EINTR, ETIMEDOUT};
  if (random() % 4 == 0) faults.errors.push_back(ENOSPC);
  if (random() % 4 == 0) faults.transfers_until_death = random() % 30;
  const auto depth = static_cast<std::uint32_t>(1 + random() % 4);
  auto disk =
      std::make_unique<FaultStore>(make_ram_store(capacity, depth, notifier), notifier, faults);
  RetryOptions retries;
  retries.attempts_max = 1 + static_cast<std::uint32_t>(random() % 6);
  retries.first_pause = std::chrono::microseconds(20);
  return make_retrying_store(make_verifying_store(std::move(disk), "a faulty disk"), notifier,
                             clock, retries);
}

}  // namespace spillway::swap
