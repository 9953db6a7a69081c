#include "functions.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "spillway/base/error.h"

namespace spillway::device {
namespace {

constexpr const char* kLibrary = "libcudart.so.13";
constexpr int kOldestDriver = 13000;  // As a runtime of 13 asks for.

// Of a trainer whose LibTorch has another CUDA.
constexpr std::array kOthers{"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.14"};

// After these CUDA refuses everything to the process.
constexpr std::array kOfALostDevice{
    cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorIllegalAddress,
    cudaErrorLaunchTimeout,       cudaErrorContextIsDestroyed,  cudaErrorAssert,
    cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorLaunchFailure,
    cudaErrorExternalDevice,      cudaErrorTensorMemoryLeak};

struct Library {
  void* handle = nullptr;
  std::string reason;
};

Library open_library() {
  if (void* const loaded = ::dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD)) return {loaded, {}};
  for (const char* other : kOthers) {
    void* const loaded = ::dlopen(other, RTLD_LAZY | RTLD_NOLOAD);
    if (loaded == nullptr) continue;
    ::dlclose(loaded);
    return {nullptr, message("the program uses {}, and this version of Spillway serves CUDA 13: "
                             "take a LibTorch that was built for CUDA 13 (cu130)",
                             other)};
  }
  if (void* const found = ::dlopen(kLibrary, RTLD_LAZY)) return {found, {}};
  const char* const why = ::dlerror();
  return {nullptr, message("CUDA's runtime cannot be loaded ({}): take a LibTorch with CUDA 13, or "
                           "name the folder of {} in LD_LIBRARY_PATH",
                           why == nullptr ? kLibrary : why, kLibrary)};
}

// The name of a function of the runtime that is missing; null: all are there.
const char* find_runtime(void* library, CudaFunctions& found) {
#define SPILLWAY_FIND(name)                                                     \
  found.name = reinterpret_cast<decltype(found.name)>(::dlsym(library, #name)); \
  if (found.name == nullptr) return #name;
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

std::string why_no_driver(const CudaFunctions& cuda) {
  int version = 0;
  if (cuda.cudaDriverGetVersion(&version) != cudaSuccess) version = 0;
  if (version == 0)
    return "no driver of NVIDIA is loaded: install one of release 580 or later (nvidia-smi then "
           "shows the GPUs); in a container, start it with access to the GPUs";
  if (version < kOldestDriver)
    return message("the driver of NVIDIA serves CUDA up to {}, and CUDA {} is needed: install a "
                   "driver of release 580 or later",
                   release_of(version), release_of(kOldestDriver));
  return {};
}

// Fills `found`, or says what is missing.
std::string why_incomplete(void* library, CudaFunctions& found) {
  if (const char* const missing = find_runtime(library, found))
    return message("{} has no {}: take that of CUDA 13", kLibrary, missing);
  if (std::string why = why_no_driver(found); !why.empty()) return why;
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

FoundCuda find_cuda() {
  static std::mutex mutex;
  static CudaFunctions found;
  static bool is_complete = false;
  const std::lock_guard lock(mutex);
  if (is_complete) return {&found, {}};
  const Library library = open_library();
  if (library.handle == nullptr) return {nullptr, library.reason};
  CudaFunctions candidate;
  if (std::string why = why_incomplete(library.handle, candidate); !why.empty()) {
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
