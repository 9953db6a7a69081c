#include "queue.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include "profiler.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::device {
namespace {

/// A moment of a CudaQueue. Without an event of CUDA, where that was refused, it is past if
/// `is_past`, and else nobody is told when it is reached.
class CudaMoment final : public EventState {
 public:
  CudaMoment(std::shared_ptr<CudaContext> context, Timing timing, cudaEvent_t event, bool is_past,
             std::shared_ptr<const CudaFailures> failures)
      : EventState(context->device(), timing),
        context_(std::move(context)),
        event_(event),
        failures_(std::move(failures)),
        is_done_(is_past) {}

  ~CudaMoment() override {
    if (event_ != nullptr) context_->put_back(event_, timing());
  }

  cudaEvent_t event() const { return event_; }
  bool is_past() const { return event_ == nullptr && is_done_.load(std::memory_order_acquire); }

  bool is_done() const override {
    if (is_done_.load(std::memory_order_acquire)) return true;
    if (event_ == nullptr) return false;
    const OnDevice on(*context_);
    const cudaError_t error = cuda().cudaEventQuery(event_);
    refusal_.store(error == cudaErrorNotReady ? cudaSuccess : error);
    if (error == cudaSuccess) {
      is_done_.store(true, std::memory_order_release);
      return true;
    }
    cuda().cudaGetLastError();
    // A device that is lost reaches no more events, and `wait` says so.
    return CudaFunctions::is_of_a_lost_device(error);
  }

  Outcome wait() const override {
    if (!is_done_.load(std::memory_order_acquire) && event_ != nullptr) {
      const OnDevice on(*context_);
      const cudaError_t error = cuda().cudaEventSynchronize(event_);
      if (error != cudaSuccess) return {cuda().failure(device(), error)};
      is_done_.store(true, std::memory_order_release);
    }
    return {failures_->first()};
  }

  std::string obstacle() const override {
    if (is_past()) return {};
    if (event_ == nullptr) return message("{} has refused an event", device());
    // As of an event that has become a part of a graph.
    const cudaError_t refusal = refusal_.load();
    if (refusal == cudaSuccess || CudaFunctions::is_of_a_lost_device(refusal)) return {};
    return message("{} tells nothing of an event: {}", device(), cuda().text_of(refusal));
  }

  Duration time_since(const EventState& earlier) const override {
    cudaEvent_t const from = dynamic_cast<const CudaMoment&>(earlier).event_;
    if (from == nullptr || event_ == nullptr)
      throw Error("an event that {} refused has no time", device());
    const OnDevice on(*context_);
    float milliseconds = 0.0F;
    const cudaError_t error = cuda().cudaEventElapsedTime(&milliseconds, from, event_);
    if (error != cudaSuccess)
      throw Error("no time is known between two events: {}", cuda().failure(device(), error));
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<double, std::milli>(milliseconds));
  }

 private:
  const CudaFunctions& cuda() const { return context_->cuda(); }

  const std::shared_ptr<CudaContext> context_;
  cudaEvent_t const event_;
  const std::shared_ptr<const CudaFailures> failures_;
  mutable std::atomic<bool> is_done_;
  mutable std::atomic<cudaError_t> refusal_{cudaSuccess};  ///< Of the latest question.
};

std::string error_of(const std::function<Outcome()>& work) {
  try {
    return work().error;
  } catch (const std::exception& thrown) {
    return thrown.what();
  } catch (...) {
    return "work of a queue has thrown what is no std::exception";
  }
}

const char* name_of_copy(DeviceSpan to, DeviceSpan from) {
  if (to.device.is_host()) return "copy to the host";
  if (from.device.is_host()) return "copy to the device";
  return to.device == from.device ? "copy on the device" : "copy between devices";
}

}  // namespace

void CudaFailures::add(std::uint64_t place, std::string error) {
  if (error.empty()) return;
  const std::lock_guard lock(mutex_);
  if (!error_.empty() && place_ < place) return;
  error_ = std::move(error);
  place_ = place;
}

std::string CudaFailures::first() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

/// A function on its way through the stream.
struct CudaQueue::Work {
  std::function<Outcome()> function;
  std::shared_ptr<CudaFailures> failures;
  std::uint64_t place = 0;
};

CudaQueue::CudaQueue(std::shared_ptr<CudaContext> context, const std::string& name)
    : Queue(context->device(), context->peers()),
      context_(std::move(context)),
      owns_stream_(true),
      failures_(std::make_shared<CudaFailures>()) {
  const OnDevice on(*context_);
  const CudaFunctions& cuda = context_->cuda();
  const cudaError_t error = cuda.cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (error != cudaSuccess)
    throw Error("device {} makes no queue '{}': {}", device(), name, cuda.failure(device(), error));
  name_for_profilers(stream_, name);
}

CudaQueue::CudaQueue(std::shared_ptr<CudaContext> context, cudaStream_t stream)
    : Queue(context->device(), context->peers()),
      context_(std::move(context)),
      owns_stream_(false),
      stream_(stream),
      failures_(std::make_shared<CudaFailures>()) {}

