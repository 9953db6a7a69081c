// Which GPUs there are, or why none.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "device.h"
#include "functions.h"
#include "near_node.h"
#include "queue.h"
#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::device {
namespace {

struct FoundDevices {
  const CudaFunctions* cuda = nullptr;
  std::vector<DeviceId> devices;
  std::string reason;
  bool names_none = false;
};

FoundDevices none_of(const CudaFunctions& cuda, cudaError_t error) {
  const auto none = [&](const std::string& why) { return FoundDevices{&cuda, {}, why}; };
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool are_none = error == cudaSuccess || error == cudaErrorNoDevice ||
                        (error == cudaErrorInvalidDevice && visible != nullptr);
  if (error != cudaSuccess && !are_none)
    return none(message("CUDA cannot be used: {}; nvidia-smi may tell more", cuda.text_of(error)));
  cuda.cudaGetLastError();
  if (visible == nullptr)
    return none("the driver of NVIDIA sees no GPU: nvidia-smi shows those of the machine; in a "
                "container, start it with access to them");
  if (*visible == '\0')
    return none("CUDA_VISIBLE_DEVICES is empty, which hides all GPUs: unset it, or name some of "
                "those that nvidia-smi lists");
  FoundDevices found =
      none(message("CUDA_VISIBLE_DEVICES={} names no GPU that is there: unset it, or name some of "
                   "those that nvidia-smi lists",
                   visible));
  found.names_none = true;
  return found;
}

// Makes no context, which would take memory of each of them.
FoundDevices find_devices() {
  const FoundCuda found = find_cuda();
  if (found.functions == nullptr) return {nullptr, {}, found.reason};
  int count = 0;
  const cudaError_t error = found.functions->cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return none_of(*found.functions, error);
  FoundDevices all{found.functions, {}, {}};
  for (int i = 0; i < count; ++i)
    all.devices.push_back({DeviceKind::kCuda, static_cast<std::uint16_t>(i)});
  return all;
}

std::vector<DeviceId> others(const std::vector<DeviceId>& devices, DeviceId id) {
  std::vector<DeviceId> rest = devices;
  std::erase(rest, id);
  return rest;
}

bool can_reach(const CudaFunctions& cuda, DeviceId id, DeviceId peer) {
  int is_possible = 0;
  if (cuda.cudaDeviceCanAccessPeer(&is_possible, id.index, peer.index) == cudaSuccess)
    return is_possible != 0;
  cuda.cudaGetLastError();
  return false;
}

bool moves_memory(const CudaFunctions& cuda, DeviceId id) {
  CUdevice ordinal = 0;
  int value = 0;
  return cuda.cuDeviceGet(&ordinal, id.index) == CUDA_SUCCESS &&
         cuda.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                   ordinal) == CUDA_SUCCESS &&
         value != 0;
}

bool pins_host(const CudaFunctions& cuda, DeviceId id) {
  int value = 0;
  if (cuda.cudaDeviceGetAttribute(&value, cudaDevAttrHostRegisterSupported, id.index) ==
      cudaSuccess)
    return value != 0;
  cuda.cudaGetLastError();
  return false;
}

Capabilities capabilities_of(const CudaFunctions& cuda, DeviceId id, std::size_t devices) {
  return {.virtual_memory = moves_memory(cuda, id),
          .peer_copies = devices > 1,
          .pinned_host_memory = pins_host(cuda, id)};
}

std::string bus_address_of(const CudaFunctions& cuda, DeviceId id) {
  std::array<char, 32> text{};
  if (cuda.cudaDeviceGetPCIBusId(text.data(), text.size(), id.index) != cudaSuccess) {
    cuda.cudaGetLastError();
    return {};
  }
  std::string address = text.data();
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return address;
}

CudaDeviceFacts facts_of(const FoundDevices& found, DeviceId id) {
  const CudaFunctions& cuda = *found.cuda;
  CudaDeviceFacts facts;
  facts.id = id;
  cudaDeviceProp all{};
  if (const cudaError_t error = cuda.cudaGetDeviceProperties(&all, id.index);
      error != cudaSuccess) {
    facts.name = message("unknown: {}", cuda.failure(id, error));
    return facts;
  }
  facts.name = all.name;
  facts.compute_capability = message("{}.{}", all.major, all.minor);
  facts.memory = Bytes(all.totalGlobalMem);
  facts.bus_address = bus_address_of(cuda, id);
  facts.numa_node = node_near(facts.bus_address);
  // "NVIDIA A100-SXM4-40GB MIG 1g.5gb". CUDA has no attribute that tells, and NVML, which has, is
  // not worth a library for one word of a report.
  facts.is_mig_slice = facts.name.find(" MIG ") != std::string::npos;
  facts.capabilities = capabilities_of(cuda, id, found.devices.size());
  for (const DeviceId peer : others(found.devices, id))
    if (can_reach(cuda, id, peer)) facts.direct_peers.push_back(peer);
  return facts;
}

