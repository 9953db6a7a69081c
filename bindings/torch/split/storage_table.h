#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "spillway/pipeline/ownership/directory.h"

namespace spillway::split {

/// Numbers the storages of a program in the order in which its operators first use them, which is
/// the same on all ranks. Any thread.
class StorageTable {
 public:
  /// `deleter`: of memory whose end `ended` is told, beside that of phantoms and what is lent.
  explicit StorageTable(c10::DeleterFnPtr deleter) : deleter_(deleter) {}

  /// The number of a storage, which it gets here if it has none yet. Nothing: its memory is not
  /// LibTorch's own, so nobody would tell when it ends. That of a GPU gets a deleter that tells.
  std::optional<pipeline::StorageOrdinal> ordinal_of(c10::StorageImpl& storage);
  bool knows(const c10::StorageImpl& storage) const;
  /// The number that the next one gets, at least.
  std::uint64_t next() const;
  /// The memory has been read from an archive, in an order that may differ between ranks.
  /// `is_elsewhere`: the first rank alone has the bytes; else `number` hangs on them, or is 0.
  void note_loaded(const c10::DataPtr& memory, bool is_elsewhere, std::uint64_t number);
  struct Loaded {
    pipeline::StorageOrdinal storage;
    bool is_elsewhere = false;
    std::uint64_t number = 0;
  };
  /// Those of it that have got numbers since the last call.
  std::vector<Loaded> take_loaded();
  /// The storage goes on at another address.
  void move(const void* from, const void* to);
  /// The memory at that address is about to be freed, by any thread.
  void ended(const void* address) noexcept;
  /// Those that have ended since the last call.
  std::vector<pipeline::StorageOrdinal> take_ended();
  /// Deleter of memory that the context, a c10::Storage, holds: the storage over it has ended.
  static void return_lent(void* storage);
  /// The number of the storage in whose memory `address` lies.
  std::optional<pipeline::StorageOrdinal> around(const void* address) const;
  /// The number of the storage whose memory begins at `address`.
  std::optional<pipeline::StorageOrdinal> at(const void* address) const;

 private:
  bool is_from_libtorch(const c10::DataPtr& memory) const;

  const c10::DeleterFnPtr deleter_;
  mutable std::mutex mutex_;
  struct Numbered {
    pipeline::StorageOrdinal ordinal;
    std::size_t size = 0;  ///< Bytes, when it got its number.
  };
  std::unordered_map<const void*, Numbered> by_address_;
  std::vector<pipeline::StorageOrdinal> ended_;
  std::unordered_map<const void*, Loaded> loading_;  ///< Without storages' numbers.
  std::vector<Loaded> loaded_;
  std::uint64_t next_ = 0;
};

}  // namespace spillway::split