CudaQueue::~CudaQueue() {
  if (!owns_stream_) return;
  record().wait();  // Sleeps, where a wait for the stream would spin.
  const OnDevice on(*context_);
  if (context_->cuda().cudaStreamDestroy(stream_) != cudaSuccess)
    context_->cuda().cudaGetLastError();
}

std::string CudaQueue::failure_so_far() {
  const std::lock_guard lock(mutex_);
  return failures_->first();
}

bool CudaQueue::is_captured() const {
  const OnDevice on(*context_);
  return context_->cuda().is_captured(stream_);
}

void CudaQueue::note(const char* what, cudaError_t error) {
  ++given_;
  if (error == cudaSuccess) return;
  failures_->add(
      given_, message("{} on {}: {}", what, device(), context_->cuda().failure(device(), error)));
}

cudaError_t CudaQueue::start_copy(DeviceSpan to, DeviceSpan from) {
  const CudaFunctions& cuda = context_->cuda();
  const std::size_t bytes = to.size.count();
  if (!to.device.is_host() && !from.device.is_host() && to.device != from.device)
    return cuda.cudaMemcpyPeerAsync(to.data, to.device.index, from.data, from.device.index, bytes,
                                    stream_);
  const bool comes_from_host = from.device.is_host();
  const cudaMemcpyKind kind =
      to.device.is_host() ? (comes_from_host ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost)
                          : (comes_from_host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice);
  return cuda.cudaMemcpyAsync(to.data, from.data, bytes, kind, stream_);
}

void CudaQueue::do_copy(DeviceSpan to, DeviceSpan from) {
  if (to.size == Bytes()) return;
  for (const DeviceSpan& span : {to, from})
    if (!span.device.is_host() && span.device != device()) context_->connect(span.device);
  const std::lock_guard lock(mutex_);
  const OnDevice on(*context_);
  const ProfilerRange range(name_of_copy(to, from), to.size);
  note("a copy", start_copy(to, from));
}

void CudaQueue::run_on_driver_thread(void* work) {
  const std::unique_ptr<Work> mine(static_cast<Work*>(work));
  mine->failures->add(mine->place, error_of(mine->function));
}

void CudaQueue::do_run(std::function<Outcome()> work) {
  const std::lock_guard lock(mutex_);
  const OnDevice on(*context_);
  auto piece = std::make_unique<Work>(Work{std::move(work), failures_, given_ + 1});
  const cudaError_t error =
      context_->cuda().cudaLaunchHostFunc(stream_, &run_on_driver_thread, piece.get());
  // A device that is lost meanwhile never comes to it, and nobody can tell: it is left alone then.
  if (error == cudaSuccess) static_cast<void>(piece.release());
  note("a function", error);
}

Event CudaQueue::do_record(Timing timing) {
  const std::lock_guard lock(mutex_);
  const OnDevice on(*context_);
  cudaError_t error = cudaSuccess;
  cudaEvent_t event = context_->take_event(timing, error);
  if (event != nullptr) {
    error = context_->cuda().cudaEventRecord(event, stream_);
    if (error != cudaSuccess) context_->put_back(std::exchange(event, nullptr), timing);
  }
  note("an event", error);
  const bool is_past = event == nullptr && has_ended_after(error);
  return Event(
      std::make_shared<CudaMoment>(context_, timing, event, is_past,
                                   std::exchange(failures_, std::make_shared<CudaFailures>())));
}

/// Whether all that the stream was given has ended, where `error` was the answer to an event for
/// that. Taken for yes, memory would go from under work that goes on: so the host waits, but for a
/// stream that is captured, which nobody may wait for.
bool CudaQueue::has_ended_after(cudaError_t error) const {
  if (CudaFunctions::is_of_a_lost_device(error)) return true;
  if (is_captured()) return false;
  const cudaError_t waited = context_->cuda().cudaStreamSynchronize(stream_);
  if (waited != cudaSuccess) context_->cuda().cudaGetLastError();
  return waited == cudaSuccess || CudaFunctions::is_of_a_lost_device(waited);
}

void CudaQueue::do_wait(const std::shared_ptr<const EventState>& event) {
  if (const auto* const moment = dynamic_cast<const CudaMoment*>(event.get())) {
    if (moment->is_past()) return;
    const std::lock_guard lock(mutex_);
    if (moment->event() == nullptr) return note("a wait for an event", cudaErrorNotReady);
    const OnDevice on(*context_);
    note("a wait", context_->cuda().cudaStreamWaitEvent(stream_, moment->event(), 0));
    return;
  }
  // The function below may not call CUDA, so it can wait for nobody that does.
  SPILLWAY_ASSERT(event->device().kind != DeviceKind::kCuda);
  if (event->is_done()) return;
  do_run([event] {
    event->wait();
    return Outcome{};
  });
}

}  // namespace spillway::device
