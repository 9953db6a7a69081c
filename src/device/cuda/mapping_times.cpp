#include "spillway/device/cuda/mapping_times.h"

#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/device/copy_probe.h"
#include "spillway/device/cuda/virtual_memory.h"

namespace spillway::device {
namespace {

constexpr std::uint32_t kChunks = 8;
constexpr std::uint32_t kRounds = 8;

/// A GPU that always has something to do, in bursts of some milliseconds.
class BusyDevice {
 public:
  BusyDevice(Device& device, Beside with) : probe_(device, 8_MiB, 8) {
    if (with == Beside::kNothing) return;
    is_busy_ = true;
    if (with == Beside::kWork)
      burst_ = {.times = 0, .work = 64};
    else
      burst_ = {.goes_out = true, .comes_in = true, .times = 2};
    probe_.run(burst_);  // Takes the memory.
  }
  ~BusyDevice() { end_.wait(); }
  BusyDevice(const BusyDevice&) = delete;
  BusyDevice& operator=(const BusyDevice&) = delete;

  void keep_busy() {
    if (is_busy_ && end_.is_done()) end_ = probe_.start(burst_);
  }

 private:
  CopyProbe probe_;
  Burst burst_;
  bool is_busy_ = false;
  Event end_;
};

/// Chunks of one size and addresses for them, given back at the end.
class Chunks {
 public:
  Chunks(CudaVirtualMemory& memory, Bytes size)
      : memory_(memory), size_(size), begin_(memory.reserve(size * kChunks, size)) {
    try {
      while (chunks_.size() < kChunks) chunks_.push_back(memory_.make_chunk(size));
    } catch (...) {
      give_back();
      throw;
    }
  }
  ~Chunks() { give_back(); }
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  void map(std::uint32_t index) { memory_.map(address(index), chunks_[index], size_); }
  void unmap(std::uint32_t index) { memory_.unmap(address(index), size_); }

 private:
  std::byte* address(std::uint32_t index) const { return begin_ + index * size_.count(); }
  void give_back() noexcept {
    for (const CudaVirtualMemory::Chunk chunk : chunks_) memory_.drop_chunk(chunk);
    memory_.give_back(begin_, size_ * kChunks);
  }

  CudaVirtualMemory& memory_;
  const Bytes size_;
  std::byte* const begin_;
  std::vector<CudaVirtualMemory::Chunk> chunks_;
};

MappingTime measure(Device& device, CudaVirtualMemory& memory, Bytes size, Beside beside) {
  const SteadyClock clock;
  const auto seconds_of = [&](const auto& call) {
    const auto begin = clock.now();
    call();
    return seconds(clock.now() - begin);
  };
  Chunks chunks(memory, size);
  BusyDevice busy(device, beside);
  std::vector<double> maps, unmaps;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (std::uint32_t i = 0; i < kChunks; ++i) {
      busy.keep_busy();
      maps.push_back(seconds_of([&] { chunks.map(i); }));
    }
    for (std::uint32_t i = 0; i < kChunks; ++i) {
      busy.keep_busy();
      unmaps.push_back(seconds_of([&] { chunks.unmap(i); }));
    }
  }
  return {size, beside, spread_of(std::move(maps)), spread_of(std::move(unmaps))};
}

}  // namespace

std::vector<MappingTime> measure_mapping(Device& device, const std::vector<Bytes>& chunks) {
  std::vector<MappingTime> times;
  if (device.id().kind != DeviceKind::kCuda) throw Error("{} maps no chunks", device.id());
  if (!device.capabilities().virtual_memory) return times;
  CudaVirtualMemory memory(device);
  for (const Bytes chunk : chunks) {
    if (chunk == Bytes() || chunk.count() % memory.granularity().count() != 0)
      throw ConfigError("chunks of {} are no multiple of the {} of {}", chunk, memory.granularity(),
                        device.id());
    for (const Beside beside : {Beside::kNothing, Beside::kWork, Beside::kCopies})
      times.push_back(measure(device, memory, chunk, beside));
  }
  return times;
}

}  // namespace spillway::device
