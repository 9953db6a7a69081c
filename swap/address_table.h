#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "spillway/base/bytes.h"
#include "spillway/memory/address_arena.h"
#include "spillway/swap/storage_range.h"

namespace spillway::swap {

template <typename T>
struct FreedArray {
  void operator()(T* memory) const { std::free(memory); }
};
/// Zeros that cost memory only where they are used.
template <typename T>
using SparseArray = std::unique_ptr<T[], FreedArray<T>>;

/// Throws UnsupportedError where the system gives no room for it.
template <typename T>
SparseArray<T> make_sparse_array(std::size_t count);

/// Which storage has a page of the arena. Written by one thread at a time, read by all without a
/// lock.
class AddressTable {
 public:
  /// For an arena of so many pages of a size, a power of two. Throws ConfigError for more than can
  /// be numbered.
  AddressTable(std::size_t pages, Bytes page_size);
  /// Says where the arena lies. Before any other thread looks.
  void place(const std::byte* begin) { begin_ = begin; }

  /// The storage at an address, with its pages; or none.
  RangeUse find(const void* address) const noexcept {
    const std::size_t page = offset_of(address) >> page_bits_;
    const std::uint64_t entry = entry_at(page);
    return entry == 0 ? RangeUse() : use_of(entry, page);
  }
  /// The same with the pages that `size` bytes lie in. None if `size` is 0.
  RangeUse find(const void* address, Bytes size) const noexcept;
  bool has_storage(memory::PageIndex page) const noexcept;
  /// Of the storage that has, or had last, a page.
  std::uint32_t generation_of(memory::PageIndex page) const noexcept;

  void enter(StorageId storage, memory::PageIndex first, std::uint32_t pages) noexcept;
  void forget(memory::PageIndex first, std::uint32_t pages) noexcept;

 private:
  std::size_t offset_of(const void* address) const noexcept {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - begin_);
  }
  // In here, for the many tensors that have no pages.
  std::uint64_t entry_at(std::size_t page) const noexcept {
    if (page >= pages_) return 0;
    return std::atomic_ref<std::uint64_t>(entries_[page]).load(std::memory_order_acquire);
  }
  /// `entry` is that of a page which belongs to a storage.
  RangeUse use_of(std::uint64_t entry, std::size_t page) const noexcept;

  const std::byte* begin_ = nullptr;
  std::size_t pages_;
  unsigned page_bits_;
  /// Slot + 1, the pages of the storage above it, and above that which of them this one is.
  SparseArray<std::uint64_t> entries_;
  SparseArray<std::uint32_t> generations_;
};

}  // namespace spillway::swap
