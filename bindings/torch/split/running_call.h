#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "executor.h"
#include "spillway/phantoms/output_memo.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "spillway/runtime/recording/op_text.h"

namespace spillway::split {

/// An operator that the program has called, with its arguments on the stack.
struct CalledOperator {
  const c10::OperatorHandle& op;
  c10::DispatchKeySet below;
  torch::jit::Stack& stack;
  const runtime::OpTraits& traits;
  std::string_view name;                 ///< Stays.
  c10::ArrayRef<c10::IValue> arguments;  ///< As long as they lie there.

  /// When it has left them on the stack.
  c10::ArrayRef<c10::IValue> results() const {
    return torch::jit::last(stack, op.schema().returns().size());
  }
};

/// The storages with numbers that a call uses, one for each of its tensors, in their order.
class CallUses {
 public:
  void clear() {
    uses_.clear();
    storages_.clear();
    first_.clear();
  }
  void add(const pipeline::OperatorUse& use, c10::StorageImpl& storage) {
    uses_.push_back(use);
    storages_.push_back(&storage);
  }

  std::span<const pipeline::OperatorUse> all() const { return uses_; }
  std::size_t size() const { return uses_.size(); }
  const pipeline::OperatorUse& operator[](std::size_t number) const { return uses_[number]; }
  c10::StorageImpl& storage(std::size_t number) const { return *storages_[number]; }
  void declare(std::size_t number, bool is_parameter) { uses_[number].is_declared = is_parameter; }

  /// Of the first use of a storage, which there is.
  std::size_t number_of(pipeline::StorageOrdinal storage);
  /// Whether any use of a storage, which there is, writes it.
  bool is_written(pipeline::StorageOrdinal storage);

 private:
  void number_all();

  std::vector<pipeline::OperatorUse> uses_;
  std::vector<c10::StorageImpl*> storages_;
  struct First {
    std::size_t number = 0;
    bool is_written = false;  ///< By any use of its storage.
  };
  std::unordered_map<pipeline::StorageOrdinal, First> first_;  ///< Where there are many.
};

/// What has been found so far about the call that runs.
struct RunningCall {
  OpPhase phase{};
  const phantoms::CallOutputs* outputs = nullptr;
  const pipeline::Decision* decision = nullptr;  ///< Null: it has no use for bytes.
  Executor::MicroBatch micro_batch{};
  ForAction action{};
  Executor::Place place{};
  bool is_on_host = true;        ///< No GPU is used or named.
  bool takes_generator = false;  ///< As an argument.
  bool writes_foreign = false;
  bool begins_anew = false;     ///< What its first argument shows, which waits.
  bool fills_first = false;     ///< All of its first argument's storage.
  std::uint64_t first_new = 0;  ///< Number of the first storage that is new with it.
  c10::ArrayRef<c10::IValue> arguments{};
  CallUses uses{};
  std::vector<pipeline::MadeStorage> made{};
  std::vector<PendingResult> results{};  ///< The same.
  // Of the task.
  std::vector<pipeline::StorageOrdinal> reads{}, writes{};

  /// What the program has made past LibTorch has no number, and is the same on all ranks.
  pipeline::OperatorKind kind() const {
    return outputs->making == phantoms::Making::kPhantoms && !writes_foreign
               ? pipeline::OperatorKind::kComputes
               : pipeline::OperatorKind::kSteers;
  }
  bool draws() const { return outputs->draws > 0 || outputs->draws_by_state; }
  /// Where all ranks compute it at once: whether looking at what it makes takes longer than at so
  /// many bytes that it reads, or does not tell of all that it changes. A row of a large table is
  /// few bytes.
  bool makes_more_than(std::size_t read) const;
};

/// The generator that a call draws from.
at::Generator generator_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace spillway::split
