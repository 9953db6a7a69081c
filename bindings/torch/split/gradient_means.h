#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "executor.h"
#include "gradient_watch.h"
#include "parameter_order.h"
#include "program_memory.h"
#include "shard_exchange.h"
#include "spillway/base/autograd_facts.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "storage_table.h"

namespace spillway::split {

/// What a program with several shards reads of its gradients are means, and its parameters begin
/// with the bytes of the first shard: says which storages, and has the executor exchange them. Ends
/// the job where it cannot. The program's thread.
class GradientMeans {
 public:
  /// All outlive it.
  GradientMeans(ShardExchange& shards, pipeline::Job& job, StorageTable& storages,
                ParameterOrder& order, const pipeline::Directory& directory, Executor& executor,
                ProgramMemory& memory)
      : shards_(shards),
        job_(job),
        storages_(storages),
        order_(order),
        directory_(directory),
        executor_(executor),
        memory_(memory),
        gradients_(storages, order) {}

  using Storages = std::vector<std::pair<pipeline::StorageOrdinal, c10::StorageImpl*>>;
  /// What the next operator, of step `step`, reads of gradients that backward has changed: storages
  /// that are averaged together, in this order.
  std::vector<Storages> read_by(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                                OpPhase phase, std::uint64_t step);
  /// The same where the program looks at a storage.
  std::vector<Storages> read_at(pipeline::StorageOrdinal ordinal);

  /// Averages the gradients of such storages, as an operator that writes them, on the ranks that
  /// keep them: `is_here`. `keeper` is the first.
  void ask_for(const Storages& storages, Rank keeper, bool is_here);

  /// An argument of the next operator, of step `step`, is a leaf that forward uses for the first
  /// time. A parameter gets the bytes that it has in the first shard; others stay as they are.
  void begin_equal(const pipeline::Decision::Dealt& dealt, Bytes size, c10::StorageImpl& storage,
                   c10::ArrayRef<c10::IValue> arguments, std::uint64_t step, bool is_here);
  void note_forward(c10::ArrayRef<c10::IValue> arguments);
  /// An operator outside of backward; `is_updating`: the optimizer has begun to write.
  void note_update(std::string_view name, std::span<const pipeline::OperatorUse> uses,
                   bool is_updating);
  /// So many have ended.
  void begin_step(std::uint64_t steps);
  void ended(pipeline::StorageOrdinal ordinal) { gradients_.ended(ordinal); }

 private:
  std::vector<Storages> together(const Storages& storages) const;
  template <typename Look>
  auto or_end(const Look& look);

  ShardExchange& shards_;
  pipeline::Job& job_;
  StorageTable& storages_;
  ParameterOrder& order_;
  const pipeline::Directory& directory_;
  Executor& executor_;
  ProgramMemory& memory_;
  GradientWatch gradients_;
  std::uint64_t step_ = 1;    ///< Of the latest backward.
  std::uint64_t means_ = 0;   ///< That this step has asked for.
  bool has_updated_ = false;  ///< The optimizer has written a parameter.
};

}  // namespace spillway::split
