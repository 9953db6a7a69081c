#pragma once

#include <cstdint>
#include <optional>

#include "spillway/swap/residency.h"

namespace spillway::swap {

// Orders of one kind each, for tests that look at one verb of a plan.

inline void advance(ResidencyAdvice& advice, OpClock now) {
  ResidencyOrders orders;
  orders.now = now;
  advice.apply(orders);
}

inline void set_next_use(ResidencyAdvice& advice, const RangePart& part, OpClock at) {
  ResidencyOrders orders;
  orders.next_uses = {{part, at}};
  advice.apply(orders);
}

inline void write_out(ResidencyAdvice& advice, const RangePart& part, std::uint32_t pages,
                      std::optional<std::uint32_t> far_pages = {}) {
  ResidencyOrders orders;
  orders.write_outs = {{part, pages, far_pages}};
  advice.apply(orders);
}

inline void fetch(ResidencyAdvice& advice, const RangePart& part,
                  OnFetch copy = OnFetch::kKeepStoreCopy) {
  ResidencyOrders orders;
  orders.fetches = {{part, copy}};
  advice.apply(orders);
}

inline void set_fetch_reserve(ResidencyAdvice& advice, std::uint32_t pages) {
  ResidencyOrders orders;
  orders.reserve_pages = pages;
  advice.apply(orders);
}

}  // namespace spillway::swap
