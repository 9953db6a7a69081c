// Capture of graphs is not emulated: nothing ever captures, and who begins to is refused.
#include <cuda_runtime_api.h>

#include <utility>

#include "calls.h"
#include "failure.h"

using namespace spillway::emulated;

extern "C" {

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  SPILLWAY_COUNT_CALL();
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t* dependencies) {
  SPILLWAY_COUNT_CALL();
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  if (dependencies != nullptr) *dependencies = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  SPILLWAY_COUNT_CALL();
  thread_local cudaStreamCaptureMode mine = cudaStreamCaptureModeGlobal;
  std::swap(mine, *mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  SPILLWAY_COUNT_CALL();
  return fail(cudaErrorStreamCaptureUnsupported, "the emulated CUDA captures no graphs");
}
}
