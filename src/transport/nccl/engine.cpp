#include "engine.h"

#include <pthread.h>

#include <algorithm>
#include <future>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/log.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "start.h"

namespace spillway::transport::nccl {
namespace {

/// A device that is lost ends no work, and NCCL tells of failures only who asks.
constexpr Duration kLookAtDevice = std::chrono::milliseconds(100);
/// Beginning something for the first time takes NCCL a while, after which it does not call.
constexpr Duration kLookAtNccl = std::chrono::microseconds(50);
constexpr Duration kStop = std::chrono::seconds(2);

}  // namespace

/// One of the host transport's, which is told of devices, too.
class Engine::RankNotifier final : public Notifier {
 public:
  RankNotifier(Engine& rank, std::optional<Stream> stream)
      : rank_(rank), stream_(stream), host_(rank.host_.make_notifier(stream)) {
    const std::lock_guard lock(rank_.mutex_);
    rank_.notifiers_.push_back(this);
  }
  ~RankNotifier() override {
    const std::lock_guard lock(rank_.mutex_);
    std::erase(rank_.notifiers_, this);
  }

  void notify_of(Stream stream) {
    if (!stream_ || *stream_ == stream) notify();
  }
  void notify() override { host_->notify(); }
  bool wait(TimePoint until) override {
    const bool is_notified = host_->wait(until);
    const std::lock_guard lock(rank_.mutex_);
    rank_.check_job_locked();
    return is_notified;
  }

 private:
  Engine& rank_;
  const std::optional<Stream> stream_;
  const std::unique_ptr<Notifier> host_;
};

Engine::Engine(Transport& host, device::Device& device, const NcclOptions& options)
    : host_(host),
      device_(device),
      options_(options),
      wake_(host.make_notifier(Stream::kDevices)),
      agreement_(host.rank()),
      watch_(options.patience, options.silence) {
  {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run_on_nccl_thread(); });
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stage_ != Stage::kStarting; });
  if (!refusal_) return;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(refusal_);
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_->notify();
  thread_.join();
}

void Engine::run_on_nccl_thread() {
  ::pthread_setname_np(::pthread_self(), "spillway-nccl");
  try {
    start_on_nccl_thread();
  } catch (...) {
    refusal_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    stage_ = refusal_ ? Stage::kEnded : Stage::kRunning;
    changed_.notify_all();
  }
  if (refusal_) return;
  device::with_current_device(device_, [this] {
    try {
      exchange_on_nccl_thread();
      work_->end(options_.start_limit);
    } catch (const std::exception& error) {
      fail(error.what());
    }
    work_.reset();
    office_.reset();
  });
}

void Engine::start_on_nccl_thread() {
  library_ = find_library(options_.library);
  const UniqueId id = agree_on_start(host_, device_, library_, options_);
  device::with_current_device(device_, [&] {
    auto job = std::make_unique<Communicator>(library_, static_cast<int>(host_.ranks()), id,
                                              static_cast<int>(host_.rank().value()));
    job->wait_until_ready(options_.start_limit, "its start");
    work_.emplace(library_, device_, std::move(job), wake_);
  });
  office_.emplace(host_);
}

device::Event Engine::add(std::shared_ptr<Operation> operation) {
  const auto& ready = operation->ready.state();
  // The queue would wait for it on a thread of the driver, which all others may need.
  if (!operation->ready.is_done() && ready->device().is_host() &&
      dynamic_cast<const Message*>(ready.get()) == nullptr)
    throw Error("{} waits for work of the host, which a device cannot", operation->name);
  const device::Event event(operation->message);
  {
    const std::lock_guard lock(mutex_);
    check_job_locked();
    const Request request = operation->request(host_.rank());
    const bool is_new =
        operations_.try_emplace(name_of(operation->circle, request), operation).second;
    if (!is_new)
      throw Error("{} is {} twice at a time", operation->name,
                  operation->kind == Operation::Kind::kSend      ? "sent"
                  : operation->kind == Operation::Kind::kReceive ? "received"
                                                                 : "begun");
    orders_.push_back(std::move(operation));
  }
  wake_->notify();
  return event;
}

std::uint32_t Engine::make_groups(const std::vector<std::vector<Rank>>& groups) {
  std::promise<void> made;
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    check_job_locked();
    number = ++groups_;
    tasks_.emplace_back([&](const std::string& failure) {
      try {
        if (!failure.empty()) throw TransportError("{}", failure);
        add_group_on_nccl_thread(number, groups);
        made.set_value();
      } catch (const TransportError&) {
        // Some ranks may have the group: the job ends, and then the caller is told.
        if (failure.empty()) throw;
        made.set_exception(std::current_exception());
      } catch (...) {
        made.set_exception(std::current_exception());
      }
    });
  }
  wake_->notify();
  made.get_future().get();
  const bool is_in_one = std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
    return std::find(group.begin(), group.end(), host_.rank()) != group.end();
  });
  return is_in_one ? number : 0;
}

