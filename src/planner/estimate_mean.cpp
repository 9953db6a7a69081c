#include "estimate_mean.h"

#include <algorithm>
#include <type_traits>

namespace spillway::planner {

StepEstimate mean_of(std::span<const StepEstimate> periods) {
  const std::size_t count = periods.size();
  StepEstimate sum;
  for (const StepEstimate& period : periods) {
    sum.step_seconds += period.step_seconds;
    sum.stall_seconds += period.stall_seconds;
    sum.interference_seconds += period.interference_seconds;
    sum.written_pages += period.written_pages;
    sum.read_pages += period.read_pages;
    sum.far_written_pages += period.far_written_pages;
    sum.far_read_pages += period.far_read_pages;
    sum.near_peak_pages = std::max(sum.near_peak_pages, period.near_peak_pages);
    sum.peak_pages = std::max(sum.peak_pages, period.peak_pages);
    sum.demand_reads += period.demand_reads;
    sum.forced_evictions += period.forced_evictions;
    sum.is_complete = sum.is_complete && period.is_complete;
  }
  const auto rounded = [&](auto& number) {
    number = static_cast<std::remove_reference_t<decltype(number)>>((number + count / 2) / count);
  };
  rounded(sum.written_pages);
  rounded(sum.read_pages);
  rounded(sum.far_written_pages);
  rounded(sum.far_read_pages);
  rounded(sum.demand_reads);
  rounded(sum.forced_evictions);
  sum.step_seconds /= static_cast<double>(count);
  sum.stall_seconds /= static_cast<double>(count);
  sum.interference_seconds /= static_cast<double>(count);
  return sum;
}

}  // namespace spillway::planner
