#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "spillway/device/event.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/pipeline/balance/balancer.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "spillway/runtime/reporting/ranks_report.h"
#include "spillway/runtime/runtime.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// Has the model cut anew while it trains. Behind each step the ranks send the first one what their
/// operators took; it says two steps ahead how the model is cut from then on, so that nobody waits
/// for an answer, and all change at the same operator.
class Rebalancing {
 public:
  /// All ranks at once, before other messages: it measures the links between them, by their hosts.
  /// `in_flight`: BalancerOptions. Throws TransportError.
  Rebalancing(transport::Transport& transport, pipeline::Job& job,
              const std::vector<std::string>& hosts, const pipeline::Placement& placement,
              std::vector<double> in_flight, const runtime::Runtime& runtime);

  /// The program's thread, on all ranks before the first operator of step `step`, counted from 0,
  /// but not for that one. The cuts from now on, where they change. Throws TransportError.
  std::optional<std::vector<std::size_t>> begin_step(std::uint64_t step,
                                                     const pipeline::Ownership& ownership);
  /// Any thread, when the operators before `step` are done: their times here, by unit; or those of
  /// the step before, where times come late.
  void measured(std::uint64_t step, std::vector<pipeline::UnitSeconds> seconds);
  /// The program's thread, on all ranks before `begin_step` of `step`: the model trains on GPUs,
  /// and this rank may use so much of its own; 0: its GPU is not served, and nothing is measured.
  /// From here on times come a step late. Throws TransportError.
  void train_on_gpus(std::uint64_t step, Bytes budget);
  bool times_come_late() const { return late_steps_ > 0; }

  /// On the first rank.
  const runtime::LayerMoves& moves() const { return moves_; }

 private:
  struct Sent {
    std::vector<std::byte> bytes;
    device::Event event;
  };
  /// What ranks have measured behind a step.
  struct Gathered {
    std::uint64_t step = 0;
    std::uint64_t model = 0;  ///< Whose units, as Ownership counts models.
    pipeline::MeasuredStep measured;
    std::vector<device::Event> events;
    bool has_own = false;
    std::uint64_t late_steps = 0;  ///< Its times are those of so many steps before.
  };
  using Cuts = std::vector<std::uint64_t>;  ///< Unit of each stage; or all ones: as before.
  struct Coming {
    Cuts cuts;
    device::Event event;
    std::uint64_t model = 0;
    runtime::LayerMoves moves_before{};  ///< On the first rank.
  };

  void send(Rank to, transport::Tag tag, const void* bytes, std::size_t size);
  void gather(std::uint64_t step, const pipeline::Ownership& ownership);
  void take_measured();
  void look_at_model(std::uint64_t step, std::uint64_t model);
  Cuts decide(std::uint64_t step, const pipeline::Ownership& ownership);

  transport::Transport& transport_;
  pipeline::Job& job_;
  const std::uint32_t stages_;
  std::mutex mutex_;  ///< Of what follows: `measured` comes on the executor's thread.
  std::deque<Sent> sent_;
  std::deque<Gathered> gathered_;  ///< On the first rank.

  // Of the program's thread.
  std::deque<Coming> coming_;  ///< For this step and the next ones.
  const pipeline::BalancerOptions options_;
  pipeline::Balancer balancer_;
  runtime::LayerMoves moves_;
  std::uint64_t counts_from_ = 0;  ///< Steps before were cut otherwise, or warmed up.
  std::uint64_t model_ = 0;        ///< The latest.
  std::uint64_t late_steps_ = 0;
  bool is_measured_ = true;
  std::uint64_t micro_batches_ = 1;  ///< Of the step that has ended last.
  bool awaits_measure_ = false;  ///< Layers have moved, and no step behind that has been looked at.
};

}  // namespace spillway::split
