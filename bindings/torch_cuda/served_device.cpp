#include "served_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "cuda_allocator.h"
#include "device_library.h"
#include "device_runtimes.h"
#include "interceptor.h"
#include "spillway/base/error.h"
#include "spillway/base/launcher.h"
#include "spillway/base/log.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/device/cuda/virtual_memory.h"
#include "spillway/device/devices.h"
#include "spillway/memory/cuda/cuda_pages.h"
#include "spillway/runtime/settings/device_budget.h"

namespace spillway::torch_binding {
namespace {

device::DeviceId id_of(c10::DeviceIndex index) {
  return {device::DeviceKind::kCuda, static_cast<std::uint16_t>(index)};
}

Bytes page_size_for(const device::Device& device, const runtime::Settings& settings) {
  return std::max(runtime::device_page_size(settings),
                  device::CudaVirtualMemory(device).granularity());
}

std::string name_of(device::DeviceId id) {
  const auto facts = device::cuda_facts_of(id);
  return facts ? facts->name : to_string(id);
}

/// Known by its handle alone: of the program, or one of LibTorch's that was named so.
bool is_external(c10::cuda::CUDAStream stream) {
  return stream.id() != 0 && reinterpret_cast<cudaStream_t>(stream.id()) == stream.stream();
}

}  // namespace

ServedDevice& ServedDevice::of(c10::DeviceIndex index) {
  // The last place stays empty: a GPU too many is refused where its runtime would be built.
  static std::array<std::atomic<ServedDevice*>, DeviceRuntimes::kMostGpus + 1> all{};
  static std::mutex making;
  auto& place = all.at(std::min(static_cast<std::size_t>(index), DeviceRuntimes::kMostGpus));
  if (ServedDevice* const made = place.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(making);
  if (ServedDevice* const made = place.load()) return *made;
  try {
    place.store(new ServedDevice(index));
  } catch (const Error& error) {
    tell_of_refused_device(error);
    throw;
  }
  return *place.load();
}

ServedDevice::ServedDevice(c10::DeviceIndex index)
    : device_(device::open_device(id_of(index), std::array{device::cuda_backend()})) {
  const runtime::Settings& settings = run_of_this_process().settings();
  const std::size_t visible = device::cuda_backend().probe().devices.size();
  runtime::check_named_gpus(settings, visible);
  auto pages = memory::make_cuda_pages(device_, page_size_for(*device_, settings));
  pages_ = pages.get();
  min_storage_ = runtime::least_paged(settings, pages->page_size());
  runtime_ = &run_of_this_process().add_device(
      {.id = device_->id(),
       .name = name_of(device_->id()),
       .total = device_->memory().total,
       .device = device_,
       .pages = std::move(pages),
       .given_so_far = [this,
                        index] { return given_so_far(c10::cuda::getCurrentCUDAStream(index)); },
       .moment = [this, index] { return moment(c10::cuda::getCurrentCUDAStream(index)); },
       .before_replay = [this, index] { follow_all(c10::cuda::getCurrentCUDAStream(index)); },
       .after_replay = [this, index] { lead_all(c10::cuda::getCurrentCUDAStream(index)); },
       .stream =
           [index] {
             return reinterpret_cast<std::uint64_t>(
                 c10::cuda::getCurrentCUDAStream(index).stream());
           },
       .others_give_back = [index] { empty_cache_of(index); },
       .visible = static_cast<unsigned>(visible),
       .sees_as_others = is_as_launcher_has("CUDA_VISIBLE_DEVICES")});
  // Functions at exit run in the order opposite to that in which they were named, and CUDA has
  // named its own by now.
  static const bool is_named = std::atexit([] {
                                 if (!is_forked_child()) run_of_this_process().before_drivers_end();
                               }) == 0;
  if (!is_named) throw UnsupportedError("no function at exit can be named for {}", device_->id());
  Interceptor::add_device(index, *runtime_,
                          {.is_capturing = &is_capturing, .objection = &objection_to_stream});
}

void ServedDevice::admit(c10::DeviceIndex peer) { memory::admit_peer(*pages_, id_of(peer)); }

bool ServedDevice::is_capturing(c10::DeviceIndex index) {
  return device::is_stream_captured(c10::cuda::getCurrentCUDAStream(index).stream());
}

const char* ServedDevice::objection_to_stream(c10::DeviceIndex index) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index);
  if (is_external(stream)) return "it runs on a stream that the program may destroy";
  return device::is_stream_captured(stream.stream()) ? "it becomes part of a graph" : nullptr;
}

