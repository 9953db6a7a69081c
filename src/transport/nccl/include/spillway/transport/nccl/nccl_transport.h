#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/device/device.h"
#include "spillway/transport/transport.h"

namespace spillway::transport {

struct NcclOptions {
  /// NCCL, as a path or a name of its library. Empty: the one that is in the process already, which
  /// is the trainer's; else what the system finds by its name.
  std::string library = {};
  Duration start_limit = std::chrono::minutes(5);  ///< How late a rank may come to start and end.
  /// Work of the device that takes so long has its other ranks asked whether they are there,
  Duration patience = std::chrono::seconds(5);
  Duration silence = std::chrono::seconds(10);  ///< and who does not answer for so long is gone.
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< Of these two.
};

/// What the elements of a sum are.
enum class SumElement : std::uint8_t { kFloat32, kFloat64, kFloat16, kBfloat16, kInt32, kInt64 };

Bytes size_of(SumElement element);

/// Some ranks of the job, counted from 0 in the order in which they were named, that work together
/// on device memory. All of them call the same, with the same `number`, which tells operations of
/// the group apart that are under way at once; in whichever order among those and messages, as the
/// ranks agree on one. `ready` and the events are as in NcclTransport; memory lies on its device.
/// Dies before the transport. Any thread.
class NcclGroup {
 public:
  virtual ~NcclGroup() = default;

  virtual Rank rank() const = 0;
  virtual std::uint32_t ranks() const = 0;

  /// Adds up `values` of all, in an order that NCCL chooses: by size, links and release. So bits
  /// are not those of another order, and the same on all ranks of one run.
  virtual device::Event all_reduce(std::uint64_t number, device::DeviceSpan values,
                                   SumElement element, const device::Event& ready) = 0;
  /// The same, of which rank r gets the r-th part. `from`: `ranks()` times as many bytes as `to`,
  /// which may be its own part of it.
  virtual device::Event reduce_scatter(std::uint64_t number, device::DeviceSpan from,
                                       device::DeviceSpan to, SumElement element,
                                       const device::Event& ready) = 0;
  /// `to`: `ranks()` times as many bytes as `from`, which may be its own part of it.
  virtual device::Event all_gather(std::uint64_t number, device::DeviceSpan from,
                                   device::DeviceSpan to, const device::Event& ready) = 0;
  virtual device::Event broadcast(std::uint64_t number, Rank root, device::DeviceSpan bytes,
                                  const device::Event& ready) = 0;
};

/// The ranks of a host transport, with messages between the memories of their devices, too. Bytes
/// of the host go by the host transport, as before; a message has both its ends on devices, or both
/// on hosts. Tags, errors and notifiers are those of every transport.
///
/// Nothing waits for the device: what is sent is read once `ready` is reached, and what is received
/// is written once `ready` is. Memory of messages has to be there (mapped, not moved) until their
/// events are done; NCCL keeps nothing of it.
class NcclTransport : public Transport {
 public:
  using Transport::receive;
  using Transport::send;
  using Transport::Transport;

  /// `ready`: an event of a queue of a GPU, or of a message of this transport; others have to be
  /// done.
  device::Event send(Rank to, Tag tag, device::DeviceSpan bytes, const device::Event& ready);
  device::Event receive(Rank from, Tag tag, device::DeviceSpan bytes, const device::Event& ready);

  /// The moment of the device at which a message or an operation of a group ends, for its queues to
  /// wait for; none as long as its ranks have not all asked for it, and for other events. A queue
  /// must not be given the event of the message itself, unless that is done.
  virtual std::optional<device::Event> moment_of(const device::Event& event) const = 0;

  /// All ranks of the job call it, with the same groups in the same order, while nothing of this
  /// transport is under way: at the start. Null for a rank that is in none. Throws Error for a rank
  /// that does not exist or stands in two of them, and as make_nccl_transport.
  virtual std::unique_ptr<NcclGroup> make_groups(const std::vector<std::vector<Rank>>& groups) = 0;

 private:
  virtual device::Event do_send_ready(Rank to, Tag tag, device::DeviceSpan bytes,
                                      const device::Event& ready) = 0;
  virtual device::Event do_receive_ready(Rank from, Tag tag, device::DeviceSpan bytes,
                                         const device::Event& ready) = 0;
};

/// All ranks of `host` call it, each with a GPU of its own, and wait for one another. Both outlive
/// the transport, whose end waits for all ranks to come to theirs. Throws, with the same sentence
/// on all ranks: UnsupportedError where NCCL is not there, too old, or of different releases;
/// ConfigError where two ranks have one GPU; TransportError where a rank does not come or NCCL
/// fails.
std::unique_ptr<NcclTransport> make_nccl_transport(Transport& host, device::Device& device,
                                                   const NcclOptions& options = {});

/// What there is of NCCL, as a transport would find it.
struct NcclFacts {
  std::string library;  ///< Path.
  std::string version;  ///< "2.28.9"; empty: see `reason`.
  std::string reason;   ///< Why it cannot be used, with the way to mend it; empty: it can.
};

/// Never throws.
NcclFacts nccl_facts(const std::string& library = {});

}  // namespace spillway::transport
