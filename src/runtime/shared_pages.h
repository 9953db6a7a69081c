#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

/// Memory for storages that are smaller than pages: several of them share a page, which the swap
/// engine moves as a storage of its own. Storages of about the same age share one: what was made
/// together is mostly used together, and ends together. The smallest have pages apart: backward
/// makes gradients of small parameters between activations, and they live on after these. Any
/// thread.
class SharedPages {
 public:
  /// Blocks below this size are not worth their place in the books: they belong to the heap.
  static constexpr Bytes kSmallest{4096};
  /// Whether blocks of so many bytes have a place here.
  bool serves(std::size_t size) const noexcept {
    return size >= kSmallest.count() && size <= page_bytes_;
  }

  /// `engine` outlives this.
  explicit SharedPages(swap::SwapEngine& engine);
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  struct Block {
    std::byte* address = nullptr;
    StorageId page;
    bool is_first = false;  ///< The page is none of those that were held.
    bool is_new = false;    ///< It was made for this block.
  };
  /// `size` bytes that `serves`, uninitialised, aligned to 64 bytes, in a page that `within`, if
  /// any, holds for writing from then on; `held`: those that it holds already. Throws as
  /// StorageMemory::allocate, and nothing is allocated then.
  Block allocate(std::size_t size, swap::PinSet* within, std::span<const StorageId> held);

  /// Ends the block at `address`, which lies in `page`; the page ends with its last block. Whether
  /// it did; `before_end` is called before its address may be another's. `fetches_next`: and pages
  /// of about its age are fetched, which nobody else foresees.
  bool release(const void* address, StorageId page, const std::function<void()>& before_end,
               bool fetches_next);

  /// Whether small storages share this one. No lock.
  bool has(StorageId storage) const noexcept {
    return storage.is_some() &&
           (word_of(storage).load(std::memory_order_acquire) & bit_of(storage));
  }

  /// Pages that small storages share now, and the most of them at once. No lock.
  std::uint32_t pages() const noexcept { return pages_.load(std::memory_order_relaxed); }
  std::uint32_t most_pages() const noexcept { return most_pages_.load(std::memory_order_relaxed); }

 private:
  /// Bytes of a page from `offset` on.
  struct Part {
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
  };
  struct Group;
  struct Page {
    StorageId storage;
    std::byte* address = nullptr;
    Group* group = nullptr;
    std::vector<Part> blocks;       ///< By offset.
    std::uint32_t largest_gap = 0;  ///< Between them.
  };
  using Pages = std::list<Page>;
  /// Pages for blocks of similar sizes.
  struct Group {
    Pages by_change;         ///< The page where a block was made or ended latest comes first.
    std::uint64_t free = 0;  ///< Bytes between blocks, in all pages.
  };

  std::atomic<std::uint64_t>& word_of(StorageId storage) const noexcept {
    return shared_.get()[storage.slot() / 64];
  }
  static std::uint64_t bit_of(StorageId storage) noexcept {
    return std::uint64_t{1} << (storage.slot() % 64);
  }
  Group& group_for(std::uint32_t size) noexcept;
  /// A block in a gap of a page; without an address where there is none.
  Block take_gap(std::uint32_t size);
  Pages::iterator page_with_gap_locked(Group& group, std::uint32_t size);
  std::byte* take_locked(Page& page, std::uint32_t size) const;
  void note_gaps_locked(Page& page) const;
  void fetch_next_locked(Pages::iterator behind, swap::ResidencyOrders& orders) const;

  swap::SwapEngine& engine_;
  const std::uint32_t page_bytes_;
  std::atomic<std::uint32_t> pages_{0};
  std::atomic<std::uint32_t> most_pages_{0};

  struct Freed {
    void operator()(std::atomic<std::uint64_t>* words) const { std::free(words); }
  };
  /// A bit for each slot of a storage; its memory is taken where it is used.
  std::unique_ptr<std::atomic<std::uint64_t>[], Freed> shared_;

  std::mutex mutex_;  ///< Of all below. Never held while the engine waits.
  Group smallest_;
  Group others_;
  std::unordered_map<StorageId, Pages::iterator> by_storage_;
};

}  // namespace spillway::runtime
