#include "executor.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <utility>

#include "call_arguments.h"
#include "first_rank.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/split/device_turn.h"

namespace spillway::split {
namespace {

using pipeline::Move;
using pipeline::StorageOrdinal;
using pipeline::Task;
using pipeline::TaskId;

/// Stands for the order of the program itself: what runs between steps writes it, all else reads.
constexpr StorageOrdinal kProgramOrder(StorageOrdinal::kNone - 1);

torch::jit::Stack stack_of(const PendingCall& call,
                           const std::function<c10::Storage(StorageOrdinal)>& held) {
  torch::jit::Stack stack = call.arguments;
  for (c10::IValue& value : stack)
    if (value.isList()) value = value.toList().copy();
  for (const ArgumentTensor& argument : call.tensors) {
    at::Tensor tensor =
        argument.tensor.over(argument.storage.is_some() ? held(argument.storage) : argument.copy);
    c10::IValue& value = stack[argument.argument];
    if (argument.element < 0) {
      value = std::move(tensor);
    } else {
      value.toList().set(static_cast<std::size_t>(argument.element), std::move(tensor));
    }
  }
  return stack;
}

bool is_on_gpu(const PendingCall& call) {
  const auto is_there = [](const auto& one) { return !one.device.is_cpu(); };
  return std::any_of(call.tensors.begin(), call.tensors.end(), is_there) ||
         std::any_of(call.results.begin(), call.results.end(), is_there) ||
         std::any_of(call.blanks.begin(), call.blanks.end(), is_there);
}

/// The GPU that a call has been given something to do, whose results are on the host, too, and
/// which may not have come there.
std::optional<c10::Device> still_copies_from(const torch::jit::Stack& results,
                                             const PendingCall& call) {
  std::optional<c10::Device> device;
  for (const ArgumentTensor& argument : call.tensors)
    if (!argument.device.is_cpu()) device = argument.device;
  bool is_on_host = false;
  for_each_tensor(results, [&](const at::Tensor& tensor, std::size_t) {
    is_on_host = is_on_host || tensor.is_cpu();
  });
  return is_on_host ? device : std::nullopt;
}

}  // namespace

Executor::Executor(runtime::Runtime& runtime, transport::Transport& transport, pipeline::Job& job,
                   Compute compute, std::uint64_t window, ShardExchange* shards, RankLog* log,
                   const DeviceBytes& devices, DeviceMessages& between_devices)
    : runtime_(runtime),
      transport_(transport),
      job_(job),
      compute_(compute),
      shards_(shards),
      devices_(devices),
      between_devices_(between_devices),
      log_(log),
      more_work_(transport.make_notifier()),
      queue_(window),
      occupation_(transport.ranks() * (shards == nullptr ? 1 : shards->shards())) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { work_off(); });
  ::pthread_setname_np(thread_.native_handle(), "spill-executor");
  have_job_described(true);
}

Executor::~Executor() { stop(); }

void Executor::stop() {
  if (!thread_.joinable()) return;
  have_job_described(false);
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  notify();
  thread_.join();
}

void Executor::notify() {
  std::shared_ptr<transport::Notifier> more_work;
  {
    const std::lock_guard lock(mutex_);
    more_work = more_work_;
  }
  more_work->notify();
}

TaskId Executor::add(const Task& task, Work work) {
  TaskId id;
  {
    const std::lock_guard lock(mutex_);
    id = queue_.add(task);
    work_.emplace(id, std::move(work));
  }
  notify();
  return id;
}

void Executor::add_call(PendingCall call, std::span<const StorageOrdinal> reads,
                        std::span<const StorageOrdinal> writes, MicroBatch micro_batch,
                        std::optional<std::uint64_t> segment, const Place& place) {
  std::vector<StorageOrdinal> read(reads.begin(), reads.end());
  read.push_back(kProgramOrder);
  auto kept = std::make_shared<PendingCall>(std::move(call));
  add({.kind = Task::Kind::kCompute,
       .reads = read,
       .writes = writes,
       .micro_batch = micro_batch,
       .order = place.order,
       .order_of_rest = place.order_of_rest,
       .segment = segment},
      {.compute =
           [this, kept, written = std::vector<StorageOrdinal>(writes.begin(), writes.end())] {
             run_call(*kept, written);
           },
       .name = kept_name_of(kept->op),
       .action = kept->action});
}

