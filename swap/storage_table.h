#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "address_table.h"
#include "page_table.h"
#include "spillway/base/bytes.h"
#include "spillway/memory/address_arena.h"
#include "spillway/swap/storage_range.h"

namespace spillway::swap {

/// Which storages there are, which pages they have, and what state those are in. No policy, and no
/// lock: it is the engine's, under the engine's mutex; `addresses_` alone may be read without it.
class StorageTable {
 public:
  /// Throws ConfigError or UnsupportedError where so many pages cannot be managed.
  StorageTable(std::size_t pages, Bytes page_size);

  /// Enters a storage whose pages are out, and have no contents.
  Range& new_range(memory::PageIndex first, std::uint32_t pages, Bytes size);
  void end_range(Range& range);

  Page& page_at(memory::PageIndex index) { return pages_.get()[index]; }
  Range& range_of(StorageId id) { return ranges_[id.slot()]; }
  Range& range_of(const Page& page) { return ranges_[page.range]; }
  /// Whether the storage has been released; what names it then names nothing any more.
  bool has_ended(StorageId id) const {
    const Range& range = ranges_[id.slot()];
    return range.id != id || !range.is_live || range.is_dying;
  }
  Absence absence_of(const Page& page) const;
  bool is_pinned(const Page& page) const { return page.pins > 0 || ranges_[page.range].pins > 0; }

  Bytes page_size() const { return page_size_; }
  std::size_t pages_for(Bytes size) const {
    return size / page_size_ + (size.count() % page_size_.count() > 0 ? 1 : 0);
  }
  /// Bytes of a page that belong to its storage, in whole disk blocks.
  std::size_t transfer_size(memory::PageIndex index) const;

  const Bytes page_size_;
  const std::uint32_t first_generation_;
  const std::size_t arena_pages_;
  memory::AddressArena arena_;
  AddressTable addresses_;
  SparseArray<Page> pages_;  ///< One per arena page.
  std::vector<Range> ranges_;
  std::vector<StorageId> ended_late_;  ///< Have ended, and a device uses them still; latest last.

 private:
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace spillway::swap
