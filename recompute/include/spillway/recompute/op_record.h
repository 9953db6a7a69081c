#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/storage_id.h"

namespace spillway::recompute {

/// A paged storage among the arguments of an operator.
struct StorageUse {
  StorageId id;
  bool written = false;
};

/// A paged storage that an operator made.
struct StorageMade {
  StorageId id;
  Bytes bytes;  ///< As LibTorch asked for them.
};

/// One call of an operator with all that is needed to run it again: paged storages among its
/// arguments by id, everything else by value. Keeps no paged storage alive. `ReplayEngine` makes
/// and runs it; may be read from several threads.
class OpRecord {
 public:
  virtual ~OpRecord() = default;
  OpRecord(const OpRecord&) = delete;
  OpRecord& operator=(const OpRecord&) = delete;

  const c10::OperatorHandle& op() const { return op_; }

  /// Paged storages among the arguments, each once.
  const std::vector<StorageUse>& inputs() const { return inputs_; }

  /// Paged storages that the call made; known once the record is complete.
  const std::vector<StorageMade>& outputs() const { return outputs_; }

  /// Memory of the record itself and of the copies that it alone has. Storages that it shares with
  /// other records or with the trainer count in `ReplayEngine::bytes_held`.
  virtual Bytes bytes_held() const = 0;

 protected:
  explicit OpRecord(const c10::OperatorHandle& op) : op_(op) {}

  std::vector<StorageUse> inputs_;
  std::vector<StorageMade> outputs_;

 private:
  c10::OperatorHandle op_;
};

}  // namespace spillway::recompute
