#pragma once

#include <cstdint>
#include <deque>

#include "spillway/pipeline/agreement/job.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// Signals that the program has handlers for. Launchers and Slurm send them to all ranks, which are
/// at different operators then; so that the ranks do not go apart, a signal waits, and all ranks
/// run the program's handler at the same one: where a step begins, two steps after the first rank
/// has told that it has got it. What other ranks get is no matter. One object in a process.
class HeldSignals {
 public:
  HeldSignals(transport::Transport& transport, pipeline::Job& job);
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// A signal has come; whether its handler is to wait. Not so before the first step, for a second
  /// one while the first waits, and on the first rank where steps have ceased to come. Any thread;
  /// safe in signal handlers.
  static bool hold(int signal) noexcept;

  /// Runs handlers. The program's thread, out of any operator.
  void begin_step(std::uint64_t step);

 private:
  struct Told {
    std::uint64_t signals = 0;  ///< A bit of each.
    device::Event event;        ///< On other ranks: that it is here.
  };

  void deliver(std::uint64_t signals);

  transport::Transport& transport_;
  pipeline::Job& job_;
  std::deque<Told> coming_;  ///< Of the latest steps.
  struct Sent {
    std::uint64_t signals = 0;
    device::Event event;
  };
  std::deque<Sent> sent_;        ///< On the first rank.
  std::uint64_t announced_ = 0;  ///< On the first rank, of those that wait.
};

}  // namespace spillway::split
