#include <map>
#include <string>

#include "spillway/base/error.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/profile/chrome_trace.h"

namespace spillway::cluster {
namespace {

/// Those of a measured rank, which has its operators in the lane of compute.
std::string_view lane_of(JobSpan::Lane lane) {
  switch (lane) {
    case JobSpan::Lane::kCompute: return profile::kActionLane;
    case JobSpan::Lane::kMessage: return profile::kSendLane;
    case JobSpan::Lane::kOut: return profile::kWriteOutLane;
    case JobSpan::Lane::kIn: return profile::kReadInLane;
    case JobSpan::Lane::kReduction: return profile::kReductionLane;
  }
  return {};
}

}  // namespace

std::string to_chrome_trace(const JobTiming& timing) {
  std::map<std::uint32_t, profile::StepTrace> by_rank;
  for (const JobSpan& span : timing.spans)
    by_rank[span.rank].spans.push_back({lane_of(span.lane),
                                        schedule::to_string(span.action),
                                        span.start_seconds,
                                        span.end_seconds - span.start_seconds,
                                        {}});
  std::vector<profile::StepTrace> traces;
  for (auto& [rank, trace] : by_rank) {
    trace.title = message("rank {}", rank);
    trace.source = profile::TraceSource::kPrediction;
    trace.process = profile::process_of_rank(rank, trace.source);
    traces.push_back(std::move(trace));
  }
  return profile::to_chrome_trace(traces);
}

}  // namespace spillway::cluster
