#include "spillway/device/cuda/virtual_memory.h"

#include <algorithm>

#include "device.h"
#include "profiler.h"
#include "spillway/base/error.h"

namespace spillway::device {
namespace {

std::shared_ptr<CudaContext> context_of(const Device& device) {
  const auto* const cuda = dynamic_cast<const CudaDevice*>(&device);
  if (cuda == nullptr) throw Error("device {} has no virtual memory of CUDA", device.id());
  if (!device.capabilities().virtual_memory)
    throw UnsupportedError(
        "device {} cannot lay memory beneath addresses that stay: take another GPU, or, where this "
        "is a virtual one, have unified memory enabled for it (enable_uvm of NVIDIA vGPU)",
        device.id());
  return cuda->context();
}

CUmemLocation location_of(DeviceId device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device.index;
  return location;
}

/// Whether drives and network adapters reach chunks that ask for it.
bool serves_other_devices(const CudaContext& context) {
  CUdevice ordinal = 0;
  int value = 0;
  return context.cuda().cuDeviceGet(&ordinal, context.device().index) == CUDA_SUCCESS &&
         context.cuda().cuDeviceGetAttribute(
             &value, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, ordinal) ==
             CUDA_SUCCESS &&
         value != 0;
}

CUmemAllocationProp properties_on(DeviceId device, bool serves_others) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location_of(device);
  properties.allocFlags.gpuDirectRDMACapable = serves_others ? 1 : 0;
  return properties;
}

CUdeviceptr number_of(const std::byte* address) { return reinterpret_cast<CUdeviceptr>(address); }

Bytes granularity_on(const CudaContext& context, bool serves_others) {
  const OnDevice on(context);
  const CUmemAllocationProp properties = properties_on(context.device(), serves_others);
  std::size_t bytes = 0;
  const CUresult result = context.cuda().cuMemGetAllocationGranularity(
      &bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS)
    throw Error("device {} does not tell the size of its pages: {}", context.device(),
                context.cuda().failure(context.device(), result));
  return Bytes(bytes);
}

// Nobody can use the memory of a lost device any more, and whoever tries is told by CUDA.
void require(const CudaContext& context, CUresult result, const char* call, const void* address) {
  if (result == CUDA_SUCCESS || CudaFunctions::is_of_a_lost_device(result)) return;
  throw Error("{} refused at address {} of {}: {}", call, address, context.device(),
              context.cuda().failure(context.device(), result));
}

}  // namespace

CudaVirtualMemory::CudaVirtualMemory(const Device& device)
    : context_(context_of(device)),
      serves_others_(serves_other_devices(*context_)),
      granularity_(granularity_on(*context_, serves_others_)),
      admitted_{context_->device()} {}

CudaVirtualMemory::~CudaVirtualMemory() = default;

DeviceId CudaVirtualMemory::device() const { return context_->device(); }

std::byte* CudaVirtualMemory::reserve(Bytes size, Bytes alignment) {
  const OnDevice on(*context_);
  CUdeviceptr address = 0;
  const CUresult result = context_->cuda().cuMemAddressReserve(
      &address, size.count(), alignment.count(), CUdeviceptr{0}, 0);
  if (result != CUDA_SUCCESS)
    throw UnsupportedError("device {} has no {} of addresses: {}; a limit of address space "
                           "(ulimit -v) may stand in the way",
                           device(), size, context_->cuda().failure(device(), result));
  return reinterpret_cast<std::byte*>(address);
}

void CudaVirtualMemory::give_back(std::byte* address, Bytes size) noexcept {
  const OnDevice on(*context_);
  context_->cuda().cuMemAddressFree(number_of(address), size.count());
}

CudaVirtualMemory::Chunk CudaVirtualMemory::make_chunk(Bytes size) {
  const OnDevice on(*context_);
  const CUmemAllocationProp properties = properties_on(device(), serves_others_);
  CUmemGenericAllocationHandle chunk = 0;
  const CUresult result = context_->cuda().cuMemCreate(&chunk, size.count(), &properties, 0);
  if (result == CUDA_SUCCESS) return Chunk(chunk);
  std::string text = message("device {} has no {} of memory for tensors: {}", device(), size,
                             context_->cuda().failure(device(), result));
  std::size_t free = 0;
  std::size_t total = 0;
  if (context_->cuda().cudaMemGetInfo(&free, &total) == cudaSuccess)
    text += message("; {} of {} are free, and nvidia-smi shows who else holds memory of it",
                    Bytes(free), Bytes(total));
  else
    context_->cuda().cudaGetLastError();
  throw Error("{}", text);
}

void CudaVirtualMemory::drop_chunk(Chunk chunk) noexcept {
  const OnDevice on(*context_);
  context_->cuda().cuMemRelease(chunk.value());
}

void CudaVirtualMemory::map(std::byte* address, Chunk chunk, Bytes size) {
  const ProfilerRange range("map", size);
  const OnDevice on(*context_);
  const CudaFunctions& cuda = context_->cuda();
  require(*context_, cuda.cuMemMap(number_of(address), size.count(), 0, chunk.value(), 0),
          "cuMemMap", address);
  renew_access(address, size);
}

void CudaVirtualMemory::admit(DeviceId peer) {
  const std::lock_guard lock(mutex_);
  if (std::find(admitted_.begin(), admitted_.end(), peer) == admitted_.end())
    admitted_.push_back(peer);
}

std::vector<DeviceId> CudaVirtualMemory::admitted() const {
  const std::lock_guard lock(mutex_);
  return admitted_;
}

void CudaVirtualMemory::renew_access(std::byte* address, Bytes size) {
  std::vector<CUmemAccessDesc> access;
  for (const DeviceId device : admitted())
    access.push_back({location_of(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  const OnDevice on(*context_);
  require(*context_,
          context_->cuda().cuMemSetAccess(number_of(address), size.count(), access.data(),
                                          access.size()),
          "cuMemSetAccess", address);
}

void CudaVirtualMemory::unmap(std::byte* address, Bytes size) {
  const ProfilerRange range("unmap", size);
  const OnDevice on(*context_);
  require(*context_, context_->cuda().cuMemUnmap(number_of(address), size.count()), "cuMemUnmap",
          address);
}

}  // namespace spillway::device
