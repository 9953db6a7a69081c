// Functions of CUDA on streams, but for capture.
#include <cuda_runtime_api.h>

#include <utility>

#include "calls.h"
#include "capture.h"
#include "devices.h"
#include "failure.h"
#include "ordering.h"
#include "settings.h"
#include "stream.h"

using namespace spillway::emulated;

namespace {

cudaError_t may_be_asked(CUstream_st& stream, const char* call) {
  if (const cudaError_t lost = error_of_lost(stream.device()); lost != cudaSuccess) return lost;
  const cudaError_t captured = may_not_capture(stream, call);
  return captured == cudaSuccess ? may_be_unsafe(call) : captured;
}

// One fact of a stream.
template <typename Fact, typename FactOf>
cudaError_t tell_of(cudaStream_t handle, Fact& told, const FactOf& fact_of) {
  const CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  told = fact_of(*stream);
  return cudaSuccess;
}

// A function of the host in a stream: what it does then, or wakes up, comes after all before it in
// the stream.
void push_host_function(CUstream_st& stream, const char* what, std::function<void()> run) {
  order_with_legacy(stream);
  ordering::begin(stream.id());
  stream.push(what, CUstream_st::Delay::kBySettings,
              [known = ordering::now(stream.id()), device = stream.device(), run = std::move(run)] {
                if (error_of_lost(device) != cudaSuccess) return;
                ordering::host_learns(known);
                const InHostFunction here;
                run();
              });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  if ((flags & ~unsigned{cudaStreamNonBlocking}) != 0)
    return fail(cudaErrorInvalidValue, "unknown flags of a stream");
  *stream = make_stream(current_device(), flags, priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  SPILLWAY_COUNT_CALL();
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  SPILLWAY_COUNT_CALL();
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  const bool of_its_own =
      stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
  return of_its_own && destroy_stream(stream) ? cudaSuccess : no_such_stream(stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  SPILLWAY_COUNT_CALL();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (const cudaError_t error = may_be_asked(*stream, __func__); error != cudaSuccess) return error;
  const Clock known = ordering::now(stream->id());
  stream->drain();
  ordering::host_learns(known);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  SPILLWAY_COUNT_CALL();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (const cudaError_t error = may_be_asked(*stream, __func__); error != cudaSuccess) return error;
  const Clock known = ordering::now(stream->id());
  if (stream->busy()) return cudaErrorNotReady;
  ordering::host_learns(known);
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  SPILLWAY_COUNT_CALL();
  return tell_of(handle, *priority, [](const CUstream_st& stream) { return stream.priority(); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  SPILLWAY_COUNT_CALL();
  return tell_of(handle, *flags, [](const CUstream_st& stream) { return stream.flags(); });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  SPILLWAY_COUNT_CALL();
  return tell_of(handle, *id, [](const CUstream_st& stream) {
    return static_cast<unsigned long long>(stream.id());
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  SPILLWAY_COUNT_CALL();
  return tell_of(handle, *device, [](const CUstream_st& stream) { return stream.device(); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  SPILLWAY_COUNT_CALL();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (const cudaError_t lost = error_of_lost(stream->device()); lost != cudaSuccess) return lost;
  if (const cudaError_t error = may_not_capture(*stream, __func__); error != cudaSuccess)
    return error;
  push_host_function(*stream, "host function", [function, argument] { function(argument); });
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function,
                                  void* argument, unsigned) {
  SPILLWAY_COUNT_CALL();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return no_such_stream(handle);
  if (const cudaError_t error = may_not_capture(*stream, __func__); error != cudaSuccess)
    return error;
  push_host_function(*stream, "callback",
                     [handle, function, argument] { function(handle, cudaSuccess, argument); });
  return cudaSuccess;
}
}
