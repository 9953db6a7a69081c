#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "action_lists.h"
#include "executor.h"
#include "gradient_means.h"
#include "held_signals.h"
#include "rebalancing.h"
#include "replicated_operators.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "spillway/runtime/runtime.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// What all ranks do where a step of the program ends and the next one begins, at the same
/// operators. Ends the job where a rank is lost meanwhile. The program's thread.
class ProgramSteps {
 public:
  using RuntimeOfGpu = runtime::Runtime* (*)() noexcept;  ///< See SplitOptions.

  /// All outlive it. `means`: null with one shard.
  ProgramSteps(runtime::Runtime& runtime, RuntimeOfGpu runtime_of_gpu,
               transport::Transport& transport, pipeline::Job& job, pipeline::Ownership& ownership,
               Executor& executor, ActionLists& lists, const ReplicatedOperators& replicated,
               GradientMeans* means);
  /// All ranks at once: the model may be cut anew. `in_flight`: BalancerOptions. Throws
  /// TransportError.
  void rebalance(const std::vector<std::string>& hosts, std::vector<double> in_flight);

  /// The program has begun to update its parameters; or has replaced them, and goes on.
  void end();
  /// Whether it has, and the next step has not begun.
  bool is_between() const { return is_between_; }
  /// Runs handlers of signals, which may call operators. `uses_gpu`: the program has had a GPU
  /// compute something, on all ranks at the same operator.
  void begin(bool uses_gpu);

  /// That have ended.
  std::uint64_t count() const { return count_; }
  runtime::LayerMoves layer_moves() const;  ///< On the first rank.

 private:
  void look_at_signal() const;
  void measure_on_gpu();
  template <typename Act>
  void or_end(const Act& act);

  runtime::Runtime& runtime_;
  const RuntimeOfGpu runtime_of_gpu_;
  transport::Transport& transport_;
  pipeline::Job& job_;
  pipeline::Ownership& ownership_;
  Executor& executor_;
  ActionLists& lists_;
  const ReplicatedOperators& replicated_;
  GradientMeans* const means_;
  HeldSignals signals_;
  std::optional<Rebalancing> rebalancing_;
  std::uint64_t count_ = 0;
  bool is_between_ = false;
};

}  // namespace spillway::split
