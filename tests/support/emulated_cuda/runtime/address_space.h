#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace spillway::emulated {

enum class Kind : std::uint8_t {
  kDevice,      // cudaMalloc, cudaMallocAsync
  kReserved,    // cuMemAddressReserve: there where something is mapped
  kHost,        // cudaHostAlloc
  kRegistered,  // cudaHostRegister
};

struct Range {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  Kind kind = Kind::kDevice;
  int device = 0;
  bool freed =
      false;  // By cudaFreeAsync: no more for new work, still there for what was submitted before.

  std::uintptr_t end() const { return begin + bytes; }
};

/// The addresses that CUDA knows of. Those of the devices are a part of the address space that
/// nothing is mapped in until it is allocated, and that is inaccessible again, for ever, when it is
/// freed. Also the bytes that each device has left. Thread-safe.
class AddressSpace {
 public:
  static AddressSpace& of_process();

  /// Memory of the device, filled with 0xFF if so set; null where it has not enough left.
  void* allocate(int device, std::size_t bytes);
  /// Makes it inaccessible; null where no allocation of a device begins there.
  std::optional<Range> free(const void* address);
  /// Nothing that is submitted from now on may use it. False where no allocation of a device begins
  /// there.
  bool mark_freed(const void* address);

  /// Addresses of the device with nothing behind them. `bytes` and `alignment` are multiples of the
  /// grain.
  std::uintptr_t reserve(int device, std::size_t bytes, std::size_t alignment);

  /// Host memory that becomes known to the devices; false where a part of it is known already.
  bool add_host(const void* address, std::size_t bytes, Kind kind, int device);
  /// The range that begins there is forgotten; null where none of that kind does.
  std::optional<Range> remove(const void* address, Kind kind);

  /// The range that the address is in.
  std::optional<Range> find(const void* address) const;
  bool is_device(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= first_ && at < last_;
  }
  bool is_pinned(const void* address) const;

  /// Takes bytes of the device's memory; false where it has not enough left.
  bool take(int device, std::size_t bytes);
  void give_back(int device, std::size_t bytes);
  std::size_t used(int device) const;

 private:
  AddressSpace();
  std::uintptr_t next_range(int device, std::size_t bytes, std::size_t alignment);
  std::optional<Range> find_locked(std::uintptr_t address) const;

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;
  std::vector<std::size_t> used_;
  std::vector<std::uintptr_t> next_;
  std::uintptr_t first_ = 0;
  std::uintptr_t last_ = 0;
};

/// When the bytes are looked at: by the call that submits work, or by the work.
enum class Moment : std::uint8_t { kSubmission, kExecution };

/// Dies with `what` unless all of the bytes are mapped memory of a device. Host memory is not
/// looked at.
void check_mapped(const void* address, std::size_t bytes, const std::string& what, Moment moment);

/// Who works on the bytes: a kernel of the device, whose peers have to be enabled for the one that
/// they are on, or a copy, which reaches all but chunks.
enum class By : std::uint8_t { kKernel, kCopy };

/// Dies with `what` where the device may not use the bytes, which are mapped memory of one.
void check_access(int device, const void* address, std::size_t bytes, const char* what, By by);

/// Of the host, and of allocations that are no chunks.
constexpr std::size_t kPage = 4096;
std::size_t whole_pages(std::size_t bytes);

}  // namespace spillway::emulated
