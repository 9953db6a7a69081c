#pragma once

#include <c10/core/StorageImpl.h>

#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "deferred_calls.h"
#include "executor.h"
#include "storage_table.h"

namespace spillway::split {

/// Nothing is there to be used by kernels: bytes are elsewhere, promised, or in a file.
bool is_phantom(const c10::StorageImpl& storage);

/// Memory that a storage may be put over, and that is not its own.
c10::DataPtr borrowed(const void* memory, c10::Device device);

/// In which memory the storages of a program lie, whose storages go on with their numbers: in the
/// program's own, which nobody else has; in the executor's, where the program sees what has waited
/// to be computed; or in none. Of the program's thread, where nothing else is said.
class ProgramMemory {
 public:
  /// All outlive it.
  ProgramMemory(StorageTable& storages, Executor& executor, DeferredCalls& deferred)
      : storages_(storages), executor_(executor), deferred_(deferred) {}

  /// The number of a storage. Bytes of one that was loaded wait in their file.
  std::optional<pipeline::StorageOrdinal> number_of(c10::StorageImpl& storage);
  /// Whether the executor has the bytes, or will have them.
  bool is_with_executor(pipeline::StorageOrdinal ordinal) const {
    return deferred_.are_here(ordinal) || executor_.has(ordinal);
  }

  /// Bytes that the program has made itself are the executor's, too, from now on.
  void share(c10::StorageImpl& storage, pipeline::StorageOrdinal ordinal);
  /// The executor is to have the bytes, wherever they wait, and may change them if it `writes`.
  void hand_over(c10::StorageImpl& storage, pipeline::StorageOrdinal ordinal, bool writes);
  /// The program sees the bytes of this rank, and may write them if it `writes`. `who` wants that:
  /// Executor::wait_for.
  void show(c10::StorageImpl& storage, pipeline::StorageOrdinal ordinal, bool writes,
            std::string_view who);
  /// The same for a second storage, `alias`, that the program has made over the memory.
  void show_in(c10::StorageImpl& alias, pipeline::StorageOrdinal ordinal, std::string_view who);
  /// The executor's storage, when its bytes are there; without memory: it has none.
  c10::Storage held_of(pipeline::StorageOrdinal ordinal, std::string_view who);
  /// The executor's bytes, when they are there; null: it has none.
  const void* bytes_of(pipeline::StorageOrdinal ordinal, std::string_view who);
  /// This rank does not hold it any longer.
  void let_go_of(c10::StorageImpl& storage, pipeline::StorageOrdinal ordinal);
  /// What is at its address counts no more.
  void leave(c10::StorageImpl& storage);
  /// From a storage that nobody has filled.
  void take_memory(c10::StorageImpl& storage);

  /// The program has had a pointer to it, which it may keep.
  void keep(pipeline::StorageOrdinal ordinal);
  /// Whether it has: operators that run later have copies. Any thread.
  bool is_kept(pipeline::StorageOrdinal ordinal);
  /// A second storage has been made over one that is kept.
  void show_kept(c10::StorageImpl& storage, pipeline::StorageOrdinal ordinal, std::string_view who);
  void ended(pipeline::StorageOrdinal ordinal);

 private:
  void show_held(c10::StorageImpl& storage, pipeline::StorageOrdinal ordinal, bool writes,
                 std::string_view who);
  void exchange_memory(c10::StorageImpl& storage, c10::DataPtr memory);

  StorageTable& storages_;
  Executor& executor_;
  DeferredCalls& deferred_;
  std::mutex kept_mutex_;
  std::unordered_set<pipeline::StorageOrdinal> kept_;  ///< Changed by the program's thread.
};

}  // namespace spillway::split
