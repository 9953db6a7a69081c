#include "shared_pages.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::runtime {

namespace {

constexpr std::uint32_t kAlignment = 64;  // Of heap blocks of LibTorch, for AVX-512.
// As many storages as the engine numbers at most in an arena of 4 TiB, a page for each.
constexpr std::size_t kSlots = std::size_t{1} << 21;
// Of a page: blocks that are smaller are mostly parameters, with their gradients and moments.
constexpr std::uint32_t kSmallestShare = 64;
// So many of the pages that changed last are looked at for a gap, and all of them where gaps hold
// more than a share of what is in use: then a page less is worth the search.
constexpr std::size_t kLookAt = 8;
constexpr std::uint64_t kSparseFrom = 8;
// Backward uses storages in the opposite order of their making: where a page ends, those that
// changed before it are needed next.
constexpr int kFetchAhead = 4;

}  // namespace

SharedPages::SharedPages(swap::SwapEngine& engine)
    : engine_(engine), page_bytes_(static_cast<std::uint32_t>(engine.page_size().count())) {
  auto* const words = std::calloc(kSlots / 64, sizeof(std::atomic<std::uint64_t>));
  if (words == nullptr) throw UnsupportedError("no memory for a table of {} storages", kSlots);
  shared_.reset(static_cast<std::atomic<std::uint64_t>*>(words));
}

SharedPages::Block SharedPages::allocate(std::size_t size, swap::PinSet* within,
                                         std::span<const StorageId> held) {
  SPILLWAY_ASSERT(serves(size));
  const auto rounded =
      static_cast<std::uint32_t>((size + kAlignment - 1) / kAlignment * kAlignment);
  if (Block block = take_gap(rounded); block.address != nullptr) {
    block.is_first = std::find(held.begin(), held.end(), block.page) == held.end();
    if (within == nullptr || !block.is_first || !engine_.is_under_pressure()) return block;
    // An operator is about to write in a page that others share, and that may be out.
    const swap::RangeUse use{.storage = block.page, .pages = 1, .writes = true};
    try {
      engine_.pin(*within, {&use, 1});
    } catch (...) {
      release(
          block.address, block.page, [] {}, /*fetches_next=*/false);
      throw;
    }
    return block;
  }
  // Others may make one at the same time, which is a page too many at worst.
  const swap::StorageMemory::Allocation made = engine_.allocate(Bytes(page_bytes_), within);
  SPILLWAY_ASSERT(made.storage.slot() < kSlots);
  const std::lock_guard lock(mutex_);
  Group& group = group_for(rounded);
  group.by_change.push_front({made.storage, made.address, &group, {}, page_bytes_});
  group.free += page_bytes_ - rounded;
  by_storage_.emplace(made.storage, group.by_change.begin());
  const auto count = static_cast<std::uint32_t>(by_storage_.size());
  pages_.store(count, std::memory_order_relaxed);
  most_pages_.store(std::max(most_pages(), count), std::memory_order_relaxed);
  word_of(made.storage).fetch_or(bit_of(made.storage), std::memory_order_release);
  return {take_locked(group.by_change.front(), rounded), made.storage, true, true};
}

SharedPages::Group& SharedPages::group_for(std::uint32_t size) noexcept {
  return size < page_bytes_ / kSmallestShare ? smallest_ : others_;
}

SharedPages::Block SharedPages::take_gap(std::uint32_t size) {
  const std::lock_guard lock(mutex_);
  Group& group = group_for(size);
  Pages& pages = group.by_change;
  const auto page = page_with_gap_locked(group, size);
  if (page == pages.end()) return {};
  pages.splice(pages.begin(), pages, page);
  group.free -= size;
  return {take_locked(*page, size), page->storage};
}

SharedPages::Pages::iterator SharedPages::page_with_gap_locked(Group& group, std::uint32_t size) {
  Pages& pages = group.by_change;
  const bool is_sparse = group.free * kSparseFrom > std::uint64_t{page_bytes_} * pages.size();
  std::size_t seen = 0;
  for (auto page = pages.begin(); page != pages.end(); ++page) {
    if (page->largest_gap >= size) return page;
    if (++seen == kLookAt && !is_sparse) break;
  }
  return pages.end();
}

std::byte* SharedPages::take_locked(Page& page, std::uint32_t size) const {
  std::uint32_t begin = 0;  // Of the gap.
  auto next = page.blocks.begin();
  while (next != page.blocks.end() && next->offset - begin < size) {
    begin = next->offset + next->size;
    ++next;
  }
  page.blocks.insert(next, {begin, size});
  note_gaps_locked(page);
  return page.address + begin;
}

void SharedPages::note_gaps_locked(Page& page) const {
  std::uint32_t begin = 0;
  page.largest_gap = 0;
  for (const Part& block : page.blocks) {
    page.largest_gap = std::max(page.largest_gap, block.offset - begin);
    begin = block.offset + block.size;
  }
  page.largest_gap = std::max(page.largest_gap, page_bytes_ - begin);
}

bool SharedPages::release(const void* address, StorageId storage,
                          const std::function<void()>& before_end, bool fetches_next) {
  swap::ResidencyOrders orders;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_storage_.find(storage);
    SPILLWAY_ASSERT(found != by_storage_.end());
    const auto page = found->second;
    const auto offset =
        static_cast<std::uint32_t>(static_cast<const std::byte*>(address) - page->address);
    const auto block =
        std::lower_bound(page->blocks.begin(), page->blocks.end(), offset,
                         [](const Part& each, std::uint32_t at) { return each.offset < at; });
    SPILLWAY_ASSERT(block != page->blocks.end() && block->offset == offset);
    Group& group = *page->group;
    group.free += block->size;
    page->blocks.erase(block);
    note_gaps_locked(*page);
    group.by_change.splice(group.by_change.begin(), group.by_change, page);
    if (!page->blocks.empty()) return false;
    group.free -= page_bytes_;
    if (fetches_next) fetch_next_locked(page, orders);
    group.by_change.erase(page);
    by_storage_.erase(found);
    pages_.store(static_cast<std::uint32_t>(by_storage_.size()), std::memory_order_relaxed);
    word_of(storage).fetch_and(~bit_of(storage), std::memory_order_release);
  }
  before_end();
  engine_.release(storage);
  if (fetches_next && engine_.is_under_pressure()) engine_.apply(orders);
  return true;
}

void SharedPages::fetch_next_locked(Pages::iterator behind, swap::ResidencyOrders& orders) const {
  const auto end = behind->group->by_change.end();
  for (int ahead = 0; ahead < kFetchAhead && ++behind != end; ++ahead)
    orders.fetches.push_back({behind->storage});
}

}  // namespace spillway::runtime
