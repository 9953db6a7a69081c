// Hands out the driver's functions by name. What is not emulated is a function that ends the
// process and names itself.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cctype>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "../runtime/calls.h"
#include "../runtime/failure.h"

namespace spillway::emulated {
namespace {

#define SPILLWAY_ENTRY(name) \
  { #name, reinterpret_cast < void*>(&name) }
const std::map<std::string, void*>& emulated_functions() {
  static const auto* all = new std::map<std::string, void*>{
      SPILLWAY_ENTRY(cuInit),
      SPILLWAY_ENTRY(cuDriverGetVersion),
      SPILLWAY_ENTRY(cuDeviceGet),
      SPILLWAY_ENTRY(cuDeviceGetCount),
      SPILLWAY_ENTRY(cuDeviceGetUuid),
      SPILLWAY_ENTRY(cuDeviceGetAttribute),
      SPILLWAY_ENTRY(cuDevicePrimaryCtxGetState),
      SPILLWAY_ENTRY(cuDevicePrimaryCtxRetain),
      SPILLWAY_ENTRY(cuDevicePrimaryCtxRelease),
      SPILLWAY_ENTRY(cuCtxGetCurrent),
      SPILLWAY_ENTRY(cuCtxSetCurrent),
      SPILLWAY_ENTRY(cuCtxGetDevice),
      SPILLWAY_ENTRY(cuPointerGetAttribute),
      SPILLWAY_ENTRY(cuMemGetInfo),
      SPILLWAY_ENTRY(cuGetErrorName),
      SPILLWAY_ENTRY(cuGetErrorString),
      SPILLWAY_ENTRY(cuMemGetAllocationGranularity),
      SPILLWAY_ENTRY(cuMemAddressReserve),
      SPILLWAY_ENTRY(cuMemAddressFree),
      SPILLWAY_ENTRY(cuMemCreate),
      SPILLWAY_ENTRY(cuMemRelease),
      SPILLWAY_ENTRY(cuMemRetainAllocationHandle),
      SPILLWAY_ENTRY(cuMemGetAllocationPropertiesFromHandle),
      SPILLWAY_ENTRY(cuMemMap),
      SPILLWAY_ENTRY(cuMemSetAccess),
      SPILLWAY_ENTRY(cuMemUnmap),
      SPILLWAY_ENTRY(cuMemsetD32Async),
  };
  return *all;
}
#undef SPILLWAY_ENTRY

// A function per missing name, since a function pointer carries no argument that could tell them
// apart.
constexpr std::size_t kMost = 128;
std::array<std::string, kMost>& missing() {
  static auto* names = new std::array<std::string, kMost>;
  return *names;
}

template <std::size_t kIndex>
CUresult refuse() {
  die("the driver's function " + missing()[kIndex] + " is not emulated");
}

template <std::size_t... kIndices>
std::array<CUresult (*)(), kMost> refusals(std::index_sequence<kIndices...>) {
  return {&refuse<kIndices>...};
}

void* refusal_of(const std::string& name) {
  static std::mutex mutex;
  static const auto functions = refusals(std::make_index_sequence<kMost>());
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < kMost; ++i) {
    if (missing()[i].empty()) missing()[i] = name;
    if (missing()[i] == name) return reinterpret_cast<void*>(functions[i]);
  }
  die("the emulated CUDA was asked for more than " + std::to_string(kMost) +
      " driver functions that it lacks");
}

cudaError_t entry_point(const std::string& name, void** function,
                        cudaDriverEntryPointQueryResult* result) {
  const bool is_driver_name =
      name.size() > 2 && name.compare(0, 2, "cu") == 0 && std::isupper(name[2]) != 0;
  if (result != nullptr)
    *result = is_driver_name ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  const auto found = emulated_functions().find(name);
  *function = found != emulated_functions().end() ? found->second
              : is_driver_name                    ? refusal_of(name)
                                                  : nullptr;
  return is_driver_name ? cudaSuccess : fail(cudaErrorSymbolNotFound, name);
}

}  // namespace
}  // namespace spillway::emulated

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  SPILLWAY_COUNT_CALL();
  return spillway::emulated::entry_point(name, function, result);
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  SPILLWAY_COUNT_CALL();
  return spillway::emulated::entry_point(name, function, result);
}
}
