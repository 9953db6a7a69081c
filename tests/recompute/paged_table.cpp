#include "paged_table.h"

#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace spillway::recompute {

PagedTable& PagedTable::instance() {
  static PagedTable* const table = [] {
    auto* made = new PagedTable;  // Tensors outlive static destructors.
    c10::SetAllocator(c10::DeviceType::CPU, made, /*priority=*/255);
    return made;
  }();
  return *table;
}

c10::DataPtr PagedTable::allocate(std::size_t size) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (size == 0) return {nullptr, nullptr, &release, cpu};
  void* memory = nullptr;
  if (::posix_memalign(&memory, 64, size) != 0) throw std::bad_alloc();
  // What a kernel leaves unwritten must not look right by chance.
  std::memset(memory, 0x5A, size);
  if (size >= paged_from) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(static_cast<const std::byte*>(memory), Block{StorageId(next_slot_++, 0), size});
  }
  return {memory, memory, &release, cpu};
}

c10::DeleterFnPtr PagedTable::raw_deleter() const { return &release; }

void PagedTable::copy_data(void* destination, const void* source, std::size_t count) const {
  std::memcpy(destination, source, count);
}

void PagedTable::release(void* memory) {
  PagedTable& table = instance();
  ReplayEngine* const told = table.told;
  if (told == nullptr || !told->before_free(memory)) table.give_back(memory);
}

void PagedTable::give_back(void* memory) {
  {
    const std::lock_guard lock(mutex_);
    blocks_.erase(static_cast<const std::byte*>(memory));
  }
  std::free(memory);
}

PagedStorage PagedTable::find(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto* wanted = static_cast<const std::byte*>(data);
  auto after = blocks_.upper_bound(wanted);
  if (after == blocks_.begin()) return {};
  const auto& [begin, block] = *--after;
  if (wanted >= begin + block.size) return {};
  return {block.id, begin};
}

void* PagedTable::address_of(StorageId id) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, block] : blocks_)
    if (block.id == id) return const_cast<std::byte*>(begin);
  return nullptr;
}

std::size_t PagedTable::count() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

}  // namespace spillway::recompute
