// What a build without CUDA's headers has in the place of the CUDA device, so that nobody else
// needs to know.
#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/device/cuda/mapping_times.h"

namespace spillway::device {
namespace {

constexpr const char* kReason =
    "this Spillway was built without CUDA: fetch CUDA's headers "
    "(src/cmake/setup/fetch_cuda_headers.sh), and configure and build it again";

BackendStatus probe() { return {DeviceKind::kCuda, {}, kReason}; }

std::unique_ptr<Device> open(DeviceId id) { throw UnsupportedError("{}: {}", id, kReason); }

}  // namespace

DeviceBackend cuda_backend() { return {DeviceKind::kCuda, &probe, &open}; }

CudaFacts cuda_facts() {
  CudaFacts facts;
  facts.reason = kReason;
  return facts;
}

std::optional<CudaDeviceFacts> cuda_facts_of(DeviceId /*id*/) { return std::nullopt; }

std::string why_no_direct_files() { return kReason; }

std::unique_ptr<Queue> queue_over_stream(Device& device, void* /*stream*/) {
  throw Error("device {} has no streams of CUDA", device.id());
}

bool is_captured(const Queue& queue) {
  throw Error("a queue of {} is no stream of CUDA", queue.device());
}

std::string failure_so_far(Queue& queue) {
  throw Error("a queue of {} is no stream of CUDA", queue.device());
}

bool is_stream_captured(void* /*stream*/) {
  throw Error("streams of CUDA are not known: {}", kReason);
}

void with_current_device(Device& device, const std::function<void()>& /*work*/) {
  throw Error("device {} is none of CUDA", device.id());
}

std::vector<MappingTime> measure_mapping(Device& device, const std::vector<Bytes>& /*chunks*/) {
  throw Error("{} maps no chunks", device.id());
}

void* stream_of(const Queue& queue) {
  throw Error("a queue of {} is no stream of CUDA", queue.device());
}

}  // namespace spillway::device
