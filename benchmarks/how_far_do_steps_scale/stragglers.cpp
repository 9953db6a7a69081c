#include "stragglers.h"

#include <algorithm>
#include <array>

#include "resnet_job.h"

namespace spillway::scaling {

using namespace spillway::cluster;

Drawn straggling_rates(const Job& job, Cluster cluster, double spread) {
  std::array<double, 10> rates{};
  for (std::size_t draw = 0; draw < rates.size(); ++draw) {
    cluster.stragglers = {StragglerLaw::kHalfNormal, spread, 1.0, false, draw + 1};
    rates[draw] = images_per_second(job, simulate_job(job, cluster));
  }
  std::sort(rates.begin(), rates.end());
  constexpr std::size_t kMiddle = rates.size() / 2;
  return {rates.front(), (rates[kMiddle - 1] + rates[kMiddle]) / 2.0, rates.back()};
}

}  // namespace spillway::scaling
