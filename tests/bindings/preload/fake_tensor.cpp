#include "fake_tensor.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "rank_notices.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

FakeTensor* current = nullptr;
SpillwayHooks hooks{};

}  // namespace

const SpillwayHooks* registered_hooks() { return current != nullptr ? &hooks : nullptr; }

// No rank of a job.
void tell_of_input() {}
void tell_of_full_disk() {}

struct FakeHooks {
  static std::size_t tensor_bytes(const void* memory, std::size_t size) {
    const auto from = reinterpret_cast<std::uintptr_t>(memory);
    const auto begin = reinterpret_cast<std::uintptr_t>(current->data_);
    if (from < begin || from >= begin + current->size_) return 0;
    return std::min(size, begin + current->size_ - from);
  }

  static void* hold(const void* memory, std::size_t size, int is_filled, int is_direct) {
    if (!current->can_hold_) return nullptr;
    const auto begin = static_cast<std::size_t>(static_cast<const char*>(memory) - current->data_);
    current->holds_.push_back({begin, size, is_filled != 0, is_direct != 0});
    ++current->holds_left_;
    return current;
  }

  static std::size_t absent_bytes(const void* memory, std::size_t size) {
    return current->absent_.zeroes_at_end_of(memory, size);
  }

  static void release(void* token) { --static_cast<FakeTensor*>(token)->holds_left_; }

  static void on_fault(int, siginfo_t* info, void*) {
    // Any other fault comes again, and ends the test.
    if (current == nullptr || !current->comes(info->si_addr)) ::signal(SIGSEGV, SIG_DFL);
  }
};

FakeTensor::FakeTensor(const Options& options)
    : size_(options.pages * kFakePage), can_hold_(options.can_hold) {
  void* const memory =
      ::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  data_ = static_cast<char*>(memory);
  struct sigaction action {};
  action.sa_sigaction = &FakeHooks::on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  hooks.version = SPILLWAY_HOOKS_VERSION;
  hooks.tensor_bytes = &FakeHooks::tensor_bytes;
  hooks.bytes_at_once = options.bytes_at_once;
  hooks.kernel_serves_faults = options.kernel_serves_faults ? 1 : 0;
  hooks.hold_memory = &FakeHooks::hold;
  hooks.release_memory = &FakeHooks::release;
  hooks.absent_bytes = &FakeHooks::absent_bytes;
  current = this;
}

FakeTensor::~FakeTensor() {
  current = nullptr;
  ::signal(SIGSEGV, SIG_DFL);
  ::munmap(data_, size_);
}

bool FakeTensor::comes(const void* address) {
  if (FakeHooks::tensor_bytes(address, 1) == 0) return false;
  ++pages_come_;
  if (others_ != Others::kStay) ::mprotect(data_, size_, PROT_NONE);
  if (others_ == Others::kLeaveOnce && pages_come_ > 1) others_ = Others::kStay;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) - data_);
  ::mprotect(data_ + offset / kFakePage * kFakePage, kFakePage, PROT_READ | PROT_WRITE);
  return true;
}

void FakeTensor::leave() {
  pages_come_ = 0;
  ::mprotect(data_, size_, PROT_NONE);
}

void FakeTensor::fill_with_pattern(unsigned seed) {
  ::mprotect(data_, size_, PROT_READ | PROT_WRITE);
  for (std::size_t i = 0; i < size_; ++i)
    data_[i] = static_cast<char>((i * 31 + i / kFakePage + seed) % 251);
}

std::size_t FakeTensor::bytes_held() const {
  std::size_t bytes = 0;
  for (const Hold& hold : holds_) bytes += hold.size;
  return bytes;
}

}  // namespace spillway::preload
