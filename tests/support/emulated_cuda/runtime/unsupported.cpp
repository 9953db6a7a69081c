// What is refused, and what there is nothing to do for.
#include <cuda_runtime_api.h>

#include "calls.h"
#include "failure.h"

using namespace spillway::emulated;

extern "C" {

cudaError_t cudaMallocManaged(void**, size_t, unsigned) {
  SPILLWAY_COUNT_CALL();
  return fail(cudaErrorNotSupported, "the emulated CUDA has no managed memory");
}

// Their header is in no wheel that is fetched.
cudaError_t cudaProfilerStart();
cudaError_t cudaProfilerStop();

cudaError_t cudaProfilerStart() {
  SPILLWAY_COUNT_CALL();
  return cudaSuccess;
}

cudaError_t cudaProfilerStop() {
  SPILLWAY_COUNT_CALL();
  return cudaSuccess;
}
}
