#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spillway/base/storage_id.h"

namespace spillway::runtime {

/// Memory that a replay has made for a storage that the recorded operator made.
struct ReplayedStorage {
  StorageId id;
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
  virtual const std::vector<StorageId>& inputs() const = 0;
  /// Those of them that it writes.
  virtual const std::vector<StorageId>& written() const = 0;
  /// Paged storages that it has made, and that were alive when it ended.
  virtual const std::vector<StorageId>& outputs() const = 0;

  using AddressOf = std::function<void*(StorageId)>;
  /// Runs it on inputs that lie at these addresses now, resident. Returns memory for each output.
  virtual std::vector<ReplayedStorage> replay(const AddressOf& address_of) = 0;
};

}  // namespace spillway::runtime
