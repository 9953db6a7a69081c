#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/base/rank.h"
#include "spillway/device/device_span.h"
#include "spillway/device/event.h"

namespace spillway::transport {

/// What a message is about. Those of one stream have nothing to do with those of another.
enum class Stream : std::uint8_t {
  kControl,   ///< What ranks agree on: settings at the start, hashes, the end.
  kValues,    ///< What one rank has computed and another one needs.
  kRequests,  ///< Questions for bytes that only their asker knows of, and the answers.
  kSums,      ///< Parts of gradients that are added up.
  kDevices,   ///< What comes next between the devices of ranks.
};
inline constexpr std::size_t kStreams = 5;

/// Names a message between a sender and a receiver, which both work it out for themselves. Another
/// message may have the same tag once both have seen the end of this one.
struct Tag {
  Stream stream = Stream::kControl;
  std::uint64_t number = 0;

  auto operator<=>(const Tag&) const = default;
};

std::string to_string(Tag tag);  ///< "value 17"
std::ostream& operator<<(std::ostream& out, Tag tag);

/// The job cannot go on: a rank has ended it, has died, or all wait for one another.
class TransportError : public Error {
 public:
  using Error::Error;
};

/// Wakes one thread. Made by a transport, which notifies it whenever one of the rank's messages has
/// ended, so that a thread can wait for those and for other threads at once:
///   while (!may_go_on()) notifier->wait();
class Notifier {
 public:
  virtual ~Notifier() = default;

  /// Any thread. Several at once count as one.
  virtual void notify() = 0;
  /// Sleeps until there was a notification that no wait has taken, takes it, and returns true;
  /// false where `until` passes first. Throws TransportError where the job ends. One thread.
  virtual bool wait(TimePoint until = TimePoint::max()) = 0;
};

/// Carries bytes between the ranks of a job. Neither call waits: what they return is done when the
/// bytes of the message may be used (received) or changed (sent), and has an error where the
/// message did not come through. A rank may not wait for a message to itself. Any thread.
///   const Event arrived = transport.receive(Rank(0), {Stream::kValues, 17}, bytes);
class Transport {
 public:
  Transport(Rank rank, std::uint32_t ranks) : rank_(rank), ranks_(ranks) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  Rank rank() const { return rank_; }
  std::uint32_t ranks() const { return ranks_; }

  /// Sends `bytes`, which stay as they are until the event is done. Throws TransportError where the
  /// job has ended, and Error for a rank that does not exist, its own rank, or a tag in use.
  device::Event send(Rank to, Tag tag, device::DeviceSpan bytes);
  /// Receives exactly so many bytes; a message of another size ends with an error on both sides or
  /// on this one. Throws as `send`.
  device::Event receive(Rank from, Tag tag, device::DeviceSpan bytes);

  /// Is notified of the ends of messages of that stream; none: of all streams, and of messages that
  /// the transport itself exchanges.
  virtual std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream = std::nullopt) = 0;

  /// Ends the job on all ranks, which are told `reason`. Does not return: throws TransportError
  /// where the ranks are threads, and ends the process where they are processes.
  [[noreturn]] virtual void abort(const std::string& reason) = 0;

 protected:
  void check_peer(Rank peer, Tag tag) const;

 private:
  virtual device::Event do_send(Rank to, Tag tag, device::DeviceSpan bytes) = 0;
  virtual device::Event do_receive(Rank from, Tag tag, device::DeviceSpan bytes) = 0;

  const Rank rank_;
  const std::uint32_t ranks_;
};

}  // namespace spillway::transport