void Executor::add_move(const Move& move, Bytes size, c10::Device device, MicroBatch micro_batch,
                        const ForAction& action, std::uint64_t order) {
  const std::span<const StorageOrdinal> storage(&move.storage, 1);
  const std::span<const StorageOrdinal> none;
  const bool sends = move.from == transport_.rank();
  const bool is_between_devices = between_devices_.carries(device, size);
  add({.kind = Task::Kind::kTransfer,
       .reads = sends ? storage : none,
       .writes = sends ? none : storage,
       .micro_batch = micro_batch,
       .is_awaited = sends && action.has_value()},
      {.move = move,
       .size = size,
       .device = device,
       .is_between_devices = is_between_devices,
       .room = is_between_devices ? between_devices_.room_for(size) : Bytes(),
       .action = action,
       .order = order});
}

void Executor::add_drop(StorageOrdinal storage) {
  const std::span<const StorageOrdinal> written(&storage, 1);
  add({.kind = Task::Kind::kTransfer, .writes = written}, {.dropped = storage});
}

void Executor::add_effort(std::unique_ptr<Effort> effort, std::span<const StorageOrdinal> on,
                          bool writes) {
  Work work;
  work.effort = std::move(effort);
  work.on.assign(on.begin(), on.end());
  work.writes = writes;
  add({.kind = Task::Kind::kTransfer,
       .reads = on,
       .writes = writes ? on : std::span<const StorageOrdinal>()},
      std::move(work));
}

void Executor::add_barrier(std::uint64_t step, std::function<void()> work) {
  const std::span<const StorageOrdinal> written(&kProgramOrder, 1);
  auto begin = [this, step, work = std::move(work)] {
    {
      const std::lock_guard lock(mutex_);
      latest_work_.begin_step(step);
    }
    work();
  };
  add({.kind = Task::Kind::kCompute, .writes = written},
      {.compute = std::move(begin), .name = "the begin of a step"});
}

void Executor::wake_by(std::shared_ptr<transport::Notifier> notifier) {
  const std::span<const StorageOrdinal> written(&kProgramOrder, 1);
  auto change = [this, notifier = std::move(notifier)]() mutable {
    const std::lock_guard lock(mutex_);
    more_work_ = std::move(notifier);
  };
  add({.kind = Task::Kind::kCompute, .writes = written},
      {.compute = std::move(change), .name = "messages between devices"});
  wait_until_left(0);
}

void Executor::hold(StorageOrdinal storage, c10::Storage bytes) {
  // The argument ends after the lock, with what was there.
  const std::lock_guard lock(mutex_);
  std::swap(held_[storage], bytes);
}

bool Executor::has(StorageOrdinal storage) const {
  const std::lock_guard lock(mutex_);
  return held_.contains(storage) || queue_.is_promised(storage);
}

c10::Storage Executor::held(StorageOrdinal storage) const {
  c10::Storage found;
  {
    const std::lock_guard lock(mutex_);
    const auto at = held_.find(storage);
    if (at != held_.end()) found = at->second;
  }
  between_devices_.before_read(found);
  return found;
}

/// What messages still read stays as it is.
c10::Storage Executor::held_to_write(StorageOrdinal storage) {
  const c10::Storage before = held(storage);
  c10::Storage now = between_devices_.before_write(before);
  if (now.unsafeGetStorageImpl() != before.unsafeGetStorageImpl()) hold(storage, now);
  return now;
}

c10::Storage Executor::wait_for(StorageOrdinal storage, bool writes, std::string_view who) {
  const auto is_there = [&] {
    return writes ? !queue_.is_in_use(storage) : !queue_.is_promised(storage);
  };
  if (!is_over(is_there)) {
    const TimePoint begun = clock_.now();
    {
      const std::lock_guard lock(mutex_);
      queue_.demand(storage);
    }
    wait_until(is_there, "the bytes of a tensor that the program reads");
    const Duration waited = clock_.now() - begun;
    const std::lock_guard lock(mutex_);
    occupation_.program_has_waited(who, waited);
  }
  if (const std::string lost = between_devices_.why_lost(); !lost.empty()) job_.abort(lost);
  return writes ? held_to_write(storage) : held(storage);
}

void Executor::write(runtime::RankFigures& figures) const {
  const std::lock_guard lock(mutex_);
  occupation_.write(figures);
}

void Executor::wait_until_left(std::size_t tasks) {
  wait_until([&] { return queue_.size() <= tasks && (tasks > 0 || messages_ == 0); },
             "its own queue of operators");
}

void Executor::wait_until_begun(std::uint64_t micro_batch) {
  wait_until(
      [&] {
        const auto oldest = queue_.oldest_micro_batch();
        return !oldest || *oldest >= micro_batch;
      },
      "its own queue of operators");
}

void Executor::lift_window() {
  {
    const std::lock_guard lock(mutex_);
    queue_.lift_window();
  }
  notify();
}

