#pragma once

#include <vector>

#include "rank_log.h"
#include "shard_exchange.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/pipeline/ownership/placement.h"
#include "spillway/runtime/reporting/ranks_report.h"
#include "spillway/runtime/run.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

// At the end of a job, before that ends, all ranks give the first one what they know, once.
// `shards`: null where there is one. They throw TransportError where a rank is lost.

/// A row of each rank, without its host, on the first one; nothing on others.
std::vector<runtime::RanksReport::Row> gather_rows(transport::Transport& transport,
                                                   pipeline::Job& job, ShardExchange* shards,
                                                   const pipeline::Placement& placement,
                                                   const runtime::RankFigures& mine);

/// Adds what `log` knows, or null, to the first of the traces of this rank, its host's. Where it
/// `joins` all ranks do, and the first one of the job gets all on one time axis, others none.
runtime::RanksTrace gather_trace(transport::Transport& transport, pipeline::Job& job,
                                 ShardExchange* shards, RankLog* log,
                                 std::vector<runtime::RecordedTrace> mine, bool joins);

}  // namespace spillway::split
