#include "spillway/transport/transport.h"

#include <ostream>

#include "spillway/base/assert.h"

namespace spillway::transport {
namespace {

const char* name_of(Stream stream) {
  switch (stream) {
    case Stream::kControl: return "control message";
    case Stream::kValues: return "value";
    case Stream::kRequests: return "request";
    case Stream::kSums: return "sum";
    case Stream::kDevices: return "letter about devices";
  }
  return "message";
}

}  // namespace

std::string to_string(Tag tag) { return message("{} {}", name_of(tag.stream), tag.number); }

std::ostream& operator<<(std::ostream& out, Tag tag) { return out << to_string(tag); }

void Transport::check_peer(Rank peer, Tag tag) const {
  if (!peer.is_some() || peer.value() >= ranks_)
    throw Error("rank {} has {} for rank {}, and there are {} ranks", rank_, tag, peer, ranks_);
  if (peer == rank_) throw Error("rank {} has {} for itself", rank_, tag);
}

device::Event Transport::send(Rank to, Tag tag, device::DeviceSpan bytes) {
  check_peer(to, tag);
  SPILLWAY_ASSERT(bytes.size == Bytes() || bytes.data != nullptr);
  return do_send(to, tag, bytes);
}

device::Event Transport::receive(Rank from, Tag tag, device::DeviceSpan bytes) {
  check_peer(from, tag);
  SPILLWAY_ASSERT(bytes.size == Bytes() || bytes.data != nullptr);
  return do_receive(from, tag, bytes);
}

}  // namespace spillway::transport
