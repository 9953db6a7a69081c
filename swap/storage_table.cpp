#include "storage_table.h"

#include <algorithm>
#include <atomic>

#include "spillway/swap/spill_store.h"

namespace spillway::swap {

using memory::PageIndex;

namespace {

// The upper bits of a generation tell engines of one process apart.
constexpr unsigned kGenerationBits = 24;
constexpr std::uint32_t kGenerationMask = (1U << kGenerationBits) - 1;

std::uint32_t first_generation() {
  static std::atomic<std::uint32_t> engines{0};
  return engines.fetch_add(1) << kGenerationBits;
}

}  // namespace

StorageTable::StorageTable(std::size_t pages, Bytes page_size)
    : page_size_(page_size),
      first_generation_(first_generation()),
      arena_pages_(pages),
      arena_(static_cast<PageIndex>(pages)),
      addresses_(pages, page_size),
      pages_(make_sparse_array<Page>(pages)) {}

Range& StorageTable::new_range(PageIndex first, std::uint32_t pages, Bytes size) {
  StorageId id;
  if (free_slots_.empty()) {
    id = StorageId(static_cast<std::uint32_t>(ranges_.size()), first_generation_);
    ranges_.emplace_back();
  } else {
    const std::uint32_t slot = free_slots_.back();
    const std::uint32_t next = (ranges_[slot].id.generation() + 1) & kGenerationMask;
    id = StorageId(slot, first_generation_ | next);
    free_slots_.pop_back();
  }
  Range& range = range_of(id);
  range = Range{};
  range.id = id;
  range.first = first;
  range.pages = pages;
  range.size = size;
  range.is_live = true;
  for (std::uint32_t i = 0; i < pages; ++i) {
    Page& page = page_at(first + i);
    page = Page{};
    page.range = id.slot();
  }
  addresses_.enter(id, first, pages);
  return range;
}

void StorageTable::end_range(Range& range) {
  if (range.pages > 0) arena_.release(range.first, range.pages);  // Else others use them again.
  range.is_live = false;
  range.is_dying = false;
  free_slots_.push_back(range.id.slot());
}

Absence StorageTable::absence_of(const Page& page) const {
  // Of a dropped range, pages with an extent are those that an adoption has moved before it failed.
  if (page.extent.is_some()) return Absence::kStored;
  return ranges_[page.range].is_dropped ? Absence::kDropped : Absence::kUnfilled;
}

std::size_t StorageTable::transfer_size(PageIndex index) const {
  constexpr std::size_t kBlock = kTransferAlignment;
  const Range& range = ranges_[pages_.get()[index].range];
  const std::size_t offset = std::size_t{index - range.first} * page_size_.count();
  const std::size_t rest = range.size.count() - offset;
  return std::min<std::size_t>(page_size_.count(), (rest + kBlock - 1) / kBlock * kBlock);
}

}  // namespace spillway::swap
