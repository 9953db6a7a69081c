#include "emulation.h"

#include <string>

#include "../driver/mappings.h"
#include "address_space.h"
#include "calls.h"
#include "capture.h"
#include "failure.h"
#include "ordering.h"
#include "settings.h"
#include "stream.h"

using namespace spillway::emulated;

extern "C" {

void emu_cuda_enqueue(cudaStream_t handle, const char* what, void (*work)(void*), void* argument) {
  CUstream_st& stream = living_stream(handle);
  if (stream.capture() != nullptr)
    die(std::string(what) + " cannot become part of a graph of the emulated CUDA");
  order_with_legacy(stream);
  stream.push(what, CUstream_st::Delay::kBySettings, [work, argument] { work(argument); });
}

void emu_cuda_drain(cudaStream_t stream) { living_stream(stream).drain(); }

void emu_cuda_begin(cudaStream_t handle) {
  CUstream_st& stream = living_stream(handle);
  order_with_legacy(stream);
  ordering::begin(stream.id());
}

void emu_cuda_use(cudaStream_t stream, const void* address, size_t bytes, int writes,
                  const char* what) {
  const CUstream_st& used = living_stream(stream);
  ordering::use(used.id(), address, bytes, writes != 0 ? Use::kWrite : Use::kRead, what);
  check_access(used.device(), address, bytes, what, By::kKernel);
}

int emu_cuda_drive(const void* address, size_t bytes, int writes, const char* what,
                   void (*work)(void*), void* argument) {
  need_driver_files(what);
  need_no_host_function(what);
  const auto range = AddressSpace::of_process().find(address);
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  if (!range || !AddressSpace::of_process().is_device(address)) return 0;
  if (range->kind == Kind::kReserved && !Mappings::of_process().serves_others(number, bytes))
    return 0;
  thread_local const int drive = ordering::add_stream("a drive");
  ordering::begin(drive);
  ordering::use(drive, address, bytes, writes != 0 ? Use::kWrite : Use::kRead, what);
  work(argument);
  check_mapped(address, bytes, what, Moment::kExecution);
  ordering::host_learns(ordering::now(drive));
  return 1;
}

void emu_cuda_set_running(const char* what) { running() = what; }

void emu_cuda_check(const void* address, size_t bytes, const char* what) {
  check_mapped(address, bytes, what, Moment::kExecution);
}

void emu_cuda_check_fixed(const void* address, const char* what) {
  if (!settings().nccl_fixed) return;
  const auto range = AddressSpace::of_process().find(address);
  if (range && range->kind == Kind::kReserved)
    die("'" + std::string(what) + "' is given memory at " + hex(address) +
        " that the program maps, and EMU_NCCL_FIXED is set");
}

int emu_cuda_is_device(const void* address) {
  return AddressSpace::of_process().is_device(address) ? 1 : 0;
}
}
