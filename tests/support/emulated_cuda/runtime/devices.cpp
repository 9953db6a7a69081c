#include "devices.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "address_space.h"
#include "calls.h"
#include "capture.h"
#include "emulation.h"
#include "failure.h"
#include "settings.h"
#include "stream.h"

namespace spillway::emulated {
namespace {

thread_local int device_of_thread = 0;

constexpr std::size_t kSharedMemory = 48 << 10;
constexpr std::size_t kSharedMemoryOptIn = 163 << 10;

// A card that looks like an A100 to who asks; what is not asked for is 0.
cudaDeviceProp properties(int device) {
  cudaDeviceProp all;
  std::memset(&all, 0, sizeof all);
  const int physical = settings().devices[static_cast<std::size_t>(device)];
  if (settings().name.empty())
    std::snprintf(all.name, sizeof all.name, "Emulated GPU %d", physical);
  else
    std::snprintf(all.name, sizeof all.name, "%s", settings().name.c_str());
  all.uuid.bytes[0] = static_cast<char>(physical + 1);
  all.pciBusID = physical + 1;
  all.totalGlobalMem = settings().memory;
  all.major = settings().capability / 10;
  all.minor = settings().capability % 10;
  all.sharedMemPerBlock = kSharedMemory;
  all.sharedMemPerBlockOptin = kSharedMemoryOptIn;
  all.sharedMemPerMultiprocessor = kSharedMemoryOptIn + 1024;
  all.regsPerBlock = all.regsPerMultiprocessor = 65536;
  all.warpSize = 32;
  all.maxThreadsPerBlock = 1024;
  all.maxThreadsDim[0] = all.maxThreadsDim[1] = 1024;
  all.maxThreadsDim[2] = 64;
  all.maxGridSize[0] = 2147483647;
  all.maxGridSize[1] = all.maxGridSize[2] = 65535;
  all.multiProcessorCount = 108;
  all.maxThreadsPerMultiProcessor = 2048;
  all.maxBlocksPerMultiProcessor = 32;
  all.totalConstMem = 65536;
  all.l2CacheSize = 40 << 20;
  all.memoryBusWidth = 5120;
  all.textureAlignment = 512;
  all.texturePitchAlignment = 32;
  all.asyncEngineCount = 3;
  all.unifiedAddressing = all.canMapHostMemory = all.concurrentKernels = 1;
  all.hostRegisterSupported = all.streamPrioritiesSupported = all.memoryPoolsSupported = 1;
  all.cooperativeLaunch = 1;
  return all;
}

int attribute(cudaDeviceAttr which, int device) {
  const cudaDeviceProp all = properties(device);
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor: return all.major;
    case cudaDevAttrComputeCapabilityMinor: return all.minor;
    case cudaDevAttrMultiProcessorCount: return all.multiProcessorCount;
    case cudaDevAttrMaxSharedMemoryPerBlock: return static_cast<int>(all.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(all.sharedMemPerBlockOptin);
    case cudaDevAttrMaxThreadsPerBlock: return all.maxThreadsPerBlock;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return all.maxThreadsPerMultiProcessor;
    case cudaDevAttrWarpSize: return all.warpSize;
    case cudaDevAttrPciBusId: return all.pciBusID;
    case cudaDevAttrAsyncEngineCount: return all.asyncEngineCount;
    case cudaDevAttrL2CacheSize: return all.l2CacheSize;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrCooperativeLaunch: return 1;
    default: return 0;
  }
}

// Which devices may reach which.
struct Peers {
  std::mutex mutex;
  std::set<std::pair<int, int>> enabled;
};

Peers& peers() {
  static auto* all = new Peers;
  return *all;
}

cudaError_t no_device() {
  return fail(settings().driver < CUDART_VERSION ? cudaErrorInsufficientDriver : cudaErrorNoDevice);
}

// For each device the error that it was lost by.
std::map<int, cudaError_t>& lost_devices(const std::lock_guard<std::mutex>&) {
  static auto* all = new std::map<int, cudaError_t>;
  return *all;
}
std::mutex mutex_of_lost;

cudaError_t no_such_device(int device) {
  if (settings().devices.empty()) return no_device();
  return fail(cudaErrorInvalidDevice, "device " + std::to_string(device) + " of " +
                                          std::to_string(settings().devices.size()));
}

}  // namespace

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }
bool is_device(int device) {
  return device >= 0 && device < static_cast<int>(settings().devices.size());
}

bool is_peer_enabled(int device, int peer) {
  const std::lock_guard lock(peers().mutex);
  return peers().enabled.count({device, peer}) != 0;
}

cudaError_t loss_of(int device) {
  const std::lock_guard lock(mutex_of_lost);
  const auto& all = lost_devices(lock);
  const auto at = all.find(device);
  return at == all.end() ? cudaSuccess : at->second;
}

cudaError_t error_of_lost(int device) {
  const cudaError_t loss = loss_of(device);
  return loss == cudaSuccess ? loss : fail(loss);
}

}  // namespace spillway::emulated

using namespace spillway::emulated;

extern "C" {

void emu_cuda_lose(int device, cudaError_t error) {
  const std::lock_guard lock(mutex_of_lost);
  lost_devices(lock)[device] = error;
}

void emu_cuda_deinitialize() {
  for (int device = 0; is_device(device); ++device) emu_cuda_lose(device, cudaErrorCudartUnloading);
}

cudaError_t cudaGetDeviceCount(int* count) {
  SPILLWAY_COUNT_CALL();
  *count = static_cast<int>(settings().devices.size());
  return *count == 0 ? no_device() : cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return no_device();
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device)) return no_such_device(device);
  set_current_device(device);
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  SPILLWAY_COUNT_CALL();
  return is_device(device) ? cudaSuccess : no_such_device(device);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* all, int device) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device)) return no_such_device(device);
  *all = properties(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device)) return no_such_device(device);
  *value = attribute(which, device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device)) return no_such_device(device);
  const std::string& given = settings().bus_address;
  if (given.empty())
    std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0",
                  properties(device).pciBusID);
  else
    std::snprintf(text, static_cast<std::size_t>(bytes), "%s", given.c_str());
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  SPILLWAY_COUNT_CALL();
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  wait_for_device(current_device());
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* yes, int device, int peer) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device) || !is_device(peer))
    return no_such_device(is_device(device) ? peer : device);
  *yes = device == peer ? 0 : 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(peer) || peer == current_device()) return no_such_device(peer);
  const std::lock_guard lock(peers().mutex);
  const bool added = peers().enabled.emplace(current_device(), peer).second;
  return added ? cudaSuccess : fail(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  SPILLWAY_COUNT_CALL();
  const std::lock_guard lock(peers().mutex);
  const bool removed = peers().enabled.erase({current_device(), peer}) != 0;
  return removed ? cudaSuccess : fail(cudaErrorPeerAccessNotEnabled);
}

cudaError_t cudaDriverGetVersion(int* version) {
  SPILLWAY_COUNT_CALL();
  *version = settings().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  SPILLWAY_COUNT_CALL();
  *version = CUDART_VERSION;
  return cudaSuccess;
}
}
