#include "spillway/split/shards.h"

#include <algorithm>
#include <cstdlib>

#include "spillway/base/error.h"
#include "spillway/pipeline/agreement/process_facts.h"
#include "spillway/split/refusals.h"
#include "spillway/transport/group.h"

namespace spillway::split {
namespace {

/// Arguments differ between shards where the user wants them to.
pipeline::JobFacts facts_between_shards(pipeline::JobFacts facts) {
  std::erase_if(facts, [](const auto& fact) { return fact.first == pipeline::kArgumentsFact; });
  if (const char* const words = std::getenv("SPILLWAY_SHARD_WORDS"))
    facts.emplace_back("the list of words behind spillway run", words);
  return facts;
}

}  // namespace

Shards::Shards(transport::MpiTransport& transport, const runtime::Settings& settings,
               const pipeline::JobFacts& facts)
    : whole_(transport),
      shards_(settings.shards),
      order_(settings.gradients == runtime::GradientOrder::kFast ? allreduce::Order::kFast
                                                                 : allreduce::Order::kOrdered) {
  pipeline::JobOptions options;
  options.check_control = settings.check_control;
  if (shards_ == 1) {
    options.hosts = whole_.job().hosts;
    job_ = std::make_unique<pipeline::Job>(whole_, facts, options);
    return;
  }
  own_group_ = transport::make_group(whole_, ranks_of_shard());
  exchange_group_ = transport::make_group(whole_, ranks_of_exchange());
  pipeline::JobOptions between = options;
  between.check_control = false;  // What of the calls has to be equal, ShardExchange compares.
  options.hosts = names_of(ranks_of_shard());
  between.hosts = names_of(ranks_of_exchange());
  agree_on(*own_group_, facts, options);
  agree_on(*exchange_group_, facts_between_shards(facts), between);
  job_ = std::make_unique<pipeline::Job>(*own_group_, pipeline::JobFacts(), options);
  exchange_job_ = std::make_unique<pipeline::Job>(*exchange_group_, pipeline::JobFacts(), between);
}

/// Where one group finds a difference, the others end, too.
void Shards::agree_on(transport::Transport& group, const pipeline::JobFacts& facts,
                      const pipeline::JobOptions& options) {
  std::string objection;
  try {
    pipeline::compare_facts(group, facts, options);
  } catch (const ConfigError& error) {
    objection = error.what();
  }
  agree_on_refusals(whole_, whole_.job().hosts, objection);
}

/// Of hosts: a job names its ranks by their numbers in the group.
std::vector<std::string> Shards::names_of(const std::vector<Rank>& members) const {
  std::vector<std::string> names;
  for (const Rank rank : members)
    names.push_back(message("{}, shard {}", whole_.job().hosts[rank.value()],
                            rank.value() / (whole_.ranks() / shards_)));
  return names;
}

std::vector<Rank> Shards::ranks_of_shard() const {
  const std::uint32_t ranks = whole_.ranks() / shards_;
  const std::uint32_t first = whole_.rank().value() / ranks * ranks;
  std::vector<Rank> members;
  for (std::uint32_t i = 0; i < ranks; ++i) members.emplace_back(first + i);
  return members;
}

std::vector<Rank> Shards::ranks_of_exchange() const {
  const std::uint32_t ranks = whole_.ranks() / shards_;
  std::vector<Rank> members;
  for (std::uint32_t shard = 0; shard < shards_; ++shard)
    members.emplace_back(shard * ranks + whole_.rank().value() % ranks);
  return members;
}

std::optional<ExchangeGroup> Shards::exchange() {
  if (!exchange_job_) return std::nullopt;
  allreduce::SumOptions sums{.order = order_, .factor = 1.0 / shards_};
  for (const Rank rank : ranks_of_exchange())
    sums.hosts.push_back(whole_.job().hosts[rank.value()]);
  return ExchangeGroup{*exchange_group_, *exchange_job_, std::move(sums)};
}

}  // namespace spillway::split
