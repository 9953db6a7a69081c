#pragma once

#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::scaling {

/// What chance makes of a figure: ten draws, of seeds 1 to 10.
struct Drawn {
  double least = 0.0;
  double median = 0.0;
  double most = 0.0;
};

/// Images/s of a job where each device is 1 + `spread`·|z| times slower, z normal.
Drawn straggling_rates(const cluster::Job& job, cluster::Cluster cluster, double spread);

}  // namespace spillway::scaling
