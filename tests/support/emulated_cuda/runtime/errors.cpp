#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "calls.h"
#include "failure.h"

namespace spillway::emulated {

void die(const std::string& text) {
  std::fprintf(stderr, "emulated CUDA: %s\n", text.c_str());
  std::fflush(stderr);
  std::abort();
}

LastError& last_error() {
  thread_local LastError error;
  return error;
}

cudaError_t fail(cudaError_t error, std::string text) {
  last_error() = {error, std::move(text)};
  return error;
}

std::string hex(const void* address) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%p", address);
  return text.data();
}

namespace {

struct Known {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define SPILLWAY_KNOWN(error, text) \
  Known { error, #error, text }
constexpr Known kKnown[] = {
    SPILLWAY_KNOWN(cudaSuccess, "no error"),
    SPILLWAY_KNOWN(cudaErrorInvalidValue, "invalid argument"),
    SPILLWAY_KNOWN(cudaErrorMemoryAllocation, "out of memory"),
    SPILLWAY_KNOWN(cudaErrorCudartUnloading, "driver shutting down"),
    SPILLWAY_KNOWN(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    SPILLWAY_KNOWN(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    SPILLWAY_KNOWN(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    SPILLWAY_KNOWN(cudaErrorInsufficientDriver,
                   "CUDA driver version is insufficient for CUDA runtime version"),
    SPILLWAY_KNOWN(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    SPILLWAY_KNOWN(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    SPILLWAY_KNOWN(cudaErrorInvalidDevice, "invalid device ordinal"),
    SPILLWAY_KNOWN(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    SPILLWAY_KNOWN(cudaErrorNotReady, "device not ready"),
    SPILLWAY_KNOWN(cudaErrorSymbolNotFound, "named symbol not found"),
    SPILLWAY_KNOWN(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    SPILLWAY_KNOWN(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    SPILLWAY_KNOWN(cudaErrorHostMemoryAlreadyRegistered,
                   "part or all of the memory is registered already"),
    SPILLWAY_KNOWN(cudaErrorHostMemoryNotRegistered, "the memory is not registered"),
    SPILLWAY_KNOWN(cudaErrorLaunchFailure, "unspecified launch failure"),
    SPILLWAY_KNOWN(cudaErrorNotSupported, "operation not supported"),
    SPILLWAY_KNOWN(cudaErrorStreamCaptureUnsupported,
                   "operation not permitted when stream is capturing"),
};
#undef SPILLWAY_KNOWN

const Known* known(cudaError_t error) {
  for (const Known& one : kKnown) {
    if (one.error == error) return &one;
  }
  return nullptr;
}

}  // namespace
}  // namespace spillway::emulated

using spillway::emulated::known;
using spillway::emulated::last_error;

extern "C" {

cudaError_t cudaGetLastError() {
  SPILLWAY_COUNT_CALL();
  const cudaError_t error = last_error().error;
  last_error().error = cudaSuccess;  // The text stays, for who asks what it means.
  return error;
}

cudaError_t cudaPeekAtLastError() {
  SPILLWAY_COUNT_CALL();
  return last_error().error;
}

const char* cudaGetErrorName(cudaError_t error) {
  SPILLWAY_COUNT_CALL();
  const auto* one = known(error);
  return one == nullptr ? "cudaErrorUnknownToTheEmulation" : one->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  SPILLWAY_COUNT_CALL();
  thread_local std::string text;
  const auto* one = known(error);
  text = one == nullptr ? "CUDA error " + std::to_string(error) : one->text;
  if (error != cudaSuccess && !last_error().text.empty()) text += ": " + last_error().text;
  return text.c_str();
}
}
