#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kept_storages.h"
#include "recorded_call.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/recompute/replay_engine.h"
#include "tensor_facts.h"

namespace spillway::recompute {

/// Numbers names in the order in which they first come.
class FirstNumbers {
 public:
  struct Number {
    std::uint32_t value = 0;
    bool is_new = false;
  };
  Number of(std::uint64_t name);
  Number of(const void* address) { return of(reinterpret_cast<std::uintptr_t>(address)); }

 private:
  std::vector<std::uint64_t> names_;
  std::unordered_map<std::uint64_t, std::uint32_t> many_;
};

/// Takes the arguments of one call into its record.
class Recorder {
 public:
  Recorder(RecordedCall& call, const OperatorRules& rules, const ReplayEngine::FindStorage& find,
           const ReplayEngineOptions& options, KeptStorages& kept);

  /// Why the call cannot run again, as a sentence; empty when it can.
  std::string take(c10::ArrayRef<c10::IValue> arguments);

 private:
  struct Source {
    c10::Storage storage;
    ByteRange shown;
  };

  const char* take_argument(std::uint32_t position, const c10::IValue& value);
  const char* take_list(std::uint32_t position, const c10::IValue& list);
  const char* take_tensor(TensorSlot slot, const at::Tensor& tensor);
  const char* take_generator();
  void describe(TensorArgument& argument, const c10::TensorImpl& tensor, ArgumentUse use);
  std::string keep_storages();
  std::string keep(StorageArgument& argument, const Source& source);
  void list_inputs();

  RecordedCall& call_;
  const OperatorRules& rules_;
  const ReplayEngine::FindStorage& find_;
  const ReplayEngineOptions& options_;
  KeptStorages& kept_;
  FirstNumbers tensor_numbers_;
  FirstNumbers storage_numbers_;
  std::vector<Source> sources_;  ///< One per storage of the call.
};

}  // namespace spillway::recompute
