#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kept_storages.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/recompute/replay_engine.h"
#include "tensor_facts.h"
#include "torch_call.h"

namespace spillway::recompute {

/// Numbers names in the order in which they first come.
template <typename Name>
class FirstNumbers {
 public:
  struct Number {
    std::uint32_t value = 0;
    bool is_new = false;
  };
  Number of(Name name) {
    const auto next = static_cast<std::uint32_t>(names_.size());
    if (names_.size() < kFew) {
      const auto found = std::find(names_.begin(), names_.end(), name);
      if (found != names_.end()) return {static_cast<std::uint32_t>(found - names_.begin()), false};
    } else {
      if (many_.empty())
        for (std::uint32_t i = 0; i < next; ++i) many_.emplace(names_[i], i);
      const auto [entry, is_new] = many_.emplace(name, next);
      if (!is_new) return {entry->second, false};
    }
    names_.push_back(name);
    return {next, true};
  }

 private:
  static constexpr std::size_t kFew = 16;  ///< A list is searched up to here.
  std::vector<Name> names_;
  std::unordered_map<Name, std::uint32_t> many_;
};

/// Takes the arguments of one call into its record.
class Recorder {
 public:
  Recorder(TorchCall& call, const OperatorRules& rules, const ReplayEngine::FindStorage& find,
           const ReplayEngineOptions& options, KeptStorages& kept, const DrawTurns& turns);

  /// Why the call cannot run again, as a sentence; empty when it can.
  std::string take(c10::ArrayRef<c10::IValue> arguments);

  /// Paged storages among them.
  std::vector<StorageUse> inputs() const;

 private:
  struct Source {
    c10::Storage storage;
    ByteRange shown;
  };

  const char* take_argument(std::uint32_t position, const c10::IValue& value);
  const char* take_list(std::uint32_t position, const c10::IValue& list);
  const char* take_tensor(TensorSlot slot, const at::Tensor& tensor);
  const char* take_generator();
  const char* take_counted_draws();
  void describe(TensorArgument& argument, const c10::TensorImpl& tensor, ArgumentUse use);
  std::string keep_storages();
  std::string keep(StorageArgument& argument, const Source& source);
  std::string keep_of_host(StorageArgument& argument, const c10::StorageImpl& storage);

  TorchCall& call_;
  const OperatorRules& rules_;
  const ReplayEngine::FindStorage& find_;
  const ReplayEngineOptions& options_;
  KeptStorages& kept_;
  const DrawTurns& turns_;
  FirstNumbers<const void*> tensor_numbers_;
  FirstNumbers<const void*> storage_numbers_;
  std::vector<Source> sources_;  ///< One per storage of the call.
};

}  // namespace spillway::recompute
