#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "flow_table.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/schedule/memory_effects.h"
#include "spillway/schedule/weight_copies.h"
#include "task_graph.h"

namespace spillway::planner {

/// Writes the action lists of a job as tasks. What an action list waits for is known from the
/// action lists alone: its own compute in order, the messages for each of its inputs, copies of the
/// same stash, what its stage is reduced with.
class JobTasks {
 public:
  /// The first `simulated` pipelines; reductions are of all. `effects` are of the action lists,
  /// without steps where hosts update; of no action list where memory has no limit. All must
  /// outlive it.
  JobTasks(const Job& job, std::span<const double> slowdowns, std::uint32_t simulated,
           const MemoryEffects& effects, FlowTable& flows);

  TaskGraph build() &&;

 private:
  struct StageOfRank {
    std::uint32_t stage = 0;
    std::vector<TaskId> copies;  // Of its weights, that nothing has waited for.
    TaskId reduction = kNoTask;  // The end of the last one.
    TaskId update = kNoTask;     // On the host, that nothing has waited for.
    std::uint32_t weights_received = 0, gradients_received = 0;
    bool waits_for_weights = false, waits_for_gradients = false;
    bool is_changed = false;
    std::uint32_t rounds = 0;
  };
  struct Rank {
    TaskId compute = kNoTask;  // The last one, which what follows in the action list waits for.
    TaskId out = kNoTask, in = kNoTask;
    TaskId part_out = kNoTask;      // Of the forward before: the next one waits for its room.
    TaskId backward_end = kNoTask;  // Of the one before of which a part was swapped.
    std::vector<std::pair<std::uint32_t, TaskId>> channels;  // By receiver, the last message.
    std::vector<TaskId> lanes;                               // Of reductions, the last one in each.
    std::vector<StageOfRank> stages;
  };
  struct Chain {
    std::vector<TaskId> tasks;  // Phase by phase.
  };
  struct PhaseKind {
    std::uint32_t lane = 0;
    std::uint32_t flow = 0;
    double bytes = 0.0;  // Of each stream.
    double least_seconds = 0.0;
  };
  struct Request {  // For a message by number, which may not have been written yet.
    TaskId task = kNoTask;
    std::uint64_t index = 0;
  };
  using ParameterKey =
      std::tuple<std::uint32_t, std::uint32_t, bool>;  // Receiver, stage, gradient.
  struct ParameterRequest {
    TaskId task = kNoTask;
    ParameterKey key;
    std::uint32_t count = 0;
  };

  void walk(std::uint32_t rank);
  void take(const Action& action);
  Task task_of(TaskKind kind, const Action& action, double amount, std::uint32_t flow = 0) const;
  MemoryEffect next_effect(const Action& action);
  void pass_gate(const Action& action);
  TaskId add(TaskKind kind, const Action& action, double amount, std::uint32_t flow = 0);
  void compute(const Action& action, const Action* second);
  void need_inputs(TaskId task, const Action& action);
  void need_stage(TaskId task, std::uint32_t stage);
  void deliver(const Action& action);
  void send(const Action& action, bool is_gradient);
  void send_parameters(const Action& action);
  TaskId send_to(std::uint32_t to, const Action& action, Bytes size);
  void swap_part(TaskId task, const Action& action, TaskId before);
  TaskId copy_part(const Action& action, Bytes size, bool is_out);
  void copy_stash(const Action& action);
  void copy_weights(const Action& action);
  void reduce(const Action& action);
  void step(const Action& action);
  void join(const Action& action, TaskId gate);
  Chain& chain_of(const Action& action, std::uint32_t round);
  const std::vector<PhaseKind>& phases_of(std::uint32_t stage);
  std::vector<std::uint32_t> member_devices(std::uint32_t stage) const;
  void link_requests();

  std::uint64_t cell(const Action& action) const {
    return (std::uint64_t{action.replica} * schedule_.stages + action.stage) *
               schedule_.micro_batches +
           action.micro_batch;
  }
  std::uint64_t pipeline_cell(const Action& action) const {
    return pipeline_ * cells_ + cell(action);
  }
  StageOfRank& stage_state(std::uint32_t stage);

  const Job& job_;
  const Schedule& schedule_;
  std::span<const double> slowdowns_;
  const MemoryEffects& effects_;
  FlowTable& flows_;
  std::uint64_t cells_ = 0;
  const WeightCopies copies_;
  bool has_messages_ = false, has_reductions_ = false;
  std::vector<bool> are_streamed_;  // By stage: its weights come and go.

  TaskGraph graph_;
  std::vector<Rank> ranks_;
  std::vector<TaskId> arrivals_;      // By pipeline and cell, activation and gradient.
  std::vector<TaskId> stash_copies_;  // By pipeline and cell, the last one.
  std::vector<TaskId> parts_out_;     // The same of parts on their way out; empty without any.
  std::vector<Request> requests_;
  std::vector<ParameterRequest> parameter_requests_;
  std::map<ParameterKey, std::vector<TaskId>> parameters_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Chain> chains_;  // By stage and round.
  std::vector<std::vector<PhaseKind>> phases_;                       // By stage.
  std::vector<bool> are_phases_known_;

  // Where the walk is.
  std::uint32_t rank_ = 0, local_ = 0;
  std::uint64_t pipeline_ = 0;
  std::uint16_t repetition_ = 0;
  std::size_t next_effect_ = 0;
  MemoryEffect effect_;  // Of the action, or of two that run as one.
};

}  // namespace spillway::planner
