#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "announcements.h"
#include "device_bytes.h"
#include "device_messages.h"
#include "effort.h"
#include "spillway/base/bytes.h"
#include "spillway/runtime/reporting/ranks_report.h"
#include "spillway/runtime/runtime.h"
#include "spillway/split/shards.h"
#include "trace_exchange.h"

namespace spillway::split {

/// Bytes in one piece, of one of the storages of an effort.
struct StorageRange {
  std::size_t storage = 0;  ///< Its number among them.
  std::uint64_t begin = 0;
  Bytes size;
};

/// A parameter, as all shards know it.
struct ExchangedParameter {
  ParameterName name;
  std::string what;           ///< "Float [32, 64]", for people.
  std::uint64_t forward = 0;  ///< Before which it was made, in this shard.
};

/// "parameter Float [32, 64], number 3 of 5"
std::string to_string(const ExchangedParameter& parameter);

/// Exchanges bytes with the ranks of the same number in other shards, whose programs ask for the
/// same means in the same order, and use the same parameters before these, in any order. Each
/// exchange is announced when the program asks for it, which is before it can begin as a rule:
/// where another shard asks for another one, or has ended, a sentence ends the job. Methods are for
/// the program's thread, efforts for the executor's.
class ShardExchange {
 public:
  static constexpr std::size_t kMostParameters = Announcement::kMostParameters;

  /// The other ones outlive it.
  ShardExchange(runtime::Runtime& runtime, ExchangeGroup group, const DeviceBytes& devices,
                DeviceMessages& between_devices);
  ~ShardExchange();
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  Rank shard() const { return group_.transport.rank(); }
  std::uint32_t shards() const { return group_.transport.ranks(); }
  pipeline::Job& job() { return group_.job; }
  allreduce::Order order() const { return group_.sums.order; }

  // Asked for by all ranks of a shard. `is_here`: by those that keep the bytes, of which `keeper`
  // is the first. Null for others.
  /// Gives gradients of these parameters, which lie in the ranges, all on one device, their mean
  /// over all shards.
  std::unique_ptr<Effort> mean_of(std::uint64_t step,
                                  const std::vector<ExchangedParameter>& parameters,
                                  allreduce::Element element, std::vector<StorageRange> ranges,
                                  c10::Device device, Rank keeper, bool is_here);
  /// Gives a storage of a parameter, of that size, the bytes that it has in shard 0.
  std::unique_ptr<Effort> copy_of_first(std::uint64_t step, const ExchangedParameter& parameter,
                                        Bytes size, c10::Device device, Rank keeper, bool is_here);

  /// The shard that the oldest exchange under way waits for; none: there is none. Any thread.
  Rank waits_for() const { return waits_for_.load(); }
  /// On the executor's thread, which has advanced its efforts. Whether another one is waited for.
  bool note_waits();

  /// The program has ended, and asks for nothing more; what it has asked for goes on. Nothing when
  /// called again.
  void tell_end(std::uint64_t steps);
  /// Behind that, and behind all that was asked for: waits until all shards have ended.
  void wait_for_ends();
  /// Behind `wait_for_ends`: what ranks of the first shard get from those of the others, by shard,
  /// their own first. Nothing on others. All give as many.
  std::vector<runtime::RankFigures> gather(std::vector<runtime::RankFigures> mine);
  /// The same for traces, see gather_traces.
  void gather(TracesOfRanks& traces, const Clock& clock);

 private:
  class Exchange;
  class Mean;
  class DeviceMean;
  class CopyOfFirst;

  /// Of this shard: what is announced, and which one that is.
  struct Announced {
    Announcement what;
    std::uint64_t number = 0;
    std::uint64_t mean = 0;  ///< Which mean it is, or before which one all shards ask for the copy.
  };
  Announced announce(Announcement what, const std::vector<ExchangedParameter>& parameters);
  std::unique_ptr<Effort> entered(std::unique_ptr<Exchange> exchange);
  bool may_begin(const Exchange& exchange) const;
  Bytes room_of_sum() const;
  std::string name_locked(const ParameterName& name) const;
  std::string words_locked(const Announcement& announcement, std::size_t at, bool is_whole) const;
  [[noreturn]] void end_apart();
  [[noreturn]] void end_alone(Rank other);

  runtime::Runtime& runtime_;
  const DeviceBytes& devices_;
  DeviceMessages& between_devices_;
  const ExchangeGroup group_;
  std::uint64_t means_ = 0;
  bool has_ended_ = false;

  mutable std::mutex mutex_;
  Announcements announcements_;
  std::map<std::uint64_t, Exchange*> left_;     ///< That have not ended, by number.
  std::map<ParameterName, std::string> known_;  ///< Types and shapes, for people.

  // Of the executor's thread.
  std::map<std::uint64_t, Exchange*> begun_;
  std::map<std::uint64_t, Bytes> under_way_;  ///< Bytes beside the budget.
  std::atomic<Rank> waits_for_{Rank()};
};

}  // namespace spillway::split
