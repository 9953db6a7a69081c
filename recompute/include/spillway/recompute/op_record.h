#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "spillway/base/bytes.h"

namespace spillway::recompute {

/// Names a paged storage. Never reused in a process.
using StorageKey = std::uint64_t;
inline constexpr StorageKey kNotPaged = 0;

/// A paged storage among the arguments of an operator.
struct StorageUse {
  StorageKey key = kNotPaged;
  bool read = false;
  bool written = false;
};

/// A paged storage that an operator made.
struct StorageMade {
  StorageKey key = kNotPaged;
  Bytes bytes;  ///< As LibTorch asked for them.
};

class KeptStorage;
struct Surroundings;

/// One call of an operator, with all that is needed to run it again: paged storages among its
/// arguments by key, everything else by value. Made and run by `ReplayEngine`, from any thread.
/// Keeps no paged storage alive.
class OpRecord {
 public:
  const c10::OperatorHandle& op() const { return op_; }

  /// Paged storages among the arguments, each once.
  std::vector<StorageUse> inputs() const;
  /// Paged storages that the call made; known once the record is complete.
  const std::vector<StorageMade>& outputs() const { return made_; }

  /// Memory that the record keeps, itself included. Storages that it shares with other records or
  /// with the trainer count in `ReplayEngine::bytes_held` only.
  Bytes bytes_held() const;

 private:
  friend class ReplayEngine;
  friend class Recorder;
  friend class ReplayCall;
  friend class Verification;

  struct StorageArgument {
    StorageKey key = kNotPaged;
    std::ptrdiff_t offset = 0;  ///< Of its first byte in the paged storage.
    std::size_t bytes = 0;
    const void* address = nullptr;      ///< Of its first byte at the call.
    std::shared_ptr<KeptStorage> kept;  ///< Where it is not paged.
    bool read = false;
    bool written = false;  ///< Declared.
    bool scratch = false;  ///< Each replay gets a copy of its own.
    std::shared_ptr<std::byte[]> before;  ///< For a verification: what an in-place call found.
  };
  struct TensorArgument {
    std::uint32_t storage = 0;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    bool conjugated = false;
    bool negated = false;
    bool requires_grad = false;
    bool wrapped_number = false;
    std::int64_t offset = 0;  ///< In elements, as the next two.
    c10::SmallVector<std::int64_t, 5> sizes;
    c10::SmallVector<std::int64_t, 5> strides;
  };
  /// Where a tensor belongs: into an argument, or into a list that is one.
  struct Slot {
    std::uint32_t argument = 0;
    std::int32_t element = -1;  ///< In the list; -1 for the argument itself.
    std::uint32_t tensor = 0;
  };
  struct ResultStorage {
    std::uint32_t result = 0;  ///< Counted through lists.
    std::uint32_t made = 0;    ///< Index of its storage among the outputs.
  };

  explicit OpRecord(const c10::OperatorHandle& op) : op_(op) {}

  c10::OperatorHandle op_;
  /// Tensors in them are replaced by undefined ones.
  std::vector<c10::IValue> arguments_;
  std::vector<Slot> slots_;
  std::vector<TensorArgument> tensors_;
  std::vector<StorageArgument> storages_;
  /// As it was at the call; null without random numbers.
  c10::intrusive_ptr<c10::GeneratorImpl> generator_;
  std::shared_ptr<const Surroundings> surroundings_;
  std::vector<StorageMade> made_;
  std::vector<ResultStorage> results_;
};

}  // namespace spillway::recompute
