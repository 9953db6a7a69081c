#include "storage_table.h"

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <memory>
#include <utility>

#include "record_memory.h"
#include "spillway/base/assert.h"
#include "spillway/phantoms/phantom_memory.h"
#include "spillway/split/split_program.h"

namespace spillway::split {

namespace {

void return_of_device(void* context) {
  const std::unique_ptr<c10::DataPtr> memory(static_cast<c10::DataPtr*>(context));
  SplitProgram::ended(memory->get());
}

/// Lets memory of LibTorch's allocator for a GPU tell of its end.
void watch(c10::StorageImpl& storage) {
  const c10::DataPtr& now = storage.data_ptr();
  if (!now.device().is_cuda() || now.get() == nullptr) return;
  if (now.get_deleter() != c10::GetAllocator(now.device().type())->raw_deleter()) return;
  auto memory = std::make_unique<c10::DataPtr>(std::move(storage._mutable_data_ptr_no_checks()));
  void* const address = memory->get();
  const c10::Device device = memory->device();
  storage.set_data_ptr_noswap({address, memory.release(), &return_of_device, device});
}

}  // namespace

/// Whoever frees it tells this table.
bool StorageTable::is_from_libtorch(const c10::DataPtr& memory) const {
  const c10::DeleterFnPtr deleter = memory.get_deleter();
  return deleter == deleter_ || deleter == phantoms::PhantomMemory::deleter() ||
         deleter == RecordMemory::deleter() || deleter == &StorageTable::return_lent ||
         deleter == &return_of_device;
}

std::optional<pipeline::StorageOrdinal> StorageTable::ordinal_of(c10::StorageImpl& storage) {
  watch(storage);
  if (!is_from_libtorch(storage.data_ptr())) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = by_address_.try_emplace(storage.data());
  if (is_new) {
    entry->second = {pipeline::StorageOrdinal(next_++), storage.nbytes()};
    if (const auto read = loading_.extract(storage.data())) {
      loaded_.push_back(read.mapped());
      loaded_.back().storage = entry->second.ordinal;
    }
  }
  return entry->second.ordinal;
}

std::uint64_t StorageTable::next() const {
  const std::lock_guard lock(mutex_);
  return next_;
}

void StorageTable::note_loaded(const c10::DataPtr& memory, bool is_elsewhere,
                               std::uint64_t number) {
  if (!is_from_libtorch(memory)) return;
  const std::lock_guard lock(mutex_);
  loading_.insert_or_assign(memory.get(), Loaded{{}, is_elsewhere, number});
}

std::vector<StorageTable::Loaded> StorageTable::take_loaded() {
  const std::lock_guard lock(mutex_);
  return std::exchange(loaded_, {});
}

bool StorageTable::knows(const c10::StorageImpl& storage) const {
  return at(storage.data()).has_value();
}

std::optional<pipeline::StorageOrdinal> StorageTable::at(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return std::nullopt;
  return found->second.ordinal;
}

std::optional<pipeline::StorageOrdinal> StorageTable::around(const void* address) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, numbered] : by_address_)
    if (begin <= address && address < static_cast<const std::byte*>(begin) + numbered.size)
      return numbered.ordinal;
  return std::nullopt;
}

void StorageTable::move(const void* from, const void* to) {
  const std::lock_guard lock(mutex_);
  auto node = by_address_.extract(from);
  SPILLWAY_ASSERT(!node.empty());
  node.key() = to;
  const bool is_alone = by_address_.insert(std::move(node)).inserted;
  SPILLWAY_ASSERT(is_alone);
}

void StorageTable::ended(const void* address) noexcept {
  const std::lock_guard lock(mutex_);
  if (!loading_.empty()) loading_.erase(address);
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return;
  ended_.push_back(found->second.ordinal);
  by_address_.erase(found);
}

void StorageTable::return_lent(void* context) {
  auto* const storage = static_cast<c10::Storage*>(context);
  SplitProgram::ended(storage->data());
  delete storage;
}

std::vector<pipeline::StorageOrdinal> StorageTable::take_ended() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

}  // namespace spillway::split
