#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "spillway/recompute/replay_engine.h"

namespace spillway::recompute {

/// The turn of the calling thread. Throws Error where it does not come for a long time.
std::unique_lock<std::recursive_timed_mutex> turn_to_draw(const DrawTurns& turns);

/// What a call draws from a generator of a device, whose state is a seed and how far it has come:
/// how much it draws follows from the call, so a run that comes elsewhere is known to be wrong.
class CountedDraws {
 public:
  CountedDraws(at::Generator source, DrawTurns turns)
      : source_(std::move(source)), turns_(std::move(turns)) {}

  /// The first run has drawn; `start` has the state before it. Why it cannot run again, as a
  /// sentence; empty: it can.
  std::string end_first(const at::Generator& start);

  /// Has `call` draw from `start`: where `is_hidden` the program's generator stands for it
  /// meanwhile, else it is among the arguments. Throws Error where it comes elsewhere than the
  /// first run did. `name`: of the operator.
  void run_from(at::Generator& start, bool is_hidden, const std::string& name,
                const std::function<void()>& call) const;

 private:
  at::Generator source_;  ///< The program's.
  DrawTurns turns_;
  std::uint64_t drawn_ = 0;
};

}  // namespace spillway::recompute
