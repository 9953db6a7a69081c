#pragma once

#include <bitset>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spillway/device/device_span.h"
#include "spillway/transport/message_event.h"
#include "spillway/transport/transport.h"

namespace spillway::transport::mpi {

/// Of the messages that a rank sends, or of those that it receives.
struct Name {
  Rank peer;
  Tag tag;
  auto operator<=>(const Name&) const = default;
};

using EventPointer = std::shared_ptr<MessageEvent>;

/// Bytes that come as messages of their own, with this tag of MPI.
struct DataReceive {
  Name name;
  Bytes size;
  std::int32_t data_tag = 0;
  std::byte* target = nullptr;  ///< Null: nobody wants them.
};

/// Which message belongs to which receive: by sender and tag, in whichever order both come. Knows
/// nothing of MPI. The owner locks.
class Matching {
 public:
  explicit Matching(Rank self) : self_(self) {}

  /// A message from `name.peer` that has told of itself: with its bytes, or with the tag of MPI
  /// that they come with. Throws TransportError for a name whose former message nobody has seen the
  /// end of.
  struct Arrival {
    Name name;
    Bytes size;
    std::optional<std::int32_t> data_tag;
    std::span<const std::byte> bytes;
  };
  /// What has to be received now; none: nothing, or nothing yet.
  std::optional<DataReceive> arrive(const Arrival& arrival);

  /// Posts a receive; done already where the message is here, or its sender has left. Throws Error
  /// for a name in use.
  std::pair<EventPointer, std::optional<DataReceive>> receive(const Name& name,
                                                              device::DeviceSpan bytes);
  void end_receive(const Name& name, const std::string& error);

  /// Throws Error for a name in use.
  EventPointer start_send(const Name& name);
  void end_send(const Name& name, const std::string& error);

  /// Nothing more comes from `peer`; receives that wait for it end with an error.
  void note_left(Rank peer);
  std::size_t left_count() const { return left_.size(); }
  bool has_left(Rank peer) const { return left_.contains(peer); }
  /// Ends all with `reason`.
  void end_all(const std::string& reason);

  /// Whether a receive waits for its message.
  bool is_expecting() const { return !posted_.empty(); }
  /// Streams of which a send or receive has ended since the call before this one.
  using News = std::bitset<kStreams>;
  News take_news() { return std::exchange(news_, {}); }

  /// Takes the messages that nobody has received; the bytes of some of them are still to come.
  struct Unreceived {
    std::vector<std::string> names;
    std::vector<DataReceive> data;
  };
  Unreceived take_unreceived();

 private:
  struct Posted {
    EventPointer event;
    device::DeviceSpan bytes;
    bool is_matched = false;
  };
  struct Early {
    Bytes size;
    std::optional<std::int32_t> data_tag;
    std::vector<std::byte> bytes;
  };

  void end_vain_receive(const Name& name);
  std::string incoming(const Name& name) const;
  std::string outgoing(const Name& name) const;
  std::optional<DataReceive> match(const Name& name, Posted& posted, const Arrival& arrival);

  const Rank self_;
  std::map<Name, Posted> posted_;
  std::map<Name, Early> early_;
  std::map<Name, EventPointer> sent_;
  std::set<Rank> left_;
  News news_;
};

}  // namespace spillway::transport::mpi
