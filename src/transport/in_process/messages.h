#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/device/device_span.h"
#include "spillway/device/event.h"
#include "spillway/transport/in_process.h"

namespace spillway::transport {

/// How one side of a message came out. Written with the lock of the world, read without.
struct MessageEnd {
  std::atomic<bool> is_done{false};
  device::Outcome outcome;  ///< Read once `is_done`.
  TimePoint at;             ///< The same.
};

/// Messages between ranks of one process: what was posted, what is on its way, and how long that
/// takes. All with the lock of the world.
class Messages {
 public:
  explicit Messages(const InProcessOptions& options) : options_(options) {}

  struct Name {
    Rank from;
    Rank to;
    Tag tag;
    auto operator<=>(const Name&) const = default;
  };
  using End = std::shared_ptr<MessageEnd>;

  /// `delay`: what chance adds. Throws Error for a name in use.
  End send(const Name& name, device::DeviceSpan bytes, TimePoint now, Duration delay);
  End receive(const Name& name, device::DeviceSpan bytes, TimePoint now);

  /// When the next message arrives; max: none is on its way.
  TimePoint next_arrival() const;
  /// A rank one of whose messages has ended, and of which stream it was: for its notifiers.
  struct News {
    Rank rank;
    Stream stream;
  };
  /// Ends those that have arrived by now.
  std::vector<News> arrive(TimePoint now);

  /// Ends what can no longer come about.
  std::vector<News> note_death(Rank dead, TimePoint now);
  /// Ends all with `reason`.
  void end_all(const std::string& reason, TimePoint now);
  /// A message that was sent and never received, in words; empty: there is none.
  std::string unreceived() const;

 private:
  struct Message {
    End sent, received;           ///< None: not posted so far.
    std::vector<std::byte> copy;  ///< Of what was sent, where sends do not wait.
    device::DeviceSpan source, target;
    Duration delay{0};
    bool is_under_way = false;
    bool has_arrived = false;
  };
  using All = std::map<Name, Message>;

  void start(const Name& name, Message& message, TimePoint now);
  bool end_if_complete(All::iterator at, TimePoint now);
  static void finish(const End& end, TimePoint now, const std::string& error = {});
  bool is_dead(Rank rank) const { return dead_.contains(rank); }

  const InProcessOptions options_;
  All all_;
  std::set<std::pair<TimePoint, Name>> under_way_;
  std::map<std::pair<Rank, Rank>, TimePoint> link_free_;
  std::set<Rank> dead_;
};

}  // namespace spillway::transport
