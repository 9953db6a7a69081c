#include "device_work.h"

#include <thread>

#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::transport::nccl {

DeviceWork::DeviceWork(const Library& library, device::Device& device,
                       std::unique_ptr<Communicator> job, std::shared_ptr<Notifier> wake)
    : library_(library),
      wake_(std::move(wake)),
      queue_(device.make_queue("NCCL")),
      ends_(device.make_queue("ends of NCCL")),
      job_(std::move(job)) {}

DeviceWork::~DeviceWork() {
  if (job_ != nullptr) stop(std::chrono::seconds(1));
}

void DeviceWork::add_group(std::uint32_t group, std::unique_ptr<Communicator> communicator) {
  groups_.emplace(group, std::move(communicator));
}

void DeviceWork::add(Operations operations) { waiting_.push_back(std::move(operations)); }

Communicator& DeviceWork::communicator_of(const Operations& operations) const {
  const Circle& circle = operations.front()->circle;
  return circle.group == 0 ? *job_ : *groups_.at(circle.group);
}

DeviceWork::Operations DeviceWork::advance() {
  while (true) {
    if (is_beginning_) {
      if (!communicator_of(under_way_.back().operations).is_ready()) break;
      note_begun(under_way_.back());
    }
    if (waiting_.empty()) break;
    under_way_.push_back({std::move(waiting_.front()), {}});
    waiting_.pop_front();
    begin(under_way_.back());
  }
  Operations ended;
  // One after the other, as the device does it.
  while (under_way_.size() > (is_beginning_ ? 1U : 0U) && under_way_.front().moment.is_done()) {
    Batch& batch = under_way_.front();
    const device::Outcome outcome = batch.moment.wait();
    if (!outcome.succeeded())
      throw TransportError("{}: {}", batch.operations.front()->name, outcome.error);
    // What NCCL has given up is over, too.
    communicator_of(batch.operations).check_others();
    ended.insert(ended.end(), batch.operations.begin(), batch.operations.end());
    under_way_.pop_front();
  }
  return ended;
}

void DeviceWork::begin(Batch& batch) {
  for (const auto& operation : batch.operations) queue_->wait(operation->ready);
  const Communicator& communicator = communicator_of(batch.operations);
  communicator.check(library_.call.ncclGroupStart(), "the begin of a group");
  const Operation* refused = nullptr;
  Result refusal = Result::kSuccess;
  for (const auto& operation : batch.operations) {
    const Result result = call(*operation, communicator.get());
    if (refused != nullptr || result == Result::kSuccess || result == Result::kInProgress) continue;
    refused = operation.get();
    refusal = result;
  }
  // Also of one that has failed: the thread would stay in it.
  const Result result = library_.call.ncclGroupEnd();
  if (refused != nullptr) communicator.check(refusal, refused->name.c_str());
  communicator.check(result, batch.operations.front()->name.c_str());
  is_beginning_ = true;
}

Result DeviceWork::call(const Operation& operation, Comm communicator) const {
  const Functions& nccl = library_.call;
  const CudaStream stream = device::stream_of(*queue_);
  const void* const from = operation.from.data;
  void* const to = operation.to.data;
  const int peer = static_cast<int>(operation.circle.peer.value());
  const auto count = [&](const device::DeviceSpan& span) {
    return span.size.count() / operation.element.count();
  };
  using Kind = Operation::Kind;
  switch (operation.kind) {
    case Kind::kSend:
      // Some releases refuse to move nothing, and it has its place without.
      if (operation.from.size == Bytes()) return Result::kSuccess;
      return nccl.ncclSend(from, count(operation.from), operation.type, peer, communicator, stream);
    case Kind::kReceive:
      if (operation.to.size == Bytes()) return Result::kSuccess;
      return nccl.ncclRecv(to, count(operation.to), operation.type, peer, communicator, stream);
    case Kind::kAllReduce:
      return nccl.ncclAllReduce(from, to, count(operation.to), operation.type, Reduction::kSum,
                                communicator, stream);
    case Kind::kReduceScatter:
      return nccl.ncclReduceScatter(from, to, count(operation.to), operation.type, Reduction::kSum,
                                    communicator, stream);
    case Kind::kAllGather:
      return nccl.ncclAllGather(from, to, count(operation.from), operation.type, communicator,
                                stream);
    case Kind::kBroadcast:
      return nccl.ncclBroadcast(from, to, count(operation.to), operation.type, operation.root,
                                communicator, stream);
  }
  return Result::kInvalidUsage;
}

void DeviceWork::note_begun(Batch& batch) {
  is_beginning_ = false;
  batch.moment = queue_->record();
  for (const auto& operation : batch.operations) operation->message->begin(batch.moment);
  begun_.insert(begun_.end(), batch.operations.begin(), batch.operations.end());
  ends_->wait(batch.moment);
  ends_->run([wake = wake_] {
    wake->notify();
    return device::Outcome();
  });
}

const Operation* DeviceWork::oldest() const {
  if (under_way_.empty()) return nullptr;
  return under_way_.front().operations.front().get();
}

void DeviceWork::check() const {
  job_->check_others();
  for (const auto& [group, communicator] : groups_) communicator->check_others();
}

void DeviceWork::end(Duration limit) {
  for (auto& [group, communicator] : groups_) communicator->end(limit);
  groups_.clear();
  job_->end(limit);
  job_.reset();
}

void DeviceWork::stop(Duration limit) noexcept {
  groups_.clear();
  job_.reset();
  const SteadyClock clock;
  const TimePoint latest = clock.now() + limit;
  const device::Event last = queue_->record();
  while (!last.is_done() && clock.now() < latest)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace spillway::transport::nccl