void Engine::add_group_on_nccl_thread(std::uint32_t number,
                                      const std::vector<std::vector<Rank>>& groups) {
  if (!work_->is_idle() || agreement_.held())
    throw Error("groups of ranks are made before their devices have work for one another");
  int color = kNoColor;
  int key = 0;
  std::vector<Rank> members;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto self = std::find(groups[i].begin(), groups[i].end(), host_.rank());
    if (self == groups[i].end()) continue;
    color = static_cast<int>(i);
    key = static_cast<int>(self - groups[i].begin());
    members = groups[i];
  }
  std::unique_ptr<Communicator> part;
  if (library_.call.ncclCommSplit != nullptr) {
    part = Communicator::split(work_->job(), color, key, options_.start_limit);
  } else if (!members.empty()) {
    UniqueId id{};
    if (key == 0) work_->job().check(library_.call.ncclGetUniqueId(&id), "the start of a group");
    id = share(host_, members, number, id, options_.start_limit);
    part = std::make_unique<Communicator>(library_, static_cast<int>(members.size()), id, key);
    part->wait_until_ready(options_.start_limit, "the start of a group");
  }
  if (part == nullptr) return;
  work_->add_group(number, std::move(part));
  std::sort(members.begin(), members.end());
  agreement_.add_group(number, std::move(members));
}

std::unique_ptr<Notifier> Engine::make_notifier(std::optional<Stream> stream) {
  return std::make_unique<RankNotifier>(*this, stream);
}

void Engine::exchange_on_nccl_thread() {
  while (!has_ended()) {
    bool has_moved = take_orders();
    has_moved |= take_letters();
    has_moved |= carry_on();
    for (const auto& [to, letter] : agreement_.take_letters())
      if (!has_sent_last_) office_->send(to, letter);
    if (!has_moved) rest();
  }
}

/// What other threads have left for this one.
bool Engine::take_orders() {
  const bool has_worked = do_next_task();
  Operations orders;
  bool is_ending = false;
  {
    const std::lock_guard lock(mutex_);
    orders.swap(orders_);
    is_ending = is_ending_;
  }
  unready_.insert(unready_.end(), orders.begin(), orders.end());
  const bool has_offered = offer_what_may_be();
  const bool ends_now = is_ending && !has_said_end_;
  if (ends_now) {
    has_said_end_ = true;
    agreement_.end();
    office_->send_all(Letter::Kind::kEnded);
  }
  return has_offered || has_worked || ends_now;
}

/// One that ends the job stays among the tasks, and is told of it.
bool Engine::do_next_task() {
  Task task;
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.empty()) return false;
    task = tasks_.front();
  }
  task({});
  const std::lock_guard lock(mutex_);
  tasks_.erase(tasks_.begin());
  return true;
}

/// What uses the bytes of a message before its end has to stand behind it.
bool Engine::offer_what_may_be() {
  return std::erase_if(unready_, [&](const std::shared_ptr<Operation>& operation) {
           const auto* const before = dynamic_cast<const Message*>(operation->ready.state().get());
           if (before != nullptr) {
             const std::optional<device::Event> moment = before->moment();
             if (!moment && !before->is_done()) return false;
             // Nobody may take for bytes what has not come.
             if (before->is_done() && !before->wait().succeeded())
               throw TransportError("{} stands behind a message that has failed: {}",
                                    operation->name, before->wait().error);
             operation->ready = moment ? *moment : device::Event();
           }
           agreement_.offer(operation->circle, operation->request(host_.rank()));
           return true;
         }) > 0;
}

bool Engine::take_letters() {
  bool has_come = false;
  while (const auto letter = office_->take()) {
    take_letter(letter->first, letter->second);
    has_come = true;
  }
  return has_come;
}

void Engine::take_letter(Rank from, const Letter& letter) {
  watch_.has_heard(from, options_.clock->now());
  switch (letter.kind) {
    case Letter::Kind::kAsk:
      if (!has_sent_last_) office_->send(from, {.kind = Letter::Kind::kAnswer});
      return;
    case Letter::Kind::kAnswer: return;
    default: agreement_.take(from, letter);
  }
}