void Executor::begin_list(std::span<const pipeline::ListedAction> list, std::uint64_t window) {
  const std::lock_guard lock(mutex_);
  queue_.begin_list(list, window);
}

void Executor::come_to_phase(std::uint64_t phase) {
  {
    const std::lock_guard lock(mutex_);
    queue_.come_to_phase(phase);
  }
  notify();
}

void Executor::end_list() {
  {
    const std::lock_guard lock(mutex_);
    queue_.end_list();
  }
  notify();
}

void Executor::give_up_list() {
  {
    const std::lock_guard lock(mutex_);
    queue_.give_up_list();
  }
  notify();
}

bool Executor::is_over(const std::function<bool()>& is_over_locked) const {
  const std::lock_guard lock(mutex_);
  return is_over_locked();
}

void Executor::wait_until(const std::function<bool()>& is_over_locked, const char* what) {
  notify();
  const auto what_text = [what] { return std::string(what); };
  // Of the two jobs, the one asks whose rank is waited for.
  while (!is_over(is_over_locked)) {
    const bool is_of_shard = waits_for_shard();
    const auto ends = [&] { return is_over(is_over_locked) || waits_for_shard() != is_of_shard; };
    if (is_of_shard) {
      shards_->job().wait_until(
          ends, [&] { return shards_->waits_for(); }, what_text);
      continue;
    }
    job_.wait_until(
        ends,
        [&] {
          const std::lock_guard lock(mutex_);
          return waits_for_;
        },
        what_text);
  }
}

/// Whether it waits for other shards, and for no message within its own.
bool Executor::waits_for_shard() const {
  if (shards_ == nullptr || !shards_->waits_for().is_some()) return false;
  const std::lock_guard lock(mutex_);
  return !waits_for_.is_some();
}

Rank Executor::rank_in_job(Rank shard, Rank rank) const {
  return split::rank_in_job(transport_.ranks(), shard, rank);
}

void Executor::notify_program() {
  job_.notify();
  if (shards_ != nullptr) shards_->job().notify();
}

/// Both jobs: either may ask where this rank is.
void Executor::have_job_described(bool is_running) {
  std::function<std::vector<std::string>()> more;
  std::function<std::uint64_t()> progress;
  if (is_running) {
    more = [this] { return describe(); };
    progress = [this] {
      const std::lock_guard lock(mutex_);
      return latest_work_.progress();
    };
  }
  job_.describe_by(more, progress);
  if (shards_ != nullptr) shards_->job().describe_by(more, progress);
}

std::vector<std::string> Executor::describe() const {
  const TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  return latest_work_.describe(now, queue_.size());
}

void Executor::finish(TaskId task, bool is_computed) {
  {
    const std::lock_guard lock(mutex_);
    if (is_computed) {
      const TimePoint now = clock_.now();
      occupation_.end(now);
      latest_work_.end(now);
    }
    latest_work_.has_come(task);
    work_.erase(task);
    queue_.done(task);
    waits_for_ = Rank();
    for (const UnderWay& one : under_way_)
      if (one.move.to == transport_.rank() && !one.is_handed_on) {
        waits_for_ = one.move.from;
        break;
      }
  }
  notify_program();
}

void Executor::begin_effort(TaskId task, Work& work) {
  std::vector<c10::Storage> storages;
  for (const StorageOrdinal storage : work.on) {
    storages.push_back(work.writes ? held_to_write(storage) : held(storage));
    SPILLWAY_ASSERT(storages.back().unsafeGetStorageImpl() != nullptr);
  }
  {
    const std::lock_guard lock(mutex_);
    latest_work_.add({.kind = LatestWork::Piece::Kind::kExchanges});
  }
  work.effort->begin(std::move(storages));
  efforts_.emplace_back(task, std::move(work.effort));
}

/// Whether one has ended.
bool Executor::advance_efforts() {
  if (efforts_.empty()) return false;
  const Rank waited_for = shards_->waits_for();
  bool has_ended = false;
  for (auto one = efforts_.begin(); one != efforts_.end();) {
    if (!one->second->advance()) {
      ++one;
      continue;
    }
    const TaskId task = one->first;
    one = efforts_.erase(one);
    has_ended = true;
    finish(task, /*is_computed=*/false);
  }
  if (has_ended && waited_for.is_some()) {
    const std::lock_guard lock(mutex_);
    occupation_.message_ended(rank_in_job(waited_for, transport_.rank()));
  }
  if (shards_->note_waits()) notify_program();
  return has_ended;
}

