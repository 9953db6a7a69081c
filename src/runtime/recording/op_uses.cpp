#include "spillway/runtime/recording/op_uses.h"

#include <algorithm>

namespace spillway::runtime {

ViewBytes bytes_of_view(std::uint64_t offset, std::span<const std::int64_t> sizes,
                        std::span<const std::int64_t> strides, std::size_t item_size) {
  std::uint64_t last = 0;  // Element, counted from `offset`.
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return {offset * item_size, Bytes()};
    last += static_cast<std::uint64_t>(sizes[i] - 1) * static_cast<std::uint64_t>(strides[i]);
  }
  return {offset * item_size, Bytes((last + 1) * item_size)};
}

void OpUses::add(const RangeUse& use) {
  if (!use.storage.is_some() || use.touched() == 0) return;
  const auto end_of = [](const RangeUse& each) { return each.first + each.touched(); };
  const bool is_next =
      !uses_.empty() && uses_.back().storage == use.storage && end_of(uses_.back()) <= use.first;
  auto place = uses_.end();
  if (!is_next) {
    place = std::find_if(uses_.begin(), uses_.end(),
                         [&](const RangeUse& each) { return each.storage == use.storage; });
    while (place != uses_.end() && place->storage == use.storage && end_of(*place) <= use.first)
      ++place;
  }
  const bool overlaps =
      place != uses_.end() && place->storage == use.storage && place->first < end_of(use);
  if (!overlaps) {
    uses_.insert(place, use);
    return;
  }
  std::uint32_t end = std::max(end_of(*place), end_of(use));
  place->first = std::min(place->first, use.first);
  place->writes |= use.writes;
  auto next = std::next(place);
  for (; next != uses_.end() && next->storage == use.storage && next->first < end; ++next) {
    end = std::max(end, end_of(*next));
    place->writes |= next->writes;
  }
  place->count = end - place->first;
  uses_.erase(std::next(place), next);
}

}  // namespace spillway::runtime
