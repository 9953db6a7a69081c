#include "queued_memory.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/mix.h"

namespace spillway::pipeline {
namespace {

std::vector<StorageOrdinal> storages_of(std::span<const OperatorUse> uses, bool only_written) {
  std::vector<StorageOrdinal> storages;
  for (const OperatorUse& use : uses)
    if (use.writes || !only_written) storages.push_back(use.storage);
  return storages;
}

}  // namespace

QueuedMemory::QueuedMemory(transport::InProcessRanks& ranks, transport::Transport& transport,
                           Ownership& ownership, std::uint64_t window)
    : ranks_(ranks),
      transport_(transport),
      ownership_(ownership),
      queue_(window),
      more_work_(transport.make_notifier()),
      progress_(transport.make_notifier()) {
  ranks_.start([this] {
    try {
      work_off();
    } catch (...) {
      has_worker_ = false;
      throw;
    }
    progress_->notify();
    has_worker_ = false;
  });
}

QueuedMemory::~QueuedMemory() {
  is_finished_ = true;
  more_work_->notify();
  while (has_worker_) {
    try {
      progress_->wait();
    } catch (const transport::TransportError&) {
      // The job has ended. The worker is told that, too, when it is its turn.
    }
  }
}

void QueuedMemory::follow(const ActionOrder& order) {
  order_ = &order;
  const std::uint32_t ranks = transport_.ranks() / ownership_.placement().pipelines();
  const std::uint32_t number = transport_.rank().value() % ranks;
  queue_.begin_list(order.list_of(number), order.window_of(number));
}

ActionOrder::Place QueuedMemory::come_to(const OperatorCall& call, const Decision& decision) {
  const OpPhase phase = call.autograd.phase;
  if (order_ == nullptr || !decision.stage || call.accumulates_for.is_some()) return {};
  if (phase != OpPhase::kForward && phase != OpPhase::kBackward) return {};
  const bool is_backward = phase == OpPhase::kBackward;
  const std::uint64_t turn = ownership_.micro_batch() / ownership_.placement().pipelines();
  queue_.come_to_phase(2 * turn + (is_backward ? 1 : 0));
  const std::uint64_t behind = order_->last() + 1;
  return order_->place_of(is_backward, *decision.stage, turn)
      .value_or(ActionOrder::Place{behind, behind});
}

void QueuedMemory::add_move(const Move& move, std::optional<std::uint64_t> micro_batch) {
  const bool sends = move.from == transport_.rank();
  if (!sends && move.to != transport_.rank()) return;
  const std::span<const StorageOrdinal> storage(&move.storage, 1);
  // Copies of parameters leave and arrive ahead of their micro-batch.
  const bool is_copy = ownership_.directory().at(move.storage).home.is_some();
  const bool is_awaited = sends && micro_batch.has_value();
  if (sends || is_copy) micro_batch.reset();
  const TaskId task = queue_.add({.kind = Task::Kind::kTransfer,
                                  .reads = sends ? storage : std::span<const StorageOrdinal>(),
                                  .writes = sends ? std::span<const StorageOrdinal>() : storage,
                                  .micro_batch = micro_batch,
                                  .is_awaited = is_awaited});
  const auto bytes = std::make_shared<std::uint64_t>(0);
  const transport::Tag tag{transport::Stream::kValues, move.number};
  Job& job = jobs_[task];
  if (sends) {
    job.begin = [this, move, bytes, tag] {
      *bytes = bytes_of(move.storage);
      return transport_.send(move.to, tag, device::host_span_of(*bytes));
    };
    return;
  }
  job.begin = [this, move, bytes, tag] {
    return transport_.receive(move.from, tag, device::host_span_of(*bytes));
  };
  job.end = [this, move, bytes] { contents_[move.storage.value()] = *bytes; };
}

std::vector<StorageOrdinal> QueuedMemory::run_for(Duration time, const OperatorCall& call,
                                                  std::size_t results) {
  const Decision decision = ownership_.decide(call);
  if (call.kind == OperatorKind::kNoBytes) return {};
  // Sums of gradients and updates hold no activations.
  std::optional<std::uint64_t> micro_batch;
  if (call.autograd.phase != OpPhase::kOther && !call.accumulates_for.is_some())
    micro_batch = ownership_.micro_batch_of_run();
  const ActionOrder::Place place = come_to(call, decision);
  for (const Move& move : decision.moves) add_move(move, micro_batch);
  std::vector<StorageOrdinal> made;
  for (std::size_t i = 0; i < results; ++i) made.emplace_back(next_++);
  ownership_.made(of_no_size(made));
  const std::uint64_t seed = mix(17, operators_++);
  if (!decision.owners.contains(transport_.rank())) return made;
  std::vector<StorageOrdinal> writes = storages_of(call.uses, true);
  writes.insert(writes.end(), made.begin(), made.end());
  const std::vector<StorageOrdinal> reads = storages_of(call.uses, false);
  const TaskId task = queue_.add({.reads = reads,
                                  .writes = writes,
                                  .micro_batch = micro_batch,
                                  .order = place.order,
                                  .order_of_rest = place.order_of_rest});
  Job& job = jobs_[task];
  job.time = time;
  if (time > Duration(0)) {
    job.micro_batch = micro_batch;
    ++timed_left_[micro_batch.value_or(0)];
  }
  job.compute = [this, seed, reads, writes, results] {
    std::uint64_t hash = seed;
    for (const StorageOrdinal storage : reads) hash = mix(hash, bytes_of(storage));
    for (std::size_t i = 0; i < writes.size(); ++i) {
      hash = mix(hash, i + results < writes.size() ? 1 : 2);
      contents_[writes[i].value()] = hash;
    }
  };
  more_work_->notify();
  return made;
}

void QueuedMemory::wait_until(const std::function<bool()>& is_over) {
  more_work_->notify();
  while (!is_over()) {
    SPILLWAY_ASSERT(has_worker_);
    progress_->wait();
  }
}

std::uint64_t QueuedMemory::ask(StorageOrdinal of) {
  const OperatorUse use{of};
  run({.kind = OperatorKind::kSteers, .autograd = {.phase = OpPhase::kOther}, .uses = {&use, 1}},
      0);
  queue_.demand(of);
  wait_until([&] { return !queue_.is_promised(of); });
  return bytes_of(of);
}

void QueuedMemory::end(StorageOrdinal storage) {
  ownership_.ended(storage);
  ended_.insert(storage.value());
}

QueuedMemory::Contents QueuedMemory::drain() {
  queue_.end_list();
  wait_until([this] { return queue_.size() == 0; });
  for (const std::uint64_t ended : std::exchange(ended_, {})) contents_.erase(ended);
  Contents held;
  for (std::uint64_t i = 0; i < next_; ++i) {
    const RankSet& holders = ownership_.directory().at(StorageOrdinal(i)).holders;
    const auto found = contents_.find(i);
    if (holders.contains(transport_.rank()) && found != contents_.end()) held.insert(*found);
  }
  return held;
}

void QueuedMemory::finish() {
  drain();
  is_finished_ = true;
  wait_until([this] { return !has_worker_; });
}

void QueuedMemory::finish_task(TaskId task) {
  jobs_.erase(task);
  queue_.done(task);
  progress_->notify();
}

void QueuedMemory::compute(TaskId task, Job& job) {
  if (job.micro_batch) {
    begun_.insert(*job.micro_batch);
    most_begun_ = std::max(most_begun_, begun_.size());
  }
  if (job.time > Duration(0)) {
    followed_.push_back(queue_.order_of(task));
    ranks_.work(job.time);
  }
  job.compute();
  if (job.micro_batch && --timed_left_[*job.micro_batch] == 0) begun_.erase(*job.micro_batch);
}

/// Whether one has ended.
bool QueuedMemory::end_transfers() {
  const auto ended = std::find_if(under_way_.begin(), under_way_.end(),
                                  [](const UnderWay& one) { return one.event.is_done(); });
  if (ended == under_way_.end()) return false;
  const UnderWay one = *ended;
  under_way_.erase(ended);
  const device::Outcome outcome = one.event.wait();
  if (!outcome.succeeded()) throw std::logic_error(outcome.error);
  if (jobs_.at(one.task).end) jobs_.at(one.task).end();
  finish_task(one.task);
  return true;
}

void QueuedMemory::work_off() {
  while (!is_finished_) {
    while (end_transfers()) {
    }
    if (const auto task = queue_.next()) {
      Job& job = jobs_.at(*task);
      if (job.begin) {
        under_way_.push_back({*task, job.begin()});
        continue;
      }
      compute(*task, job);
      finish_task(*task);
    } else {
      more_work_->wait();
    }
  }
}

}  // namespace spillway::pipeline
