#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace spillway::emulated {

/// How far somebody's knowledge of each stream reaches: the number of its pieces of work that have
/// happened before.
class Clock {
 public:
  std::uint64_t of(int stream) const {
    const auto index = static_cast<std::size_t>(stream);
    return index < ticks_.size() ? ticks_[index] : 0;
  }

  /// Everything that happened before `other` has happened before this, too.
  void learn(const Clock& other) {
    if (other.ticks_.size() > ticks_.size()) ticks_.resize(other.ticks_.size());
    for (std::size_t i = 0; i < other.ticks_.size(); ++i) {
      ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
    }
  }

  /// One more piece of work of `stream`; gives its number, from 1 on.
  std::uint64_t advance(int stream) {
    const auto index = static_cast<std::size_t>(stream);
    if (index >= ticks_.size()) ticks_.resize(index + 1);
    return ++ticks_[index];
  }

 private:
  std::vector<std::uint64_t> ticks_;
};

}  // namespace spillway::emulated
