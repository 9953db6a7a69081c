#include "functions.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "spillway/base/error.h"
#include "spillway/base/shared_library.h"

namespace spillway::device {
namespace {

constexpr const char* kLibrary = "libcudart.so.13";
constexpr int kServed = 13;           // Its first number.
constexpr int kOldestDriver = 13000;  // As a runtime of 13 asks for.

// Of a trainer whose LibTorch has another CUDA.
constexpr std::array kOthers{"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.14"};

// After these CUDA refuses everything to the process.
constexpr std::array kOfALostDevice{
    cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorIllegalAddress,
    cudaErrorLaunchTimeout,       cudaErrorContextIsDestroyed,  cudaErrorAssert,
    cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorLaunchFailure,
    cudaErrorExternalDevice,      cudaErrorTensorMemoryLeak,    cudaErrorContained,
    cudaErrorMpsClientTerminated};

struct Library {
  void* handle = nullptr;
  std::string name = kLibrary;
  std::string reason;
};

Library refused(const std::string& name) {
  return {nullptr, name,
          message("the program uses {}, and this version of Spillway serves CUDA {}: take a "
                  "LibTorch that was built for CUDA 13 (cu130)",
                  name, kServed)};
}

/// The runtime under another name, which LibTorch's zip archives give it
/// (libcudart-1a2b3c4d.so.13), or as a part of the program. None: no handle, and no reason.
Library find_renamed() {
  decltype(CudaFunctions::cudaRuntimeGetVersion) ask = nullptr;
  if (!find_function(RTLD_DEFAULT, "cudaRuntimeGetVersion", ask)) return {};
  const std::string path = library_of(reinterpret_cast<const void*>(ask));
  if (path.empty()) return {};
  const std::string name = path.substr(path.rfind('/') + 1);
  int version = 0;
  if (ask(&version) != cudaSuccess || version / 1000 != kServed)
    return refused(message("{} (CUDA {})", name, release_of(version)));
  return {loaded_library(path), name, {}};
}

Library open_library() {
  if (void* const loaded = loaded_library(kLibrary)) return {loaded, kLibrary, {}};
  if (Library renamed = find_renamed(); renamed.handle != nullptr || !renamed.reason.empty())
    return renamed;
  for (const char* other : kOthers) {
    void* const loaded = loaded_library(other);
    if (loaded == nullptr) continue;
    ::dlclose(loaded);
    return refused(other);
  }
  std::string why;
  if (void* const found = load_library(kLibrary, why)) return {found, kLibrary, {}};
  return {nullptr, kLibrary,
          message("CUDA's runtime cannot be loaded ({}): take a LibTorch with CUDA 13, or name the "
                  "folder of {} in LD_LIBRARY_PATH",
                  why, kLibrary)};
}

// The name of a function of the runtime that is missing; null: all are there.
const char* find_runtime(void* library, CudaFunctions& found) {
#define SPILLWAY_FIND(name) \
  if (!find_function(library, #name, found.name)) return #name;
  SPILLWAY_CUDA_RUNTIME(SPILLWAY_FIND)
#undef SPILLWAY_FIND
  return nullptr;
}

const char* find_driver(CudaFunctions& found) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#define SPILLWAY_FIND(name)                                                                      \
  if (found.cudaGetDriverEntryPointByVersion(#name, &function, kOldestDriver, cudaEnableDefault, \
                                             &result) != cudaSuccess ||                          \
      result != cudaDriverEntryPointSuccess)                                                     \
    return #name;                                                                                \
  found.name = reinterpret_cast<decltype(found.name)>(function);
  SPILLWAY_CUDA_DRIVER(SPILLWAY_FIND)
#undef SPILLWAY_FIND
  return nullptr;
}

std::string why_no_fitting_driver(const CudaFunctions& cuda) {
  int version = 0;
  if (cuda.cudaDriverGetVersion(&version) != cudaSuccess) version = 0;
  if (version == 0) return why_no_driver(topology::discover_gpus());
  if (version < kOldestDriver)
    return message("the driver of NVIDIA serves CUDA up to {}, and CUDA {} is needed: install a "
                   "driver of release 580 or later",
                   release_of(version), release_of(kOldestDriver));
  return {};
}

// Fills `found`, or says what is missing.
std::string why_incomplete(const Library& library, CudaFunctions& found) {
  if (const char* const missing = find_runtime(library.handle, found))
    return message("{} has no {}: take that of CUDA 13", library.name, missing);
  if (std::string why = why_no_fitting_driver(found); !why.empty()) return why;
  if (const char* const missing = find_driver(found))
    return message("the driver of NVIDIA has no {}: install one of release 580 or later", missing);
  return {};
}

bool is_lost(cudaError_t error) {
  // CUDA ends by a function at exit, and threads run on.
  return error == cudaErrorCudartUnloading ||
         std::find(kOfALostDevice.begin(), kOfALostDevice.end(), error) != kOfALostDevice.end();
}

// The runtime has the driver's numbers for what both know.
cudaError_t error_of(CUresult result) { return static_cast<cudaError_t>(result); }

std::string meaning_of(const CudaFunctions& cuda, cudaError_t error) {
  return message("{} ({})", cuda.cudaGetErrorString(error), cuda.cudaGetErrorName(error));
}

std::string told(DeviceId device, const CudaFunctions& cuda, cudaError_t error) {
  if (!is_lost(error)) return meaning_of(cuda, error);
  return message("device {} is lost to this process: {}; start the program anew", device,
                 meaning_of(cuda, error));
}

}  // namespace

std::string why_no_driver(const std::optional<std::vector<topology::Gpu>>& gpus) {
  if (gpus && gpus->empty())
    return "this machine has no GPU of NVIDIA on its PCI bus: train on one that has; a virtual "
           "machine has to be started with access to one";
  return message("no driver of NVIDIA is loaded{}: install one of release 580 or later (nvidia-smi "
                 "then shows the GPUs); in a container, start it with access to the GPUs",
                 gpus ? message(" for the GPU at {}", gpus->front().bus_address) : std::string());
}

std::string CudaFunctions::text_of(cudaError_t error) const {
  std::string text = meaning_of(*this, error);
  cudaGetLastError();
  return text;
}

std::string CudaFunctions::failure(DeviceId device, cudaError_t error) const {
  std::string text = told(device, *this, error);
  cudaGetLastError();
  return text;
}

std::string CudaFunctions::failure(DeviceId device, CUresult result) const {
  return told(device, *this, error_of(result));
}

bool CudaFunctions::is_of_a_lost_device(cudaError_t error) { return is_lost(error); }

bool CudaFunctions::is_of_a_lost_device(CUresult result) { return is_lost(error_of(result)); }

bool CudaFunctions::is_captured(cudaStream_t stream) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  cudaGetLastError();  // LibTorch would take it for its own.
  return !is_lost(error);
}

FoundCuda find_cuda() {
  static std::mutex mutex;
  static CudaFunctions found;
  static bool is_complete = false;
  const std::lock_guard lock(mutex);
  if (is_complete) return {&found, {}};
  const Library library = open_library();
  if (library.handle == nullptr) return {nullptr, library.reason};
  CudaFunctions candidate;
  if (std::string why = why_incomplete(library, candidate); !why.empty()) {
    ::dlclose(library.handle);
    return {nullptr, why};
  }
  found = candidate;
  is_complete = true;
  return {&found, {}};
}

std::string release_of(int version) {
  return message("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace spillway::device
