#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/base/rank.h"

namespace spillway::transport::nccl {

/// Tells a rank that is slow from one that is gone: one that is waited for long is asked, and has
/// to answer, however busy its device and its program are.
class SilenceWatch {
 public:
  SilenceWatch(Duration patience, Duration silence) : patience_(patience), silence_(silence) {}

  void has_heard(Rank rank, TimePoint now);

  struct Findings {
    std::vector<Rank> to_ask;
    std::optional<Rank> gone;
    TimePoint next = TimePoint::max();  ///< When to look again.
  };
  /// `awaited`: who is waited for now.
  Findings look(std::span<const Rank> awaited, TimePoint now);

 private:
  struct Wait {
    TimePoint since;
    bool is_asked = false;
  };
  const Duration patience_;
  const Duration silence_;
  std::map<Rank, Wait> waits_;
};

}  // namespace spillway::transport::nccl
