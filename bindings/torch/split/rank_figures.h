#pragma once

#include <vector>

#include "spillway/pipeline/agreement/job.h"
#include "spillway/runtime/reporting/ranks_report.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// Each rank gives the first one its figures, once, before the job ends. Returns all, by rank, on
/// the first one, and nothing on others. Throws TransportError where one is lost.
std::vector<runtime::RankFigures> gather_figures(transport::Transport& transport,
                                                 pipeline::Job& job, runtime::RankFigures mine);

}  // namespace spillway::split
