#include "shared_block.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

namespace spillway::emulated {

std::size_t Ring::push(const char* from, std::size_t bytes) {
  const std::uint64_t begin = pushed_.load(std::memory_order_relaxed);
  const std::uint64_t room = kBytes - (begin - popped_.load(std::memory_order_acquire));
  bytes = std::min(
      {bytes, static_cast<std::size_t>(room), kBytes - static_cast<std::size_t>(begin % kBytes)});
  std::memcpy(data_.data() + begin % kBytes, from, bytes);
  pushed_.store(begin + bytes, std::memory_order_release);
  return bytes;
}

std::size_t Ring::pop(char* to, std::size_t bytes) {
  const std::uint64_t begin = popped_.load(std::memory_order_relaxed);
  const std::uint64_t there = pushed_.load(std::memory_order_acquire) - begin;
  bytes = std::min(
      {bytes, static_cast<std::size_t>(there), kBytes - static_cast<std::size_t>(begin % kBytes)});
  std::memcpy(to, data_.data() + begin % kBytes, bytes);
  popped_.store(begin + bytes, std::memory_order_release);
  return bytes;
}

SharedBlock* SharedBlock::open(const std::string& name) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* block = MAP_FAILED;
  // New bytes are 0, which is what a block begins with.
  if (ftruncate(file, sizeof(SharedBlock)) == 0) {
    block = mmap(nullptr, sizeof(SharedBlock), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  ::close(file);
  return block == MAP_FAILED ? nullptr : static_cast<SharedBlock*>(block);
}

void SharedBlock::close(SharedBlock* block) { munmap(block, sizeof(SharedBlock)); }

void SharedBlock::forget(const std::string& name) { shm_unlink(name.c_str()); }

void SharedBlock::tell() {
  changes.fetch_add(1);
  syscall(SYS_futex, &changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedBlock::wait(std::uint32_t seen) {
  const timespec longest{.tv_sec = 0, .tv_nsec = 100'000'000};
  syscall(SYS_futex, &changes, FUTEX_WAIT, seen, &longest, nullptr, 0);
}

}  // namespace spillway::emulated
