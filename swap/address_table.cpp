#include "address_table.h"

#include <algorithm>
#include <bit>

#include "page_table.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::swap {

using memory::PageIndex;

namespace {

constexpr unsigned kBits = 21;
constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;

std::uint32_t slot_in(std::uint64_t entry) { return static_cast<std::uint32_t>(entry & kMask) - 1; }

std::uint32_t pages_in(std::uint64_t entry) {
  return static_cast<std::uint32_t>((entry >> kBits) & kMask);
}

std::uint32_t position_in(std::uint64_t entry) {
  return static_cast<std::uint32_t>(entry >> (2 * kBits));
}

}  // namespace

template <typename T>
SparseArray<T> make_sparse_array(std::size_t count) {
  // calloc of this size maps untouched zero pages.
  auto* memory = static_cast<T*>(std::calloc(count, sizeof(T)));
  if (memory == nullptr) throw UnsupportedError("no memory for a table of {} pages", count);
  return SparseArray<T>(memory);
}
template SparseArray<Page> make_sparse_array<Page>(std::size_t count);

AddressTable::AddressTable(std::size_t pages, Bytes page_size)
    : pages_(pages),
      page_bits_(static_cast<unsigned>(std::countr_zero(page_size.count()))),
      entries_(make_sparse_array<std::uint64_t>(pages)),
      generations_(make_sparse_array<std::uint32_t>(pages)) {
  SPILLWAY_ASSERT(std::has_single_bit(page_size.count()));
  if (pages_ >= kMask)
    throw ConfigError("address space of {} for paged storages; less than {} can be managed",
                      page_size * pages, page_size * kMask);
}

bool AddressTable::has_storage(PageIndex page) const noexcept { return entry_at(page) != 0; }

std::uint32_t AddressTable::generation_of(PageIndex page) const noexcept {
  return std::atomic_ref<std::uint32_t>(generations_[page]).load(std::memory_order_relaxed);
}

// Whoever asks for an address whose storage ends meanwhile touches freed memory: only then slot and
// generation may not belong together.
RangeUse AddressTable::use_of(std::uint64_t entry, std::size_t page) const noexcept {
  return {StorageId(slot_in(entry), generation_of(static_cast<PageIndex>(page))), pages_in(entry)};
}

RangeUse AddressTable::find(const void* address, Bytes size) const noexcept {
  if (size == Bytes()) return {};
  const std::size_t offset = offset_of(address);
  const std::size_t page = offset >> page_bits_;
  const std::uint64_t entry = entry_at(page);
  if (entry == 0) return {};
  RangeUse use = use_of(entry, page);
  use.first = position_in(entry);
  const std::size_t in_page = offset - (page << page_bits_);
  const std::size_t count = ((in_page + size.count() - 1) >> page_bits_) + 1;
  use.count = static_cast<std::uint32_t>(std::min<std::size_t>(count, use.pages - use.first));
  return use;
}

void AddressTable::enter(StorageId storage, PageIndex first, std::uint32_t pages) noexcept {
  for (std::uint32_t i = 0; i < pages; ++i) {
    std::atomic_ref<std::uint32_t>(generations_[first + i])
        .store(storage.generation(), std::memory_order_relaxed);
    const std::uint64_t entry = (std::uint64_t{i} << (2 * kBits)) |
                                (std::uint64_t{pages} << kBits) |
                                (std::uint64_t{storage.slot()} + 1);
    std::atomic_ref<std::uint64_t>(entries_[first + i]).store(entry, std::memory_order_release);
  }
}

void AddressTable::forget(PageIndex first, std::uint32_t pages) noexcept {
  for (std::uint32_t i = 0; i < pages; ++i)
    std::atomic_ref<std::uint64_t>(entries_[first + i]).store(0, std::memory_order_relaxed);
}

}  // namespace spillway::swap