/// What letters and the device have brought about.
bool Engine::carry_on() {
  bool has_moved = false;
  for (const Agreement::Misfit& misfit : agreement_.take_misfits()) {
    const auto operation = find(misfit.circle, misfit.theirs);
    end_operation(*operation, misfit.has_ended
                                  ? message("rank {} has left the job without {}", misfit.other,
                                            operation->name)
                                  : operation->misfit(host_.rank(), misfit.theirs, misfit.other));
    has_moved = true;
  }
  for (const Agreement::Batch& batch : agreement_.take_agreed()) {
    Operations operations;
    for (const Request& request : batch.requests) operations.push_back(find(batch.circle, request));
    work_->add(std::move(operations));
    has_moved = true;
  }
  const Operations ended = work_->advance();
  for (const auto& operation : ended) end_operation(*operation, {});
  const Operations begun = work_->take_begun();
  tell(begun);
  return has_moved || !ended.empty() || !begun.empty();
}

std::shared_ptr<Operation> Engine::find(const Circle& circle, const Request& request) {
  const std::lock_guard lock(mutex_);
  const auto at = operations_.find(name_of(circle, request));
  if (at == operations_.end())
    throw TransportError("rank {} is told to work on what it was not asked for", host_.rank());
  return at->second;
}

void Engine::end_operation(Operation& operation, std::string error) {
  const std::lock_guard lock(mutex_);
  // First: who sees the end may use the name again.
  operations_.erase(name_of(operation.circle, operation.request(host_.rank())));
  operation.message->finish(std::move(error));
  for (RankNotifier* const notifier : notifiers_) notifier->notify_of(operation.tag.stream);
}

/// Of those that queues may wait for from now on.
void Engine::tell(const Operations& operations) {
  const std::lock_guard lock(mutex_);
  for (const auto& operation : operations)
    for (RankNotifier* const notifier : notifiers_) notifier->notify_of(operation->tag.stream);
}

/// Ranks without which it does not go on.
std::vector<Rank> Engine::awaited() {
  std::vector<Rank> ranks;
  const auto add = [&](const Circle& circle) {
    for (const Rank rank : agreement_.members(circle))
      if (rank != host_.rank() && std::find(ranks.begin(), ranks.end(), rank) == ranks.end())
        ranks.push_back(rank);
  };
  if (const Operation* const oldest = work_->oldest()) add(oldest->circle);
  if (agreement_.held()) add(agreement_.held()->circle);
  if (has_sent_last_) return office_->without_last();
  return ranks;
}

std::string Engine::subject() {
  if (const Operation* const oldest = work_->oldest()) return oldest->name;
  if (agreement_.held())
    return find(agreement_.held()->circle, agreement_.held()->requests.front())->name;
  return has_sent_last_ ? "the end" : "what devices do next";
}

/// Whether all ranks are done with one another. Who is done says so, and still serves the others.
bool Engine::has_ended() {
  if (!has_said_end_) return false;
  if (!has_sent_last_) {
    if (!work_->is_idle() || agreement_.held()) return false;
    const std::lock_guard lock(mutex_);
    if (!operations_.empty()) return false;
    has_sent_last_ = true;
    office_->send_all(Letter::Kind::kLast);
  }
  return office_->have_all_sent_last();
}

void Engine::rest() {
  const TimePoint moment = options_.clock->now();
  const std::vector<Rank> ranks = awaited();
  const SilenceWatch::Findings found = watch_.look(ranks, moment);
  if (found.gone)
    throw TransportError("rank {} does not answer while rank {} waits for it with {}", *found.gone,
                         host_.rank(), subject());
  for (const Rank rank : found.to_ask) office_->send(rank, {.kind = Letter::Kind::kAsk});
  TimePoint until = found.next;
  if (work_->is_under_way()) {
    if (moment - checked_at_ >= kLookAtDevice && !work_->is_beginning()) {
      work_->check();
      checked_at_ = moment;
    }
    until = std::min(until, moment + kLookAtDevice);
  }
  if (work_->is_beginning()) until = moment + kLookAtNccl;
  wake_->wait(until);
}

void Engine::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = reason;
  }
  work_->stop(kStop);  // Before memory is given back.
  const std::lock_guard lock(mutex_);
  for (const auto& [name, operation] : operations_) operation->message->finish(reason);
  operations_.clear();
  for (RankNotifier* const notifier : notifiers_) notifier->notify();
  for (const Task& task : std::exchange(tasks_, {})) task(reason);
}

void Engine::check_job_locked() const {
  if (!failure_.empty()) throw TransportError("{}", failure_);
}

}  // namespace spillway::transport::nccl
