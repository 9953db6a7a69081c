// Graphs: what streams are given while they are captured runs at each launch, in that order.
#include "capture.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "calls.h"
#include "devices.h"
#include "failure.h"
#include "settings.h"

namespace spillway::emulated {
namespace {

struct Captures {
  std::atomic<std::size_t> count{0};  // Nearly always none: nobody takes the lock then.
  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> all;
  unsigned long long last_id = 0;
};

Captures& captures() {
  static auto* under_way = new Captures;
  return *under_way;
}

cudaStreamCaptureMode& mode_of_thread() {
  thread_local cudaStreamCaptureMode mine = cudaStreamCaptureModeGlobal;
  return mine;
}

}  // namespace

void Capture::add(GraphNode node) {
  const std::lock_guard lock(mutex_);
  nodes_.push_back(std::move(node));
}

void Capture::join(const std::shared_ptr<Capture>& capture, CUstream_st& stream) {
  const std::lock_guard lock(capture->mutex_);
  ordering::begin_capture(stream.id());
  stream.capture_into(capture);
  capture->streams_.push_back(stream.shared_from_this());
}

std::shared_ptr<const GraphNodes> Capture::end() {
  const std::lock_guard lock(mutex_);
  for (const auto& stream : streams_) {
    stream->capture_into(nullptr);
    ordering::end_capture(stream->id());
  }
  streams_.clear();
  return is_valid_ ? std::make_shared<const GraphNodes>(std::move(nodes_)) : nullptr;
}

void Capture::invalidate() {
  const std::lock_guard lock(mutex_);
  is_valid_ = false;
}

bool Capture::is_valid() const {
  const std::lock_guard lock(mutex_);
  return is_valid_;
}

bool Capture::is_under_way() const {
  const std::lock_guard lock(mutex_);
  return !streams_.empty();
}

bool Capture::forbids(cudaStreamCaptureMode of_thread) const {
  if (mode_ == cudaStreamCaptureModeRelaxed || of_thread == cudaStreamCaptureModeRelaxed)
    return false;
  return is_of_this_thread() ||
         (mode_ == cudaStreamCaptureModeGlobal && of_thread == cudaStreamCaptureModeGlobal);
}

cudaError_t may_be_unsafe(const char* call) {
  if (captures().count.load() == 0) return cudaSuccess;
  const std::lock_guard lock(captures().mutex);
  for (const auto& capture : captures().all) {
    if (!capture->forbids(mode_of_thread())) continue;
    capture->invalidate();
    return fail(cudaErrorStreamCaptureUnsupported,
                std::string(call) + " while a graph is captured on " +
                    (capture->is_of_this_thread() ? "this thread" : "another thread"));
  }
  return cudaSuccess;
}

cudaError_t may_not_capture(CUstream_st& stream, const char* call) {
  const auto capture = stream.capture();
  if (capture == nullptr) return cudaSuccess;
  capture->invalidate();
  return fail(cudaErrorStreamCaptureUnsupported,
              std::string(call) + " of a stream that is captured into a graph");
}

}  // namespace spillway::emulated

using namespace spillway::emulated;

/// CUDA declares the types.
struct CUgraph_st {
  std::shared_ptr<const GraphNodes> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const GraphNodes> nodes;
};

extern "C" {

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  SPILLWAY_COUNT_CALL();
  return cudaStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                     size_t* dependencies) {
  SPILLWAY_COUNT_CALL();
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = 0;
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (const cudaError_t lost = error_of_lost(stream->device()); lost != cudaSuccess) return lost;
  if (captures().count.load() == 0) return cudaSuccess;
  const auto capture = stream->capture();
  if (capture == nullptr) return cudaSuccess;
  *status =
      capture->is_valid() ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  if (id != nullptr) *id = capture->id();
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  SPILLWAY_COUNT_CALL();
  std::swap(mode_of_thread(), *mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  if (handle == nullptr || handle == cudaStreamLegacy)
    return fail(cudaErrorStreamCaptureUnsupported, "the legacy stream is not captured");
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (stream->capture() != nullptr)
    return fail(cudaErrorIllegalState, "the stream is captured already");
  const std::lock_guard lock(captures().mutex);
  auto capture = std::make_shared<Capture>(++captures().last_id, mode, *stream);
  Capture::join(capture, *stream);
  captures().all.push_back(std::move(capture));
  ++captures().count;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  SPILLWAY_COUNT_CALL();
  *graph = nullptr;
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  const auto capture = stream->capture();
  if (capture == nullptr) return fail(cudaErrorIllegalState, "the stream is not captured");
  if (&capture->origin() != stream)
    return fail(cudaErrorStreamCaptureUnmatched, "the capture began with another stream");
  if (!capture->is_of_this_thread() && capture->mode() != cudaStreamCaptureModeRelaxed)
    return fail(cudaErrorStreamCaptureWrongThread, "another thread began the capture");
  {
    const std::lock_guard lock(captures().mutex);
    std::erase(captures().all, capture);
    --captures().count;
  }
  auto nodes = capture->end();
  if (nodes == nullptr) return fail(cudaErrorStreamCaptureInvalidated, "a call has broken it");
  *graph = new CUgraph_st{std::move(nodes)};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  SPILLWAY_COUNT_CALL();
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  SPILLWAY_COUNT_CALL();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (const cudaError_t lost = error_of_lost(stream->device()); lost != cudaSuccess) return lost;
  order_with_legacy(*stream);
  for (const GraphNode& node : *executable->nodes) {
    ordering::begin(stream->id());
    for (const ordering::Access& access : node.accesses) ordering::use(stream->id(), access);
    // The nodes stay where the graph is destroyed while it runs.
    stream->push(node.what, node.delay, [&node, nodes = executable->nodes] { node.run(); });
  }
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  SPILLWAY_COUNT_CALL();
  if (nodes != nullptr)
    return fail(cudaErrorNotSupported, "the emulated CUDA counts nodes of graphs, and shows none");
  *count = graph->nodes->size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  SPILLWAY_COUNT_CALL();
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  SPILLWAY_COUNT_CALL();
  delete executable;
  return cudaSuccess;
}

int emu_cuda_captures(cudaStream_t handle) {
  if (captures().count.load() == 0) return 0;
  return living_stream(handle).capture() != nullptr ? 1 : 0;
}

void emu_cuda_capture(cudaStream_t handle, const char* what, void (*work)(void*), void* argument,
                      void (*drop)(void*)) {
  const std::shared_ptr<void> kept(argument, drop);
  living_stream(handle).push(what, CUstream_st::Delay::kBySettings,
                             [work, kept] { work(kept.get()); });
}
}
