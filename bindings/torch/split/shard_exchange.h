#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "effort.h"
#include "spillway/base/bytes.h"
#include "spillway/runtime/reporting/ranks_report.h"
#include "spillway/runtime/runtime.h"
#include "spillway/split/shards.h"

namespace spillway::split {

/// Bytes in one piece, of one of the storages of an effort.
struct StorageRange {
  std::size_t storage = 0;  ///< Its number among them.
  std::uint64_t begin = 0;
  Bytes size;
};

/// A parameter, as all shards know it.
struct ExchangedParameter {
  std::uint64_t number = 0;  ///< In the order in which forward has first used them.
  std::string what;          ///< "float [32, 64]", for people.
};

/// Exchanges bytes with the ranks of the same number in other shards, whose programs ask for the
/// same exchanges in the same order. Each of these is announced when the program asks for it, which
/// is before it can begin as a rule: where another shard asks for another one, or has ended, a
/// sentence ends the job. Methods are for the program's thread, efforts for the executor's.
class ShardExchange {
 public:
  static constexpr std::size_t kMostParameters = 64;  ///< Of one exchange.

  ShardExchange(runtime::Runtime& runtime, ExchangeGroup group);
  ~ShardExchange();
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  Rank shard() const { return group_.transport.rank(); }
  std::uint32_t shards() const { return group_.transport.ranks(); }
  pipeline::Job& job() { return group_.job; }

  /// Gives gradients of these parameters, which lie in the ranges, their mean over all shards.
  std::unique_ptr<Effort> mean_of(std::uint64_t step,
                                  const std::vector<ExchangedParameter>& parameters,
                                  allreduce::Element element, std::vector<StorageRange> ranges);
  /// Gives a storage of a parameter, of that size, the bytes that it has in shard 0.
  std::unique_ptr<Effort> copy_of_first(std::uint64_t step, const ExchangedParameter& parameter,
                                        Bytes size);

  /// The shard that the oldest exchange under way waits for; none: there is none. Any thread.
  Rank waits_for() const { return waits_for_.load(); }
  /// On the executor's thread, which has advanced its efforts. Whether another one is waited for.
  bool note_waits();

  /// The program has ended: waits until those of all shards have. Nothing when called again.
  void end(std::uint64_t steps);
  /// Behind `end`: what ranks of the first shard get from those of the others, by shard, their own
  /// first. Nothing on others. All give as many.
  std::vector<runtime::RankFigures> gather(std::vector<runtime::RankFigures> mine);

 private:
  /// The first message of an exchange.
  struct Announcement {
    std::uint64_t kind = 0;
    std::uint64_t step = 0;
    std::uint64_t element = 0;
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    std::array<std::uint64_t, kMostParameters> parameters{};

    bool operator==(const Announcement&) const = default;
  };
  struct End {
    std::uint64_t exchanges = 0;
    std::uint64_t steps = 0;
  };
  struct Other {
    Rank shard;
    End end;
    device::Event ended, told;
  };
  class Exchange;
  class Mean;
  class CopyOfFirst;

  Announcement announce(std::uint64_t kind, std::uint64_t step, std::uint64_t element, Bytes size,
                        const std::vector<ExchangedParameter>& parameters);
  bool may_begin(std::uint64_t number, Bytes size) const;
  std::string words_locked(const Announcement& announcement, std::size_t at, bool with_size) const;
  [[noreturn]] void end_apart();
  [[noreturn]] void end_alone(const Other& other);

  runtime::Runtime& runtime_;
  const ExchangeGroup group_;
  std::uint64_t next_ = 0;  ///< Number of an exchange.
  std::vector<std::unique_ptr<Other>> others_;
  End mine_;
  bool has_ended_ = false;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Exchange*> left_;               ///< That have not ended, by number.
  std::unordered_map<std::uint64_t, std::string> known_;  ///< Parameters, for people.

  // Of the executor's thread.
  std::map<std::uint64_t, Exchange*> begun_;
  std::map<std::uint64_t, Bytes> under_way_;  ///< Bytes beside the budget.
  std::atomic<Rank> waits_for_{Rank()};
};

}  // namespace spillway::split
