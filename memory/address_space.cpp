#include "spillway/memory/address_space.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "raw_calls.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/memory/own_limits.h"

namespace spillway::memory {
namespace {

/// Where stretches lie. Asked by functions of the C library that we stand in front of, in forked
/// children too, so it has no lock. A process has an arena, a pool and at most a store in memory;
/// tests have more.
struct Place {
  std::atomic<std::uintptr_t> begin{0};  ///< 0: free.
  std::atomic<std::uintptr_t> end{0};    ///< 0: not known yet.
  std::atomic<std::size_t> writable{0};
};
std::array<Place, 64> places;

Place* place_at(std::uintptr_t begin) {
  for (Place& place : places)
    if (place.begin.load() == begin) return &place;
  return nullptr;
}

void note_place(std::uintptr_t begin, std::size_t size) {
  for (Place& place : places) {
    std::uintptr_t none = 0;
    if (!place.begin.compare_exchange_strong(none, begin)) continue;
    place.end.store(begin + size);
    return;
  }
}

void forget_place(std::uintptr_t begin) {
  Place* const place = place_at(begin);
  if (place == nullptr) return;
  place->writable.store(0);
  place->end.store(0);
  place->begin.store(0);
}

std::uintptr_t number_of(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

[[noreturn]] void throw_refusal(Bytes size, const char* purpose, int error) {
  throw UnsupportedError("cannot reserve {} of address space for {}: {}", size, purpose,
                         why_refused(error, size));
}

}  // namespace

AddressSpace::AddressSpace(Bytes size, Opened opened, const char* purpose) {
  SPILLWAY_ASSERT(size.count() > 0 && size.count() % kPageBytes == 0);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  // Twice the alignment: whatever the kernel returns, at least one 4 KiB page stays closed in front
  // of the aligned part and one behind it, so that an overrun ends in a signal.
  constexpr std::size_t kSlack = 2 * kPageBytes;
  whole_size_ = size.count() + kSlack;
  whole_ = raw_mmap(nullptr, whole_size_, PROT_NONE, kFlags);
  if (whole_ == nullptr) throw_refusal(size, purpose, errno);
  begin_ = whole_ + (kPageBytes - number_of(whole_) % kPageBytes);
  size_ = size.count();
  note_place(number_of(whole_), whole_size_);
  if (opened == Opened::kAsNeeded) return;
  if (const int error = open_until(end()); error != 0) {
    forget_place(number_of(whole_));
    raw_munmap(whole_, whole_size_);
    throw_refusal(size, purpose, error);
  }
}

int AddressSpace::open_until(const std::byte* end) {
  std::byte* const open_end = begin_ + open_;
  if (end <= open_end) return 0;
  const auto more = end - open_end;
  // First: where the program has set a limit, there must be room for it.
  count_writable(more);
  if (raw_mprotect(open_end, static_cast<std::size_t>(more), PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    count_writable(-more);
    return error;
  }
  open_ += static_cast<std::size_t>(more);
  return 0;
}

void AddressSpace::count_writable(std::ptrdiff_t bytes) noexcept {
  if (Place* const place = place_at(number_of(whole_)))
    place->writable.fetch_add(static_cast<std::size_t>(bytes));
  follow_writable(bytes);
}

AddressSpace::~AddressSpace() {
  if (whole_ == nullptr) return;
  forget_place(number_of(whole_));
  raw_munmap(whole_, whole_size_);
}

Bytes reserved_address_space() noexcept {
  std::uint64_t sum = 0;
  for (const Place& place : places) {
    const std::uintptr_t end = place.end.load();
    const std::uintptr_t begin = place.begin.load();
    if (end > begin && begin != 0) sum += end - begin;
  }
  return Bytes(sum);
}

Bytes writable_address_space() noexcept {
  std::uint64_t sum = 0;
  for (const Place& place : places) sum += place.writable.load();
  return Bytes(sum);
}

Reservation next_reservation(std::uintptr_t from) noexcept {
  Reservation found;
  for (const Place& place : places) {
    const std::uintptr_t end = place.end.load();
    const std::uintptr_t begin = place.begin.load();
    const bool is_nearer = found.end == 0 || begin < found.begin;
    if (begin != 0 && end > from && is_nearer) found = {begin, end};
  }
  return found;
}

}  // namespace spillway::memory
