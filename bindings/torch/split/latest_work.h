#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rank_log.h"
#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/base/rank.h"
#include "spillway/pipeline/ownership/directory.h"
#include "spillway/pipeline/tasks/task_queue.h"

namespace spillway::split {

/// " for forward of stage 1, micro-batch 3", or nothing.
std::string purpose_of(const ForAction& action);

/// What the executor of a rank does, and did last, for people who ask why nothing moves. Always
/// kept. Reads no clock. With a lock of the caller.
class LatestWork {
 public:
  static constexpr std::size_t kKept = 256;  ///< Pieces of work; older ones are forgotten.

  struct Piece {
    enum class Kind : std::uint8_t { kComputes, kSends, kReceives, kExchanges };
    Kind kind = Kind::kComputes;
    std::string_view name{};  ///< Of what is computed; it outlives this.
    ForAction action{};
    // Of a message:
    pipeline::StorageOrdinal storage{};
    Bytes size{};
    Rank peer{};
  };

  void begin(const Piece& piece, TimePoint now);  ///< It computes this,
  void end(TimePoint now);                        ///< and has.
  /// A message is sent, has come, or goes on between shards.
  void add(const Piece& piece);
  // A message is waited for, until it has come.
  void expect(pipeline::TaskId task, const Piece& piece) { expected_.emplace(task, piece); }
  void has_come(pipeline::TaskId task);
  /// What follows is of that step, counted from 1.
  void begin_step(std::uint64_t step) { step_ = step; }
  std::uint64_t step() const { return step_; }
  /// Another number than before, where something was done since, or is.
  std::uint64_t progress() { return count_ + (is_computing_ ? ++computing_ : computing_); }

  /// Sentences without their subject: what it does now, and what it did before. `left`: tasks that
  /// are not done.
  std::vector<std::string> describe(TimePoint now, std::size_t left) const;

 private:
  struct Kept {
    Piece piece;
    std::uint64_t step = 0;
  };

  std::string now_text(TimePoint now, std::size_t left) const;
  std::string before_text() const;

  std::array<Kept, kKept> kept_{};  ///< A ring.
  std::uint64_t count_ = 0;         ///< Of all so far.
  std::uint64_t computing_ = 0;     ///< How often it was asked for progress while it computed.
  std::uint64_t step_ = 1;
  bool is_computing_ = false, has_begun_ = false;
  TimePoint latest_;  ///< Begin or end of what is computed.
  std::map<pipeline::TaskId, Piece> expected_;
};

}  // namespace spillway::split