std::vector<std::shared_ptr<StreamMarks>> ServedDevice::other_streams(cudaStream_t than) {
  std::vector<std::shared_ptr<StreamMarks>> others;
  const std::lock_guard lock(mutex_);
  for (const auto& [stream, marks] : marks_)
    if (stream != than) others.push_back(marks);
  return others;
}

bool ServedDevice::is_of_program(c10::cuda::CUDAStream stream) {
  if (!is_external(stream)) return false;
  const std::lock_guard lock(mutex_);
  return !marks_.contains(stream.stream());
}

/// What the stream is given next comes behind all that other streams were given.
void ServedDevice::follow_all(c10::cuda::CUDAStream stream) {
  cudaStream_t const handle = stream.stream();
  if (device::is_stream_captured(handle))
    throw UnsupportedError("a graph of {} is being made where a tensor has to be recomputed: run "
                           "with --recompute off",
                           device_->id());
  const auto others = other_streams(handle);
  if (others.empty()) return;
  const auto queue = device::queue_over_stream(*device_, handle);
  for (const std::shared_ptr<StreamMarks>& other : others) queue->wait(other->end_so_far());
  if (const std::string failure = device::failure_so_far(*queue); !failure.empty())
    throw Error("nothing can run again on {} behind its other streams: {}", device_->id(), failure);
}

/// What other streams are given next comes behind all that the stream was given.
void ServedDevice::lead_all(c10::cuda::CUDAStream stream) {
  cudaStream_t const handle = stream.stream();
  const auto others = other_streams(handle);
  if (others.empty() && !has_streams_of_program_) return;
  const device::Event end = device::queue_over_stream(*device_, handle)->record();
  if (const std::string obstacle = end.state()->obstacle(); !obstacle.empty())
    throw Error("other streams cannot go on behind what has run again: {}", obstacle);
  for (const std::shared_ptr<StreamMarks>& other : others) other->let_wait(end);
  // They may be gone by now; so the host waits for them.
  if (!has_streams_of_program_) return;
  if (const device::Outcome outcome = end.wait(); !outcome.succeeded())
    throw Error("an operator has run again on {} and failed: {}", device_->id(), outcome.error);
}

device::Event ServedDevice::given_so_far(c10::cuda::CUDAStream stream) {
  cudaStream_t const handle = stream.stream();
  if (is_of_program(stream)) {
    has_streams_of_program_ = true;
    // What a graph uses is held for good.
    if (device::is_stream_captured(handle)) return {};
    return device::queue_over_stream(*device_, handle)->record();
  }
  return marks_of(handle).mark();
}

/// None on a stream of the program, whose events would outlive it.
device::Event ServedDevice::moment(c10::cuda::CUDAStream stream) noexcept {
  return is_of_program(stream) ? device::Event() : marks_of(stream.stream()).moment();
}

StreamMarks& ServedDevice::marks_of(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<StreamMarks>& marks = marks_[stream];
  if (marks == nullptr) {
    auto queue = device::queue_over_stream(*device_, stream);
    device::Queue* const asked = queue.get();
    marks = std::make_shared<StreamMarks>(std::move(queue),
                                          [asked] { return device::is_captured(*asked); });
  }
  return *marks;
}

}  // namespace spillway::torch_binding