void Executor::run_call(const PendingCall& call, std::span<const StorageOrdinal> writes) {
  const recompute::SurroundingsGuard surroundings(*call.surroundings, {});
  const DeviceTurn turn(std::any_of(call.blanks.begin(), call.blanks.end(),
                                    [](const auto& blank) { return !blank.device.is_cpu(); }));
  if (between_devices_.is_on())
    for (const StorageOrdinal storage : writes) held_to_write(storage);
  for (const PendingResult& blank : call.blanks)
    hold(blank.storage, made_storage(blank.size.count(), blank.device));
  if (call.bytes.file != nullptr) {
    call.bytes.read_to(runtime_, held(call.blanks.front().storage).mutable_data());
    return;
  }
  torch::jit::Stack stack =
      stack_of(call, [this](StorageOrdinal storage) { return held(storage); });
  try {
    const bool is_of_gpu = call.unit && is_on_gpu(call);
    const auto moment = is_of_gpu ? unit_times_.moment() : std::nullopt;
    const TimePoint begun = clock_.now();
    compute_(call.op, call.below, stack, call.traits);
    if (moment)
      unit_times_.add(*call.unit, call.traits.autograd.phase, *moment, *unit_times_.moment());
    if (const auto device = still_copies_from(stack, call)) DeviceBytes::wait_for(*device);
    const TimePoint ended = clock_.now();
    if (call.unit && !is_of_gpu)
      unit_times_.add(*call.unit, call.traits.autograd.phase, ended - begun);
    if (log_ != nullptr) log_->add_operator(call.action, begun, ended);
  } catch (const std::exception& error) {
    throw Error(
        "{} has failed on the rank that computes it{} in step {}, and the others went on: {}",
        kept_name_of(call.op), purpose_of(call.action), latest_work_.step(), failure_text(error));
  }
  std::size_t number = 0;
  auto expected = call.results.begin();
  for_each_tensor(stack, [&](const at::Tensor& tensor, std::size_t) {
    if (expected != call.results.end() && expected->number == number) {
      if (Bytes(tensor.storage().nbytes()) != expected->size)
        throw Error("{} has made a storage of {} where others of its kind make {}",
                    kept_name_of(call.op), Bytes(tensor.storage().nbytes()), expected->size);
      hold(expected->storage, tensor.storage());
      ++expected;
    }
    ++number;
  });
  if (expected != call.results.end())
    throw Error("{} has made fewer tensors than others of its kind", kept_name_of(call.op));
}

void Executor::run(TaskId task) {
  Work work;
  {
    const std::lock_guard lock(mutex_);
    work = std::move(work_.at(task));
    if (work.compute) {
      const TimePoint now = clock_.now();
      occupation_.begin(task, now);
      latest_work_.begin({.name = work.name, .action = work.action}, now);
    }
  }
  if (work.move) {
    const std::uint64_t order = work.order;
    postponed_.emplace(Postponed(order, task), std::move(work));
    begin_postponed();
    return;
  }
  if (work.effort) {
    begin_effort(task, work);
    return;
  }
  c10::Storage dropped;  // Ends without the lock.
  if (work.dropped.is_some()) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(work.dropped);
    if (found != held_.end()) {
      dropped = std::move(found->second);
      held_.erase(found);
    }
  }
  const bool is_computed = work.compute != nullptr;
  if (is_computed) work.compute();
  work = {};
  finish(task, is_computed);
}

/// A program that waits on some ranks alone, in mid-step, may have asked others for more than it
/// has asked of these, which lists cannot know.
void Executor::wait_for_work() {
  constexpr Duration kPatience = std::chrono::minutes(1);
  bool holds_back = false;
  {
    const std::lock_guard lock(mutex_);
    holds_back = queue_.holds_back();
  }
  if (!holds_back) {
    held_since_.reset();
    more_work_->wait();
    return;
  }
  if (!held_since_) held_since_ = clock_.now();
  if (more_work_->wait(*held_since_ + kPatience)) return;
  held_since_.reset();
  log_warning("operators run in the order in which they can from now on: what the schedule has "
              "next on rank {} has waited for {}",
              transport_.rank().value(), seconds_text(seconds(kPatience)));
  has_given_up_list_ = true;
  give_up_list();
}

void Executor::work_off() noexcept {
  try {
    while (true) {
      while (end_transfers() || advance_efforts()) {
      }
      std::optional<TaskId> task;
      {
        const std::lock_guard lock(mutex_);
        if (is_ending_) return;
        task = queue_.next();
        if (!task) occupation_.found_nothing(queue_.next_added());
      }
      if (task) {
        held_since_.reset();
        run(*task);
      } else {
        wait_for_work();
      }
    }
  } catch (const std::exception& error) {
    job_.abort(error.what());
  }
}

}  // namespace spillway::split
