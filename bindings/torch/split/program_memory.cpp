#include "program_memory.h"

#include <array>
#include <utility>

#include "record_memory.h"
#include "spillway/base/assert.h"
#include "spillway/phantoms/phantom_memory.h"

namespace spillway::split {
namespace {

using phantoms::PhantomMemory;
using pipeline::StorageOrdinal;

/// Memory of the executor, which the program sees and which stays as long as it does.
c10::DataPtr lent(const c10::Storage& storage) {
  return {const_cast<void*>(storage.data()), new c10::Storage(storage), &StorageTable::return_lent,
          storage.device()};
}

/// The same for a second storage over it, `alias`, whose own memory ends with it.
c10::DataPtr shared(const c10::Storage& storage, c10::StorageImpl& alias) {
  using Both = std::pair<c10::Storage, c10::DataPtr>;
  auto* const both = new Both(storage, std::move(alias._mutable_data_ptr_no_checks()));
  return {const_cast<void*>(storage.data()), both,
          [](void* context) { delete static_cast<Both*>(context); }, storage.device()};
}

PendingCall call_to_read(const FileRange& bytes) {
  static const c10::OperatorHandle copy =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  PendingCall call{.op = copy};
  call.bytes = bytes;
  call.surroundings = recompute::Surroundings::of_this_thread();
  return call;
}

}  // namespace

bool is_phantom(const c10::StorageImpl& storage) {
  const c10::DeleterFnPtr deleter = storage.data_ptr().get_deleter();
  return deleter == PhantomMemory::deleter() || deleter == RecordMemory::deleter();
}

c10::DataPtr borrowed(const void* memory, c10::Device device) {
  return {const_cast<void*>(memory), device};
}

std::optional<StorageOrdinal> ProgramMemory::number_of(c10::StorageImpl& storage) {
  const auto ordinal = storages_.ordinal_of(storage);
  RecordMemory* const record = RecordMemory::of(storage);
  if (!ordinal || record == nullptr || record->is_numbered) return ordinal;
  if (record->is_elsewhere) {
    take_memory(storage);
    return ordinal;
  }
  record->is_numbered = true;
  deferred_.add(call_to_read(record->range()), {},
                std::array{DeferredCalls::Written{*ordinal, &storage, false, true}});
  return ordinal;
}

void ProgramMemory::share(c10::StorageImpl& storage, StorageOrdinal ordinal) {
  if (is_phantom(storage) || executor_.has(ordinal)) return;
  c10::DataPtr memory = storage.set_data_ptr(borrowed(storage.data(), storage.device()));
  c10::Storage held(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(memory), storage.allocator(),
      /*resizable=*/false));
  storage.set_data_ptr_noswap(lent(held));
  executor_.hold(ordinal, std::move(held));
}

void ProgramMemory::hand_over(c10::StorageImpl& storage, StorageOrdinal ordinal, bool writes) {
  deferred_.want(ordinal, writes);
  share(storage, ordinal);
}

void ProgramMemory::show(c10::StorageImpl& storage, StorageOrdinal ordinal, bool writes,
                         std::string_view who) {
  deferred_.want(ordinal, writes);
  show_held(storage, ordinal, writes, who);
}

void ProgramMemory::show_in(c10::StorageImpl& alias, StorageOrdinal ordinal, std::string_view who) {
  deferred_.want(ordinal, true);
  if (!executor_.has(ordinal)) return;
  const c10::Storage held = executor_.wait_for(ordinal, true, who);
  if (held.data() != alias.data()) alias.set_data_ptr_noswap(shared(held, alias));
}

c10::Storage ProgramMemory::held_of(StorageOrdinal ordinal, std::string_view who) {
  deferred_.want(ordinal, false);
  return executor_.has(ordinal) ? executor_.wait_for(ordinal, false, who) : c10::Storage();
}

const void* ProgramMemory::bytes_of(StorageOrdinal ordinal, std::string_view who) {
  const c10::Storage held = held_of(ordinal, who);
  return held ? held.data() : nullptr;
}

void ProgramMemory::let_go_of(c10::StorageImpl& storage, StorageOrdinal ordinal) {
  leave(storage);
  deferred_.drop(ordinal);
}

void ProgramMemory::leave(c10::StorageImpl& storage) {
  if (storage.data_ptr().get_deleter() != PhantomMemory::deleter()) take_memory(storage);
}

void ProgramMemory::take_memory(c10::StorageImpl& storage) {
  c10::DataPtr nothing = PhantomMemory::instance().allocate(storage.nbytes());
  nothing.unsafe_set_device(storage.device());
  exchange_memory(storage, std::move(nothing));
}

void ProgramMemory::keep(StorageOrdinal ordinal) {
  const std::lock_guard lock(kept_mutex_);
  kept_.insert(ordinal);
}

bool ProgramMemory::is_kept(StorageOrdinal ordinal) {
  const std::lock_guard lock(kept_mutex_);
  return kept_.contains(ordinal);
}

void ProgramMemory::show_kept(c10::StorageImpl& storage, StorageOrdinal ordinal,
                              std::string_view who) {
  if (!kept_.empty() && is_phantom(storage) && is_kept(ordinal))
    show_held(storage, ordinal, true, who);
}

void ProgramMemory::ended(StorageOrdinal ordinal) {
  const std::lock_guard lock(kept_mutex_);
  kept_.erase(ordinal);
}

void ProgramMemory::show_held(c10::StorageImpl& storage, StorageOrdinal ordinal, bool writes,
                              std::string_view who) {
  if (!executor_.has(ordinal)) return;
  const c10::Storage held = executor_.wait_for(ordinal, writes, who);
  SPILLWAY_ASSERT(held.unsafeGetStorageImpl() != nullptr);
  if (storage.data() != held.data()) exchange_memory(storage, lent(held));
}

void ProgramMemory::exchange_memory(c10::StorageImpl& storage, c10::DataPtr memory) {
  storages_.move(storage.data(), memory.get());
  storage.set_data_ptr_noswap(std::move(memory));
}

}  // namespace spillway::split
