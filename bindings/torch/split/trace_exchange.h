#pragma once

#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/runtime/run.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// The traces of all ranks on the time axis of the first one, which gets them; others give theirs,
/// and get none. Each rank's clock is set against the first one's by the quickest of some questions
/// and answers, to half of the time that these took; hosts' wall clocks play no part. A rank
/// without a whole step, or whose trace cannot be had, is left out, and the summary says so. All
/// ranks at once, before the job ends. Others than the first one throw TransportError where that is
/// lost.
runtime::RanksTrace gather_traces(transport::Transport& transport, pipeline::Job& job,
                                  runtime::RecordedTrace mine, const Clock& clock);

}  // namespace spillway::split
