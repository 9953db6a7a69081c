#pragma once

#include <cstdint>

#include "spillway/memory/address_arena.h"

namespace spillway::swap {

/// Neighbouring pages that are treated alike, collected so that one system call does for all of
/// them: each interrupts every core. `act(first, count)` is called for a whole run, by `add` where
/// a page does not follow the one before, and by `end`.
class PageRun {
 public:
  template <typename Act>
  void add(memory::PageIndex index, Act&& act) {
    if (count_ > 0 && first_ + count_ != index) end(act);
    if (count_++ == 0) first_ = index;
  }
  template <typename Act>
  void end(Act&& act) {
    if (count_ > 0) act(first_, count_);
    count_ = 0;
  }

 private:
  memory::PageIndex first_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace spillway::swap
