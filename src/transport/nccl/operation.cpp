#include "operation.h"

#include <algorithm>
#include <array>

#include "spillway/base/error.h"

namespace spillway::transport::nccl {
namespace {

constexpr std::array<const char*, 6> kNames{"a send",           "a receive",     "an all-reduce",
                                            "a reduce-scatter", "an all-gather", "a broadcast"};

}  // namespace

Request Operation::request(Rank self) const {
  Request request{.number = tag.number, .place = 2 * static_cast<std::uint32_t>(tag.stream)};
  if (is_of_pair()) {
    const Rank receiver = kind == Kind::kSend ? circle.peer : self;
    request.place += receiver == std::min(self, circle.peer) ? 1 : 0;
    request.bytes = (kind == Kind::kSend ? from : to).size.count();
    return request;
  }
  request.bytes = kind == Kind::kReduceScatter ? to.size.count() : from.size.count();
  request.kind = static_cast<std::uint32_t>(kind) | static_cast<std::uint32_t>(type) << 8U |
                 static_cast<std::uint32_t>(root) << 16U;
  return request;
}

std::string Operation::misfit(Rank self, const Request& theirs, Rank other) const {
  const Request mine = request(self);
  if (kind == Kind::kReceive)
    return spillway::message("{} has {} bytes, and {} were expected", name, theirs.bytes,
                             mine.bytes);
  if (kind == Kind::kSend)
    return spillway::message("{} has {} bytes, and its receiver expects {}", name, mine.bytes,
                             theirs.bytes);
  if (theirs.kind == mine.kind)
    return spillway::message("{} has {} bytes on rank {}, and {} on rank {}", name, theirs.bytes,
                             other, mine.bytes, self);
  const std::uint32_t what = theirs.kind & 0xffU;
  if (what == static_cast<std::uint32_t>(kind))
    return spillway::message("{}: rank {} has other numbers or another root", name, other);
  return spillway::message("{}: rank {} has {} of that number", name, other,
                           what < kNames.size() ? kNames[what] : "a call");
}

}  // namespace spillway::transport::nccl
