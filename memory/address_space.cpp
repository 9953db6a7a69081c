#include "address_space.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "raw_calls.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {
namespace {

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

[[noreturn]] void throw_refusal(Bytes size, const char* purpose, int error) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    throw UnsupportedError(
        "cannot reserve {} of address space for {}: the address-space limit RLIMIT_AS (ulimit -v) "
        "is {}; lift it with `ulimit -v unlimited`",
        size, purpose, Bytes(limit.rlim_cur));
  }
  if (first_line_of("/proc/sys/vm/overcommit_memory") == "2") {
    throw UnsupportedError(
        "cannot reserve {} of address space for {}: the kernel counts reservations "
        "(vm.overcommit_memory=2); run `sysctl vm.overcommit_memory=0`",
        size, purpose);
  }
  throw UnsupportedError(
      "cannot reserve {} of address space for {}: mmap says {} (the kernel gives a "
      "process some 128 TiB; name a smaller --budget)",
      size, purpose, std::strerror(error));
}

}  // namespace

AddressSpace::AddressSpace(Bytes size, int protection, const char* purpose) {
  SPILLWAY_ASSERT(size.count() > 0 && size.count() % kPageBytes == 0);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  // Twice the alignment: whatever the kernel returns, at least one 4 KiB page stays closed in front
  // of the aligned part and one behind it, so that an overrun ends in a signal.
  constexpr std::size_t kSlack = 2 * kPageBytes;
  whole_size_ = size.count() + kSlack;
  whole_ = raw_mmap(nullptr, whole_size_, PROT_NONE, kFlags);
  if (whole_ == nullptr) throw_refusal(size, purpose, errno);
  const auto start = reinterpret_cast<std::uintptr_t>(whole_);
  begin_ = whole_ + (kPageBytes - start % kPageBytes);
  size_ = size.count();
  if (protection == PROT_NONE) return;
  if (raw_mmap(begin_, size_, protection, kFlags | MAP_FIXED) == nullptr) {
    const int error = errno;
    raw_munmap(whole_, whole_size_);
    throw_refusal(size, purpose, error);
  }
}

AddressSpace::~AddressSpace() {
  if (whole_ != nullptr) raw_munmap(whole_, whole_size_);
}

}  // namespace spillway::memory
