// The CPU as a device. Its queues are real threads, so that order, overlap and races of everything
// built on queues can be tested without a GPU.

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cpu/queue.h"
#include "spillway/base/error.h"
#include "spillway/device/cpu.h"

namespace spillway::device {
namespace {

constexpr std::size_t kAlignment = std::size_t{2} << 20;

std::string limit_of_locked_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return message(" (this process may lock {}: see ulimit -l)", Bytes(limit.rlim_cur));
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(std::shared_ptr<const Clock> clock)
      : Device(DeviceId(),
               {.virtual_memory = true, .peer_copies = false, .pinned_host_memory = true}),
        clock_(std::move(clock)) {}

 private:
  MemoryInfo do_memory() const override {
    struct sysinfo info {};
    ::sysinfo(&info);
    return {Bytes(std::uint64_t{info.totalram} * info.mem_unit),
            Bytes(std::uint64_t{info.freeram} * info.mem_unit)};
  }

  std::byte* do_allocate(Bytes size) override {
    // Linux promises more than there is, and then ends the process.
    const bool may_fit = size <= do_memory().total;
    void* memory = may_fit ? std::aligned_alloc(kAlignment, rounded(size)) : nullptr;
    if (memory == nullptr)
      throw Error("device {} has no {} of memory: {}", id(), size, std::strerror(ENOMEM));
    ::madvise(memory, rounded(size), MADV_HUGEPAGE);  // Without it, slower but right.
    return static_cast<std::byte*>(memory);
  }

  void do_release(DeviceSpan memory) noexcept override { std::free(memory.data); }

  std::unique_ptr<Queue> do_make_queue(const std::string& name) override {
    return std::make_unique<CpuQueue>(id(), name, clock_);
  }

  std::string do_pin_host(DeviceSpan host) override {
    if (::mlock(host.data, host.size.count()) == 0) return {};
    const int error = errno;
    return message("{} cannot be locked in memory: {}{}", host.size, std::strerror(error),
                   limit_of_locked_memory());
  }

  void do_unpin_host(DeviceSpan host) noexcept override { ::munlock(host.data, host.size.count()); }

  static std::uint64_t rounded(Bytes size) {
    return (size.count() + kAlignment - 1) / kAlignment * kAlignment;
  }

  const std::shared_ptr<const Clock> clock_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(std::shared_ptr<const Clock> clock) {
  return std::make_unique<CpuDevice>(std::move(clock));
}

DeviceBackend cpu_backend() {
  return {DeviceKind::kCpu,
          [] {
            return BackendStatus{DeviceKind::kCpu, {DeviceId()}, {}};
          },
          [](DeviceId) { return make_cpu_device(); }};
}

}  // namespace spillway::device
