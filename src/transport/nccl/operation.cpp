#include "operation.h"

#include <algorithm>
#include <array>

#include "spillway/base/error.h"

namespace spillway::transport::nccl {
namespace {

constexpr std::array<const char*, 6> kNames{"send",           "receive",    "all-reduce",
                                            "reduce-scatter", "all-gather", "broadcast"};

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
  return spillway::message("{} is {} {} of other numbers or another root on rank {}", name,
                           what == static_cast<std::uint32_t>(kind) ? "one" : "a",
                           what < kNames.size() ? kNames[what] : "call", other);
}

}  // namespace spillway::transport::nccl
