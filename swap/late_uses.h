#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "spillway/device/event.h"

namespace spillway::swap {

/// What was let go while a device still works on it. A question whether that has ended costs a call
/// of the device: of a line (`EventState::line`), whose uses end in their order, the first that
/// goes on answers for all behind it. Not for several threads at once.
template <class Held>
class LateUses {
 public:
  bool empty() const { return count_ == 0; }
  /// So many that they are to be asked for although nobody needs them. A program may give a device
  /// work for long before any of it ends, so that is said again only when some more have come.
  bool are_many() const { return count_ >= kMany && since_question_ >= kApart; }
  /// How many have ended so far.
  std::size_t ended() const { return ended_; }

  void add(const device::Event& until, Held held) {
    const void* const of = until.state() == nullptr ? nullptr : until.state()->line();
    auto line = std::find_if(lines_.begin(), lines_.end(),
                             [of](const Line& known) { return known.of == of; });
    if (line == lines_.end()) line = lines_.insert(lines_.end(), Line{of, {}});
    line->uses.push_back({until, std::move(held)});
    ++count_;
    ++since_question_;
  }

  /// Calls `end(held)` for those that have ended, as far as it asks for them. Returns whether there
  /// were some.
  template <class End>
  bool end_some(const End& end) {
    const std::size_t before = ended_;
    for (Line& line : lines_) end_some_of(line, end);
    std::erase_if(lines_, [](const Line& line) { return line.uses.empty(); });
    since_question_ = 0;
    return ended_ > before;
  }

  /// What keeps the first of each line from ending that has an obstacle; empty where one has none.
  std::string obstacle() const {
    std::string text;
    for (const Line& line : lines_) {
      const auto& state = line.uses.front().until.state();
      text = state->obstacle();
      if (text.empty()) return {};
    }
    return text;
  }

  void wait_for_all() const {
    for (const Line& line : lines_)
      for (const Use& use : line.uses) use.until.wait();
  }

 private:
  static constexpr std::size_t kMany = 64;
  static constexpr std::size_t kApart = 16;

  struct Use {
    device::Event until;
    Held held;
  };
  struct Line {
    const void* of;  ///< Null: those whose order is not known.
    std::deque<Use> uses;
  };

  template <class End>
  void end_some_of(Line& line, const End& end) {
    // Where no order is known, the rest are asked for later.
    constexpr std::size_t kMostGoingOn = 4;
    const std::size_t most = line.of == nullptr ? kMostGoingOn : 1;
    std::size_t going_on = 0;
    for (auto use = line.uses.begin(); use != line.uses.end() && going_on < most;) {
      if (!use->until.is_done()) {
        ++going_on;
        ++use;
        continue;
      }
      end(use->held);
      use = line.uses.erase(use);
      --count_;
      ++ended_;
    }
  }

  std::vector<Line> lines_;
  std::size_t count_ = 0;
  std::size_t ended_ = 0;
  std::size_t since_question_ = 0;  ///< So many have come.
};

}  // namespace spillway::swap
