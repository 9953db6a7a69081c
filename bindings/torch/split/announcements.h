#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "parameter_order.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// What a shard asks of all others.
struct Announcement {
  static constexpr std::size_t kMostParameters = 64;
  enum class Kind : std::uint64_t {
    kMean,  ///< Of gradients.
    kCopy,  ///< Of a parameter, as it is in the first shard.
    kEnd,   ///< Nothing any more: the program has ended.
  };

  Kind kind = Kind::kMean;
  std::uint64_t step = 0;  ///< From 1 on; of the end, how many there were.
  std::uint64_t element = 0;
  std::uint64_t bytes = 0;
  std::uint64_t keeper = 0;  ///< Rank of the shard that keeps them, or the first of these.
  std::uint64_t count = 0;
  std::array<ParameterName, kMostParameters> parameters{};

  bool operator==(const Announcement&) const = default;
};

/// Tells the ranks of the same number in other shards what this one asks for, and hears what they
/// do, each in its order. Means of all shards come in one order; data may have a shard use its
/// parameters for the first time in another order than others. One thread at a time.
class Announcements {
 public:
  /// Messages of the group from `first` on.
  Announcements(transport::Transport& group, std::uint64_t first);

  /// Returns which one it is of this shard.
  std::uint64_t tell(const Announcement& announcement);
  /// Takes in what has come. Throws TransportError for one that is lost.
  void hear();

  struct Heard {
    Announcement what;
    std::uint64_t place = 0;  ///< Which one it is of its shard.
  };
  /// The mean of that number, or the use of the parameter, that another shard has told of; or the
  /// use of one that was made alike, among another number of such ones.
  std::optional<Heard> heard_of(Rank other, std::uint64_t mean, const Announcement& mine) const;
  /// This shard has one that is equal.
  void match(Rank other, std::uint64_t mean, const Announcement& mine);
  /// This shard compares that mean with nobody: another rank keeps it.
  void skip_mean(std::uint64_t mean);
  /// How many means another shard has told of.
  std::uint64_t means_of(Rank other) const { return of(other).means; }
  const std::optional<Announcement>& latest_mean_of(Rank other) const {
    return of(other).latest_mean;
  }
  /// What it has told at its end.
  const std::optional<Announcement>& end_of(Rank other) const { return of(other).end; }
  /// Its next message; nothing behind its end.
  const device::Event& next_of(Rank other) const { return of(other).event; }
  /// All that this one has told has left, or the messages that have not.
  std::vector<std::pair<Rank, device::Event>> unsent() const;

 private:
  struct Other {
    Announcement buffer;
    device::Event event;
    std::uint64_t heard = 0, means = 0;
    std::map<std::uint64_t, Heard> means_heard;  ///< By number.
    std::set<std::uint64_t> skipped_means;       ///< Means that have not come.
    struct FirstUse {
      std::uint64_t step = 0, bytes = 0, keeper = 0, place = 0;
    };
    std::multimap<ParameterName, FirstUse> uses_heard;
    std::optional<Announcement> latest_mean, end;
  };
  struct Told {
    Announcement announcement;
    std::vector<std::pair<Rank, device::Event>> events;
  };

  const Other& of(Rank other) const { return *others_[other.value()]; }
  void listen_to(Rank other);
  void take(Other& from);

  transport::Transport& group_;
  const std::uint64_t first_;
  std::uint64_t told_count_ = 0;
  std::list<Told> told_;                        ///< Which may not have left.
  std::vector<std::unique_ptr<Other>> others_;  ///< By shard; null: this one.
};

}  // namespace spillway::split
