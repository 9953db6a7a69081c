#include "rank_figures.h"

#include <cstdint>
#include <string>
#include <utility>

#include "first_rank.h"
#include "spillway/base/clock.h"
#include "trace_exchange.h"

namespace spillway::split {

using runtime::RecordedTrace;

std::vector<runtime::RanksReport::Row> gather_rows(transport::Transport& transport,
                                                   pipeline::Job& job, ShardExchange* shards,
                                                   const pipeline::Placement& placement,
                                                   const runtime::RankFigures& mine) {
  std::vector<runtime::RankFigures> all =
      gathered(transport, kFigures, mine, [&](const device::Event& event, Rank peer) {
        job.wait(event, peer, [] { return std::string("the figures of a rank at the end"); });
      });
  if (shards != nullptr && transport.rank() == kFirst) all = shards->gather(std::move(all));
  std::vector<runtime::RanksReport::Row> rows;
  for (const runtime::RankFigures& figures : all) {
    const Rank rank(static_cast<std::uint32_t>(rows.size() % transport.ranks()));
    rows.push_back({{}, placement.stages_of(rank), figures});
  }
  return rows;
}

runtime::RanksTrace gather_trace(transport::Transport& transport, pipeline::Job& job,
                                 ShardExchange* shards, RankLog* log,
                                 std::vector<runtime::RecordedTrace> mine, bool joins) {
  if (log != nullptr) log->write(mine.front());
  const std::uint32_t count = shards != nullptr ? shards->shards() : 1;
  const std::uint32_t first = shards != nullptr ? shards->shard().value() * transport.ranks() : 0;
  std::uint32_t process = first + transport.rank().value();
  for (RecordedTrace& one : mine) {
    one.trace.process = profile::process_of_rank(process, one.trace.source);
    process += count * transport.ranks();  // GPUs come behind all ranks.
  }
  if (!joins) {
    profile::keep_whole_arrows({&mine.front().trace, 1});
    return runtime::on_one_axis(std::move(mine));
  }
  const auto name_of = [&](Rank rank) { return message("rank {}", first + rank.value()); };
  const SteadyClock clock;
  const std::string summary = mine.front().summary;
  const bool is_first_of_job = transport.rank() == kFirst && first == 0;
  mine.front().has_whole_step |= is_first_of_job;  // It shows what there is.
  TracesOfRanks all = traces_of(std::move(mine), name_of(transport.rank()));
  gather_traces(transport, job, all, name_of, clock);
  if (shards != nullptr && transport.rank() == kFirst) shards->gather(all, clock);
  if (!is_first_of_job) return {};
  return joined(std::move(all), summary, count * transport.ranks());
}

}  // namespace spillway::split
