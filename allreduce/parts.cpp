#include "parts.h"

#include <algorithm>

namespace spillway::allreduce {

Parts::Parts(const std::vector<std::span<std::byte>>& parts) {
  for (const std::span<std::byte> part : parts) {
    if (part.empty()) continue;
    parts_.push_back({size_, part});
    size_ += Bytes(part.size());
  }
}

std::size_t Parts::part_at(Bytes offset) const {
  const auto after =
      std::upper_bound(parts_.begin(), parts_.end(), offset,
                       [](Bytes wanted, const Part& part) { return wanted < part.begin; });
  return static_cast<std::size_t>(after - parts_.begin()) - 1;
}

std::byte* Parts::find(Bytes begin, Bytes size) const {
  if (size == Bytes()) return nullptr;
  const Part& part = parts_[part_at(begin)];
  const std::uint64_t offset = (begin - part.begin).count();
  return part.bytes.size() - offset < size.count() ? nullptr : part.bytes.data() + offset;
}

void Parts::for_each(Bytes begin, Bytes all, const Copy& copy) const {
  const std::size_t size = all.count();
  if (size == 0) return;
  std::size_t done = 0;
  std::size_t offset = 0;
  for (std::size_t i = part_at(begin); done < size; ++i, offset = 0) {
    const Part& part = parts_[i];
    if (done == 0) offset = (begin - part.begin).count();
    const std::size_t here = std::min(part.bytes.size() - offset, size - done);
    copy(part.bytes.data() + offset, done, here);
    done += here;
  }
}

}  // namespace spillway::allreduce
