#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "spillway/base/bytes.h"

namespace spillway::memory {

/// A stretch of reserved address space, aligned to 2 MiB, without memory, between two stretches
/// that nobody may touch. Returned to the system when it dies.
class AddressSpace {
 public:
  enum class Opened {
    kAtOnce,    ///< It may be read and written.
    kAsNeeded,  ///< Nobody may touch it until `open_until`; only limits of address space count it.
  };

  AddressSpace() = default;
  /// Throws UnsupportedError that names the limit that refuses `size`, and `purpose` ("paged
  /// storages").
  AddressSpace(Bytes size, Opened opened, const char* purpose);
  AddressSpace(AddressSpace&& other) noexcept { *this = std::move(other); }
  AddressSpace& operator=(AddressSpace&& other) noexcept {
    std::swap(whole_, other.whole_);
    std::swap(whole_size_, other.whole_size_);
    std::swap(begin_, other.begin_);
    std::swap(size_, other.size_);
    std::swap(open_, other.open_);
    return *this;
  }
  ~AddressSpace();

  /// Notes that so many bytes more, or less, may be written to without `open_until`: memory that
  /// was moved here.
  void count_writable(std::ptrdiff_t bytes) noexcept;

  /// Lets the part in front of `end` be read and written. Zero or an errno. One thread at a time.
  int open_until(const std::byte* end);

  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }
  bool contains(const std::byte* address) const { return begin_ <= address && address < end(); }

 private:
  std::byte* whole_ = nullptr;
  std::size_t whole_size_ = 0;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
  std::size_t open_ = 0;  ///< Bytes from `begin_` on that `open_until` has opened.
};

/// Tells how much address space all of them take in this process now. Lock-free, any thread.
Bytes reserved_address_space() noexcept;

/// Tells how much of that may be written to. Lock-free, any thread.
Bytes writable_address_space() noexcept;

/// A stretch of addresses that the program has not asked for, and that must not be locked or filled
/// on its behalf.
struct Reservation {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
/// Finds the first one that ends behind `from`; an empty one where there is none. Lock-free, any
/// thread.
Reservation next_reservation(std::uintptr_t from) noexcept;

}  // namespace spillway::memory
