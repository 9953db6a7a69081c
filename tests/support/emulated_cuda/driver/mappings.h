#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

namespace spillway::emulated {

/// Physical memory of a device: a part of one file that has no name.
struct Chunk {
  std::size_t bytes = 0;
  int device = 0;
  std::size_t offset = 0;
  int references = 1;          // The handle, and each mapping.
  bool serves_others = false;  // gpuDirectRDMACapable: drives reach it.
  bool filled = false;  // With 0xFF, when it is first given access: before that nobody can look.
};

/// Which chunks stand behind which reserved addresses. Thread-safe. Addresses and sizes are
/// multiples of the grain, else CUDA_ERROR_INVALID_VALUE.
class Mappings {
 public:
  static Mappings& of_process();

  CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, int device,
                  bool serves_others);
  CUresult retain(CUmemGenericAllocationHandle* handle, std::uintptr_t address);
  CUresult release(CUmemGenericAllocationHandle handle);
  /// The device that the chunk is on; null for a handle of none.
  std::optional<int> device_of(CUmemGenericAllocationHandle handle) const;

  CUresult map(std::uintptr_t address, std::size_t bytes, CUmemGenericAllocationHandle handle);
  CUresult set_access(std::uintptr_t address, std::size_t bytes, int device,
                      CUmemAccess_flags flags);
  bool any_in(std::uintptr_t address, std::size_t bytes) const;
  /// Whether the range is exactly a number of whole mappings.
  bool is_whole(std::uintptr_t address, std::size_t bytes) const;
  CUresult unmap(std::uintptr_t address, std::size_t bytes);

  /// The first address of the range that cannot be used, and why.
  struct Hole {
    std::uintptr_t address;
    const char* why;
  };
  std::optional<Hole> first_hole(std::uintptr_t address, std::size_t bytes) const;
  /// Whether the device may use all that is mapped there.
  bool is_open_to(int device, std::uintptr_t address, std::size_t bytes) const;

  /// Whether all that is mapped there is for other devices, too.
  bool serves_others(std::uintptr_t address, std::size_t bytes) const;

  /// Bytes of physical memory that lie side by side beneath addresses that do, too.
  struct Piece {
    std::uintptr_t address;
    std::uintptr_t physical;  ///< Number of the first byte, which is no address.
    std::size_t bytes;
  };
  /// What lies beneath the addresses, as far as something does.
  std::vector<Piece> beneath(std::uintptr_t address, std::size_t bytes) const;

 private:
  struct Mapping {
    std::size_t bytes;
    Chunk* chunk;
    std::map<int, CUmemAccess_flags> access;  ///< Of each device that was named.

    CUmemAccess_flags most_access() const;
  };

  Mappings();
  bool is_chunk(CUmemGenericAllocationHandle handle) const;
  std::size_t room_for(std::size_t bytes);
  void drop(Chunk* chunk);
  bool is_whole_locked(std::uintptr_t address, std::size_t bytes) const;

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Mapping> mappings_;
  std::unordered_set<Chunk*> chunks_;
  int file_ = -1;
  std::size_t file_bytes_ = 0;
  std::multimap<std::size_t, std::size_t> holes_;  // Bytes and offset of what was released.
};

}  // namespace spillway::emulated
