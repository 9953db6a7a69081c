#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/allreduce/sum.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/transport/mpi.h"

namespace spillway::split {

/// The ranks that have this one's number in their shards: rank k of the group is that of shard k.
struct ExchangeGroup {
  transport::Transport& transport;
  pipeline::Job& job;
  allreduce::SumOptions sums{};
};

/// A job whose ranks train programs with data of their own (`--shards`): shard k of n ranks each is
/// ranks k·n to k·n + n - 1. With one shard it is all ranks.
class Shards {
 public:
  /// Compares the facts of all ranks; the program's arguments within a shard as they are, between
  /// shards as the user has given them. Waits for all ranks. Throws ConfigError with the same
  /// sentence on all of them. `transport` outlives it.
  Shards(transport::MpiTransport& transport, const runtime::Settings& settings,
         const pipeline::JobFacts& facts);

  std::uint32_t count() const { return shards_; }
  /// Which one is this rank's.
  std::uint32_t number() const { return whole_.rank().value() / (whole_.ranks() / shards_); }

  // The ranks of this rank's shard.
  transport::Transport& transport() { return own_group_ ? *own_group_ : whole_; }
  pipeline::Job& job() { return *job_; }

  /// Nothing with one shard.
  std::optional<ExchangeGroup> exchange();

 private:
  std::vector<Rank> ranks_of_shard() const;
  std::vector<Rank> ranks_of_exchange() const;
  std::vector<std::string> names_of(const std::vector<Rank>& members) const;
  void agree_on(transport::Transport& group, const pipeline::JobFacts& facts,
                const pipeline::JobOptions& options);

  transport::MpiTransport& whole_;
  const std::uint32_t shards_;
  const allreduce::Order order_;
  std::unique_ptr<transport::Transport> own_group_, exchange_group_;
  std::unique_ptr<pipeline::Job> job_, exchange_job_;
};

}  // namespace spillway::split
