// Functions of CUDA that copy and fill.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "address_space.h"
#include "calls.h"
#include "capture.h"
#include "devices.h"
#include "failure.h"
#include "fills.h"
#include "ordering.h"
#include "pinned_memory.h"
#include "settings.h"
#include "stream.h"

namespace spillway::emulated {
namespace {

enum class Place : std::uint8_t { kDevice, kPinned, kPageable };

Place place_of(const void* address) {
  const AddressSpace& space = AddressSpace::of_process();
  if (space.is_device(address)) return Place::kDevice;
  return space.is_pinned(address) ? Place::kPinned : Place::kPageable;
}

const char* name_of(Place to, Place from) {
  if (to == Place::kDevice)
    return from == Place::kDevice ? "copy, device to device" : "copy, host to device";
  return from == Place::kDevice ? "copy, device to host" : "copy, host to host";
}

struct Copy {
  char* to;
  const char* from;
  std::size_t bytes;
  Place to_place;
  Place from_place;

  void run() const {
    const char* name = name_of(to_place, from_place);
    check_mapped(to, bytes, name, Moment::kExecution);
    check_mapped(from, bytes, name, Moment::kExecution);
    // The later half first, so that who reads too early finds a mixture.
    const std::size_t half = bytes / 2;
    move(half, bytes - half);
    move(0, half);
  }

  void move(std::size_t begin, std::size_t count) const {
    const bool past_protection = settings().check;
    if (past_protection && to_place == Place::kPinned && from_place == Place::kPinned) {
      std::vector<char> between(count);
      PinnedMemory::of_process().read(between.data(), from + begin, count);
      PinnedMemory::of_process().write(to + begin, between.data(), count);
    } else if (past_protection && to_place == Place::kPinned) {
      PinnedMemory::of_process().write(to + begin, from + begin, count);
    } else if (past_protection && from_place == Place::kPinned) {
      PinnedMemory::of_process().read(to + begin, from + begin, count);
    } else {
      std::memmove(to + begin, from + begin, count);
    }
  }
};

void wait_for(CUstream_st& stream) {
  const Clock known = ordering::now(stream.id());
  stream.drain();
  ordering::host_learns(known);
}

// Which device a copy goes by to either side; none: that of its stream.
struct Devices {
  std::optional<int> to;
  std::optional<int> from;
};

// Pageable memory is read before the call returns, and written before it returns; only pinned
// memory is used later.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t handle, bool waits,
                 const Devices& devices = {}) {
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr)
    return fail(cudaErrorInvalidResourceHandle, "the stream of a copy was destroyed or never made");
  if (const cudaError_t lost = error_of_lost(stream->device()); lost != cudaSuccess) return lost;
  if (bytes == 0) return cudaSuccess;
  Copy work{static_cast<char*>(to), static_cast<const char*>(from), bytes, place_of(to),
            place_of(from)};
  const char* name = name_of(work.to_place, work.from_place);
  // What is pageable would be another time's, or read at each launch.
  if (waits || work.to_place == Place::kPageable || work.from_place == Place::kPageable)
    if (const cudaError_t error = may_not_capture(*stream, name); error != cudaSuccess)
      return error;
  if (waits)
    if (const cudaError_t unsafe = may_be_unsafe(name); unsafe != cudaSuccess) return unsafe;
  order_with_legacy(*stream);
  ordering::begin(stream->id());
  ordering::use_protected(stream->id(), from, bytes, Use::kRead, name);
  ordering::use_protected(stream->id(), to, bytes, Use::kWrite, name);
  check_access(devices.from.value_or(stream->device()), from, bytes, name, By::kCopy);
  check_access(devices.to.value_or(stream->device()), to, bytes, name, By::kCopy);
  std::shared_ptr<std::vector<char>> staged;
  if (work.from_place == Place::kPageable && work.to_place != Place::kPageable) {
    staged = std::make_shared<std::vector<char>>(work.from, work.from + bytes);
    work.from = staged->data();
  }
  stream->push(name, CUstream_st::Delay::kBySettings, [work, staged] { work.run(); });
  if (waits || work.to_place == Place::kPageable) wait_for(*stream);
  return cudaSuccess;
}

}  // namespace

cudaError_t fill(void* address, std::size_t bytes, cudaStream_t handle, std::function<void()> run) {
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr)
    return fail(cudaErrorInvalidResourceHandle, "the stream of a fill was destroyed or never made");
  if (bytes == 0) return cudaSuccess;
  order_with_legacy(*stream);
  ordering::begin(stream->id());
  ordering::use(stream->id(), address, bytes, Use::kWrite, "fill");
  check_access(stream->device(), address, bytes, "fill", By::kCopy);
  stream->push("fill", CUstream_st::Delay::kBySettings, [address, bytes, run = std::move(run)] {
    check_mapped(address, bytes, "fill", Moment::kExecution);
    run();
  });
  return cudaSuccess;
}

}  // namespace spillway::emulated

using namespace spillway::emulated;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  return copy(to, from, bytes, stream, false);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  SPILLWAY_COUNT_CALL();
  return copy(to, from, bytes, nullptr, true);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  return copy(to, from, bytes, stream, false, {to_device, from_device});
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           size_t bytes) {
  SPILLWAY_COUNT_CALL();
  return copy(to, from, bytes, nullptr, true, {to_device, from_device});
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  return fill(address, bytes, stream, [=] { std::memset(address, value, bytes); });
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  SPILLWAY_COUNT_CALL();
  return cudaMemsetAsync(address, value, bytes, nullptr);
}
}
