// Functions of CUDA on pinned memory of the host.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <atomic>
#include <string>

#include "address_space.h"
#include "calls.h"
#include "capture.h"
#include "devices.h"
#include "failure.h"
#include "ordering.h"
#include "pinned_memory.h"
#include "settings.h"
#include "stream.h"

using namespace spillway::emulated;

namespace {

std::atomic<std::size_t> pinned_bytes{0};

// False where EMU_CUDA_PINNED does not leave so much.
bool take_pinned(std::size_t bytes) {
  std::size_t now = pinned_bytes.load();
  do {
    if (bytes > settings().pinned_memory || now > settings().pinned_memory - bytes) return false;
  } while (!pinned_bytes.compare_exchange_weak(now, now + bytes));
  return true;
}

cudaError_t refused(std::size_t bytes) {
  return fail(cudaErrorMemoryAllocation,
              std::to_string(bytes) + " bytes of pinned memory are wanted, of which " +
                  std::to_string(pinned_bytes.load()) + " are in use and " +
                  std::to_string(settings().pinned_memory) + " may be");
}

void wait_for_all_devices() {
  for (std::size_t i = 0; i < settings().devices.size(); ++i) wait_for_device(static_cast<int>(i));
}

// The range ends for the devices, once they are done with it.
bool end_range(const void* address, Kind kind, const char* what) {
  AddressSpace& space = AddressSpace::of_process();
  const auto range = space.find(address);
  if (!range || range->kind != kind || range->begin != reinterpret_cast<std::uintptr_t>(address))
    return false;
  wait_for_all_devices();
  ordering::take_away(address, range->bytes, what);
  if (settings().check) PinnedMemory::of_process().forget(*range);
  if (kind == Kind::kHost) munmap(const_cast<void*>(address), whole_pages(range->bytes));
  pinned_bytes -= whole_pages(range->bytes);
  return space.remove(address, kind).has_value();
}

}  // namespace

extern "C" {

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  *address = nullptr;
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  if (bytes == 0) return cudaSuccess;
  if (!take_pinned(whole_pages(bytes))) return refused(bytes);
  void* memory =
      mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    pinned_bytes -= whole_pages(bytes);
    return refused(bytes);
  }
  AddressSpace::of_process().add_host(memory, bytes, Kind::kHost, current_device());
  *address = memory;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, size_t bytes) {
  SPILLWAY_COUNT_CALL();
  return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* address) {
  SPILLWAY_COUNT_CALL();
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  if (address == nullptr || end_range(address, Kind::kHost, "cudaFreeHost")) return cudaSuccess;
  return fail(cudaErrorInvalidValue, "no pinned allocation begins at " + hex(address));
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  if (address == nullptr || bytes == 0) return fail(cudaErrorInvalidValue, "no memory to register");
  if (!take_pinned(whole_pages(bytes))) return refused(bytes);
  if (AddressSpace::of_process().add_host(address, bytes, Kind::kRegistered, current_device()))
    return cudaSuccess;
  pinned_bytes -= whole_pages(bytes);
  return fail(cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* address) {
  SPILLWAY_COUNT_CALL();
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  if (end_range(address, Kind::kRegistered, "cudaHostUnregister")) return cudaSuccess;
  return fail(cudaErrorHostMemoryNotRegistered, "no registered memory begins at " + hex(address));
}

cudaError_t cudaHostGetDevicePointer(void** device_address, void* address, unsigned) {
  SPILLWAY_COUNT_CALL();
  if (!AddressSpace::of_process().is_pinned(address))
    return fail(cudaErrorInvalidValue, "the memory is not pinned");
  *device_address = address;
  return cudaSuccess;
}
}
