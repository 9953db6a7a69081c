#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/runtime/run.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// Traces of several ranks, and what is to be said of them.
struct TracesOfRanks {
  struct Placed {
    profile::StepTrace trace;
    TimePoint begin;  ///< By the clock of the rank that has them.
  };

  std::vector<Placed> traces;
  std::uint64_t ranks = 0;  ///< That have any.
  Duration uncertainty{};   ///< Of the clocks of their ranks, at most.
  std::string remarks;      ///< "; rank 3 has no whole step"
};

/// Of this rank alone, whose host's is the first. `name`: "rank 3".
TracesOfRanks traces_of(std::vector<runtime::RecordedTrace> mine, const std::string& name);

/// Adds those of all ranks, by the clock of the first one, which gets them; others give theirs, and
/// keep none. Each rank's clock is set against the first one's by the quickest of some questions
/// and answers, to half of the time that these took; hosts' wall clocks play no part. What cannot
/// be had is left out, and the remarks say so. All ranks of the transport at once, before the job
/// ends. Others than the first one throw TransportError where that is lost.
void gather_traces(transport::Transport& transport, pipeline::Job& job, TracesOfRanks& traces,
                   const std::function<std::string(Rank)>& name_of, const Clock& clock);

/// On one time axis, of a job of so many ranks. `summary`: of the first one.
runtime::RanksTrace joined(TracesOfRanks traces, const std::string& summary, std::uint32_t ranks);

}  // namespace spillway::split
