// The CPU as a device. Its queues are real threads, so that order, overlap and races of everything
// built on queues can be tested without a GPU.

#include <pthread.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "spillway/base/error.h"
#include "spillway/device/device.h"

namespace spillway::device {
namespace {

constexpr std::size_t kAlignment = std::size_t{2} << 20;

class CpuQueue final : public Queue {
 public:
  explicit CpuQueue(const std::string& name) : thread_([this] { work_off(); }) {
    // The kernel keeps 15 letters.
    ::pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }

  ~CpuQueue() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void do_copy(std::byte* destination, const std::byte* source, std::size_t size,
               const Completion& completion) override {
    push([=] {
      if (size > 0) std::memcpy(destination, source, size);
      finish(completion, {});
    });
  }

  void do_run(std::function<Outcome()> work, const Completion& completion) override {
    push([work = std::move(work), completion] {
      Outcome outcome;
      try {
        outcome = work();
      } catch (const std::exception& error) {
        outcome.error = error.what();
      }
      finish(completion, std::move(outcome));
    });
  }

  void do_wait_for(const Completion& earlier) override {
    push([earlier] { earlier.wait(); });
  }

  void push(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  void work_off() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_ending_ = false;
  std::thread thread_;  // Last: it uses everything above.
};

class CpuDevice final : public Device {
 public:
  std::string name() const override { return "cpu"; }

  MemoryInfo memory() const override {
    struct sysinfo info {};
    ::sysinfo(&info);
    return {Bytes(std::uint64_t{info.totalram} * info.mem_unit),
            Bytes(std::uint64_t{info.freeram} * info.mem_unit)};
  }

  std::byte* allocate(Bytes size) override {
    void* memory = std::aligned_alloc(kAlignment, rounded(size));
    if (memory == nullptr)
      throw Error("device cpu has no {} of memory: {}", size, std::strerror(errno));
    ::madvise(memory, rounded(size), MADV_HUGEPAGE);  // Without it, slower but right.
    return static_cast<std::byte*>(memory);
  }

  void release(std::byte* memory, Bytes) noexcept override { std::free(memory); }

  std::unique_ptr<Queue> make_queue(const std::string& name) override {
    return std::make_unique<CpuQueue>(name);
  }

 private:
  static std::size_t rounded(Bytes size) {
    return (size.count() + kAlignment - 1) / kAlignment * kAlignment;
  }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace spillway::device
