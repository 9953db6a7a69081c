#pragma once

#include "spillway/transport/transport.h"

namespace spillway::transport::survey {

/// It is told what the others have.
inline constexpr Rank kFirst(0);

/// Messages of this folder. It has the transport for itself while it is called.
enum class Topic : std::uint64_t { kPing, kSize, kLoad, kLinks, kTextSize, kText, kNumber };

inline Tag tag_of(Topic topic) { return {Stream::kControl, static_cast<std::uint64_t>(topic)}; }

inline void wait_for(const device::Event& event, Rank peer) {
  const device::Outcome outcome = event.wait();
  if (!outcome.succeeded())
    throw TransportError("a message between this rank and rank {} was lost: {}", peer.value(),
                         outcome.error);
}

inline void send_now(Transport& transport, Rank to, Topic topic, device::DeviceSpan bytes) {
  wait_for(transport.send(to, tag_of(topic), bytes), to);
}

inline void receive_now(Transport& transport, Rank from, Topic topic, device::DeviceSpan bytes) {
  wait_for(transport.receive(from, tag_of(topic), bytes), from);
}

}  // namespace spillway::transport::survey
