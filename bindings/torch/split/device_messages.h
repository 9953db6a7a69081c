#pragma once

#include <c10/core/Storage.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device_bytes.h"
#include "spillway/base/bytes.h"
#include "spillway/device/device.h"
#include "spillway/runtime/reporting/ranks_report.h"
#include "spillway/transport/nccl/nccl_transport.h"

namespace spillway::split {

/// Messages straight from the memory of one rank's GPU to that of another's, by NCCL. The host
/// waits for none of them: the default stream does, before the first operator that uses what has
/// come; what is in pieces may be used when all have come. Off until `start`, and where that finds
/// that a rank cannot. All threads give work to the default stream alone.
class DeviceMessages {
 public:
  class Transfer;  ///< device_transfer.h
  /// So many pieces of a message are under way at once, at most.
  static constexpr std::size_t kPieces = 8;

  /// `job`: all ranks of all shards. Shard k is ranks k·n to k·n + n - 1 of it, with n
  /// `ranks_of_shard`. Both outlive it.
  /// `least_paged`: storages of that GPU from that size on may move below their addresses.
  DeviceMessages(transport::Transport& job, std::uint32_t ranks_of_shard,
                 const DeviceBytes& devices, Bytes (*least_paged)(c10::Device));
  ~DeviceMessages();
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;

  // By all ranks of the job, where all have asked for the same before. They wait for one another.
  /// Says why the messages go by the host, where they do. Throws TransportError where NCCL fails.
  /// `adds_up`: `add_up` is to be called.
  void start(c10::Device gpu, bool adds_up);
  /// Nothing is under way.
  void stop();

  bool is_on() const { return is_on_.load(std::memory_order_acquire); }
  // Of such facts alone as sender and receiver both know.
  /// Whether a storage of that size and device goes so, or else by the host.
  bool carries(c10::Device device, Bytes size) const {
    return is_on() && device.is_cuda() && size > Bytes();
  }
  /// Whether one of that size may have pages, which messages must not see move.
  bool is_paged(Bytes size) const { return size >= least_paged_; }
  /// Pieces of such a one are as large, and storages of that size have no pages.
  Bytes piece() const { return piece_; }
  /// What its pieces take beside it while it is on its way; 0: it goes as it is.
  Bytes room_for(Bytes size) const {
    return is_paged(size) ? std::min(size, kPieces * piece_) : Bytes();
  }

  /// Of these messages and those of the job.
  std::unique_ptr<transport::Notifier> make_notifier() { return nccl_->make_notifier(); }

  /// The ranks of this one's number in all shards: their messages come behind what the default
  /// stream was given before, and end when they are done.
  transport::Transport& between_shards() { return *between_shards_; }
  /// Adds up the values of the same ranks, in an order of NCCL, behind what the default stream was
  /// given before. `number` tells those apart that are under way at once.
  device::Event add_up(std::uint64_t number, device::DeviceSpan values,
                       transport::SumElement element);
  device::DeviceSpan span_of(const c10::Storage& storage) const;

  // To and from ranks of this shard. What the default stream was given before comes before them.
  std::unique_ptr<Transfer> send(Rank to, transport::Tag tag, const c10::Storage& storage);
  std::unique_ptr<Transfer> receive(Rank from, transport::Tag tag, c10::Device device, Bytes size);
  // The same with the rank of this one's number in another shard.
  std::unique_ptr<Transfer> send_to_shard(Rank shard, transport::Tag tag,
                                          const c10::Storage& storage);
  std::unique_ptr<Transfer> receive_from_shard(Rank shard, transport::Tag tag,
                                               const c10::Storage& into);
  /// Before the host looks at what operators have made of such messages: waits for those that the
  /// default stream was to wait for, and tells which one has not come through; empty: all have. Any
  /// thread.
  std::string why_lost();

  /// So many bytes of a device have gone by the host.
  void add_staged(c10::Device device, Bytes size) {
    if (device.is_cuda()) staged_ += size.count();
  }
  void write(runtime::RankFigures& figures) const;

  // Before who gives the default stream something to do. Any thread.
  /// That reads the storage.
  void before_read(const c10::Storage& storage);
  /// That writes it. Returns what is to be written: where a message that reads it has no place yet,
  /// or pieces are left to be read, a copy, and the message has what was there.
  c10::Storage before_write(const c10::Storage& storage);

 private:
  /// What the default stream has not waited for.
  struct UnderWay {
    const c10::StorageImpl* storage = nullptr;  ///< To be compared.
    device::Event event;
    bool comes = false;
  };

  class BetweenShards;

  void agree_on_pieces(c10::Device gpu);
  Rank shard() const { return Rank(job_.rank().value() / ranks_of_shard_); }
  Rank rank_of_shard() const { return Rank(job_.rank().value() % ranks_of_shard_); }
  device::Event given_so_far() { return default_stream_->record(); }
  device::Event begin(Rank peer_in_job, transport::Tag tag, bool sends,
                      const c10::Storage& storage);
  device::Event note(const c10::Storage& storage, device::Event event, bool comes);
  void begin_reading(const c10::Storage& storage);
  void end_reading(const c10::Storage& storage);
  bool has_begun(const device::Event& event) const;
  void forget_ended_locked();
  bool follow(const c10::Storage& storage, bool is_written);

  transport::Transport& job_;
  const std::uint32_t ranks_of_shard_;
  const DeviceBytes& devices_;
  Bytes (*const least_paged_of_)(c10::Device);
  Bytes least_paged_, piece_;  ///< As on all ranks, from `start` on.
  std::atomic<bool> is_on_{false};
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Queue> default_stream_;
  std::unique_ptr<transport::NcclTransport> nccl_;
  std::unique_ptr<transport::Transport> between_shards_;
  std::unique_ptr<transport::NcclGroup> sums_of_shards_;

  std::atomic<std::uint64_t> sent_{0}, staged_{0};  ///< Bytes.
  std::mutex mutex_;
  std::vector<UnderWay> under_way_;
  std::vector<const c10::StorageImpl*> read_;  ///< Of which pieces are left to be read.
  std::vector<device::Event> used_;            ///< Received ones, not known to have come through.
};

}  // namespace spillway::split
