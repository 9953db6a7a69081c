// Functions of CUDA on events.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_set>

#include "calls.h"
#include "capture.h"
#include "devices.h"
#include "failure.h"
#include "ordering.h"
#include "settings.h"
#include "stream.h"

using namespace spillway::emulated;

/// An event: what it recorded last. CUDA declares the type.
struct CUevent_st {
  struct Recorded {
    MarkPtr mark;  // Null: never recorded, so that nobody waits.
    Clock clock;
    std::shared_ptr<Capture> capture;  // Of the stream that it was recorded in.
  };

  CUevent_st(int of_device, unsigned with_flags) : device(of_device), flags(with_flags) {}

  Recorded recorded() {
    const std::lock_guard lock(mutex);
    return last;
  }

  const int device;
  const unsigned flags;
  std::mutex mutex;
  Recorded last;
};

namespace {

struct Events {
  std::mutex mutex;
  std::unordered_set<CUevent_st*> all;
};

Events& events() {
  static auto* living = new Events;
  return *living;
}

bool lives(cudaEvent_t event) {
  const std::lock_guard lock(events().mutex);
  return events().all.count(event) != 0;
}

cudaError_t no_such_event(cudaEvent_t event) {
  return fail(cudaErrorInvalidResourceHandle,
              "the event " + hex(event) + " was destroyed or never made");
}

cudaError_t captured_event() {
  return fail(cudaErrorCapturedEvent, "the event was recorded last in a stream that was captured");
}

cudaError_t wait_in_capture(CUstream_st& stream, const std::shared_ptr<Capture>& own,
                            const std::shared_ptr<Capture>& recorded) {
  if (own == recorded) return cudaSuccess;
  if (own != nullptr) {
    own->invalidate();
    recorded->invalidate();
    return fail(cudaErrorStreamCaptureMerge, "two graphs would become one");
  }
  if (!recorded->is_under_way()) return captured_event();
  Capture::join(recorded, stream);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  *event = new CUevent_st(current_device(), flags);
  const std::lock_guard lock(events().mutex);
  events().all.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  SPILLWAY_COUNT_CALL();
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  SPILLWAY_COUNT_CALL();
  {
    const std::lock_guard lock(events().mutex);
    if (events().all.erase(event) == 0) return no_such_event(event);
  }
  delete event;  // Streams that wait hold its mark.
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
  SPILLWAY_COUNT_CALL();
  if (!lives(event)) return no_such_event(event);
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (stream->device() != event->device) {
    return fail(cudaErrorInvalidResourceHandle,
                "an event of device " + std::to_string(event->device) +
                    " was recorded in a stream of device " + std::to_string(stream->device()));
  }
  if (const cudaError_t lost = error_of_lost(stream->device()); lost != cudaSuccess) return lost;
  order_with_legacy(*stream);
  if (auto capture = stream->capture()) {
    const std::lock_guard lock(event->mutex);
    event->last = {nullptr, {}, std::move(capture)};
    return cudaSuccess;
  }
  // The clock first: what another thread submits in between is done at the mark, but not known to
  // be.
  Clock clock = ordering::now(stream->id());
  MarkPtr mark = stream->mark();
  const std::lock_guard lock(event->mutex);
  event->last = {std::move(mark), std::move(clock), nullptr};
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  SPILLWAY_COUNT_CALL();
  if (!lives(event)) return no_such_event(event);
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (const cudaError_t lost = error_of_lost(stream->device()); lost != cudaSuccess) return lost;
  const auto recorded = event->recorded();
  const auto capture = stream->capture();
  // Within a graph all comes in the order in which it was captured.
  if (recorded.capture != nullptr) return wait_in_capture(*stream, capture, recorded.capture);
  if (!recorded.mark) return cudaSuccess;
  if (capture != nullptr) {
    capture->invalidate();
    return fail(cudaErrorStreamCaptureIsolation, "a graph would wait for what is not part of it");
  }
  order_with_legacy(*stream);
  ordering::wait(stream->id(), recorded.clock);
  stream->wait(recorded.mark);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  SPILLWAY_COUNT_CALL();
  if (!lives(event)) return no_such_event(event);
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  if (const cudaError_t lost = error_of_lost(event->device); lost != cudaSuccess) return lost;
  const auto recorded = event->recorded();
  if (recorded.capture != nullptr) return captured_event();
  if (!recorded.mark) return cudaSuccess;
  if (!recorded.mark->passed()) return cudaErrorNotReady;
  ordering::host_learns(recorded.clock);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  SPILLWAY_COUNT_CALL();
  if (!lives(event)) return no_such_event(event);
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  if (const cudaError_t lost = error_of_lost(event->device); lost != cudaSuccess) return lost;
  const auto recorded = event->recorded();
  if (recorded.capture != nullptr) return captured_event();
  if (!recorded.mark) return cudaSuccess;
  recorded.mark->wait();
  ordering::host_learns(recorded.clock);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  SPILLWAY_COUNT_CALL();
  for (cudaEvent_t event : {from, to}) {
    if (!lives(event)) return no_such_event(event);
    if ((event->flags & cudaEventDisableTiming) != 0) {
      return fail(cudaErrorInvalidResourceHandle, "the event was made with cudaEventDisableTiming");
    }
  }
  const MarkPtr first = from->recorded().mark;
  const MarkPtr last = to->recorded().mark;
  if (!first || !last) return fail(cudaErrorInvalidResourceHandle, "an event was never recorded");
  if (!first->passed() || !last->passed()) return fail(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(last->when() - first->when()).count();
  return cudaSuccess;
}
}
