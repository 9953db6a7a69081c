#include "silence_watch.h"

#include <algorithm>

namespace spillway::transport::nccl {

void SilenceWatch::has_heard(Rank rank, TimePoint now) {
  const auto at = waits_.find(rank);
  if (at != waits_.end()) at->second = {now};
}

SilenceWatch::Findings SilenceWatch::look(std::span<const Rank> awaited, TimePoint now) {
  Findings found;
  std::erase_if(waits_, [&](const auto& wait) {
    return std::find(awaited.begin(), awaited.end(), wait.first) == awaited.end();
  });
  for (const Rank rank : awaited) {
    Wait& wait = waits_.try_emplace(rank, Wait{now}).first->second;
    if (now - wait.since >= (wait.is_asked ? silence_ : patience_)) {
      if (wait.is_asked) {
        found.gone = rank;
        return found;
      }
      found.to_ask.push_back(rank);
      wait = {now, true};
    }
    found.next = std::min(found.next, wait.since + (wait.is_asked ? silence_ : patience_));
  }
  return found;
}

}  // namespace spillway::transport::nccl
