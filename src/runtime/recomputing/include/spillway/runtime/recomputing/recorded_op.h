#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace spillway::runtime {

/// One life of a paged storage, from its allocation to its end. Never reused; 0: not paged.
using StorageKey = std::uint64_t;

/// Memory that a replay has made for a storage that the recorded operator made.
struct ReplayedStorage {
  StorageKey key = 0;
  void* address = nullptr;
  std::shared_ptr<void> memory;  ///< Gives it back.
};

/// An operator call that can run again, bit for bit. Made above LibTorch; keeps no paged storage
/// alive. Used by one thread at a time.
class RecordedOp {
 public:
  virtual ~RecordedOp() = default;

  /// Its name, for errors: "aten::relu".
  virtual std::string describe() const { return "an operator"; }

  /// Paged storages that it reads, those that it writes included. Without duplicates.
  virtual const std::vector<StorageKey>& inputs() const = 0;
  /// Those of them that it writes.
  virtual const std::vector<StorageKey>& written() const = 0;
  /// Paged storages that it has made, and that were alive when it ended.
  virtual const std::vector<StorageKey>& outputs() const = 0;

  using AddressOf = std::function<void*(StorageKey)>;
  /// Runs it on inputs that lie at these addresses now, resident. Returns memory for each output.
  virtual std::vector<ReplayedStorage> replay(const AddressOf& address_of) = 0;
};

}  // namespace spillway::runtime