/// LibTorch and its libraries have kernels for what CUDA's compilers still know.
void require_kernels(const CudaFunctions& cuda, DeviceId id) {
  constexpr int kOldest = 75;  // Of CUDA 13.
  int major = 0;
  int minor = 0;
  if (cuda.cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id.index) !=
          cudaSuccess ||
      cuda.cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, id.index) !=
          cudaSuccess) {
    cuda.cudaGetLastError();
    return;
  }
  if (major * 10 + minor < kOldest)
    throw UnsupportedError("device {} has the compute capability {}.{}, and CUDA 13 has kernels "
                           "for {}.{} and later: take another GPU (CUDA_VISIBLE_DEVICES)",
                           id, major, minor, kOldest / 10, kOldest % 10);
}

template <typename Function>
std::string release_by(Function function) {
  int version = 0;
  return function(&version) == cudaSuccess && version > 0 ? release_of(version) : std::string();
}

BackendStatus probe() {
  FoundDevices found = find_devices();
  return {DeviceKind::kCuda, std::move(found.devices), std::move(found.reason)};
}

std::unique_ptr<Device> open(DeviceId id) {
  const FoundDevices found = find_devices();
  if (found.devices.empty()) throw Error("{}: {}", id, found.reason);
  if (std::find(found.devices.begin(), found.devices.end(), id) == found.devices.end())
    throw Error("{} is not there any more", id);
  require_kernels(*found.cuda, id);
  return std::make_unique<CudaDevice>(
      std::make_shared<CudaContext>(*found.cuda, id, others(found.devices, id)),
      capabilities_of(*found.cuda, id, found.devices.size()),
      node_near(bus_address_of(*found.cuda, id)));
}

}  // namespace

DeviceBackend cuda_backend() { return {DeviceKind::kCuda, &probe, &open}; }

CudaFacts cuda_facts() {
  const FoundDevices found = find_devices();
  CudaFacts facts;
  facts.reason = found.reason;
  facts.names_none = found.names_none;
  if (found.cuda == nullptr) return facts;
  facts.driver = release_by(found.cuda->cudaDriverGetVersion);
  facts.runtime = release_by(found.cuda->cudaRuntimeGetVersion);
  for (const DeviceId id : found.devices) facts.devices.push_back(facts_of(found, id));
  return facts;
}

std::optional<CudaDeviceFacts> cuda_facts_of(DeviceId id) {
  const FoundDevices found = find_devices();
  if (std::find(found.devices.begin(), found.devices.end(), id) == found.devices.end())
    return std::nullopt;
  return facts_of(found, id);
}

std::unique_ptr<Queue> queue_over_stream(Device& device, void* stream) {
  const auto* const cuda = dynamic_cast<const CudaDevice*>(&device);
  if (cuda == nullptr) throw Error("device {} has no streams of CUDA", device.id());
  return std::make_unique<CudaQueue>(cuda->context(), static_cast<cudaStream_t>(stream));
}

bool is_captured(const Queue& queue) {
  const auto* const cuda = dynamic_cast<const CudaQueue*>(&queue);
  if (cuda == nullptr) throw Error("a queue of {} is no stream of CUDA", queue.device());
  return cuda->is_captured();
}

std::string failure_so_far(Queue& queue) {
  auto* const cuda = dynamic_cast<CudaQueue*>(&queue);
  if (cuda == nullptr) throw Error("a queue of {} is no stream of CUDA", queue.device());
  return cuda->failure_so_far();
}

bool is_stream_captured(void* stream) {
  static const CudaFunctions* const cuda = find_cuda().functions;
  SPILLWAY_ASSERT(cuda != nullptr);
  return cuda->is_captured(static_cast<cudaStream_t>(stream));
}

void with_current_device(Device& device, const std::function<void()>& work) {
  const auto* const cuda = dynamic_cast<const CudaDevice*>(&device);
  if (cuda == nullptr) throw Error("device {} is none of CUDA", device.id());
  const OnDevice on(*cuda->context());
  work();
}

void* stream_of(const Queue& queue) {
  const auto* const cuda = dynamic_cast<const CudaQueue*>(&queue);
  if (cuda == nullptr) throw Error("a queue of {} is no stream of CUDA", queue.device());
  return cuda->stream();
}

}  // namespace spillway::device
