#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/base/rank.h"
#include "spillway/pipeline/tasks/task_queue.h"
#include "spillway/runtime/reporting/ranks_report.h"

namespace spillway::split {

/// Where the time of a rank goes: to what its executor computes, and to waiting for messages, for
/// bytes that the program waits for, or for the program. Reads no clock. With a lock of the caller.
class Occupation {
 public:
  explicit Occupation(std::uint32_t ranks) : idle_for_(ranks) {}

  // What the executor does.
  void begin(pipeline::TaskId task, TimePoint now);  ///< It computes a task,
  void end(TimePoint now);                           ///< and has.
  /// None of its tasks can be computed; the next one that the program adds is `next`.
  void found_nothing(pipeline::TaskId next);
  void message_ended(Rank peer) { latest_peer_ = peer; }

  /// The program has waited for bytes that it or an operator reads; `who`, which stays.
  void program_has_waited(std::string_view who, Duration time);

  void write(runtime::RankFigures& figures) const;

 private:
  struct Reads {
    std::uint64_t times = 0;
    Duration time{};
  };

  bool has_begun_ = false;
  TimePoint first_, latest_;  ///< The first begin, the latest begin or end.
  Duration busy_{}, for_reads_{}, for_program_{};
  std::vector<Duration> idle_for_;  ///< By rank.
  std::unordered_map<std::string_view, Reads> reads_;

  // Since the latest end.
  pipeline::TaskId not_added_;  ///< When nothing was found; none: something was there all the time.
  Rank latest_peer_;            ///< Whose message has ended last, from or to it.
  bool has_read_ = false;
};

}  // namespace spillway::split
