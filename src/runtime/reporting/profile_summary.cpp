#include "spillway/runtime/reporting/profile_summary.h"

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::runtime {

std::string describe(const profile::StepProfile& profile) {
  Duration time{0};
  for (const auto& op : profile.tape.ops) time += op.time;
  const Bytes peak = profile.page_size * planner::live_peak(profile.tape) + profile.small_bytes;
  const std::uint32_t steps = profile.origin.steps;
  return message("{}{}, {}, {} at once in this step{}; {}{}",
                 profile.origin.device.empty() ? "" : profile.origin.device + ", ",
                 counted(profile.tape.ops.size(), "operator"),
                 counted(profile.tape.values.size(), "value"), peak,
                 profile.small_bytes == Bytes() ? "" : " beside the most small tensors of its run",
                 seconds_text(seconds(time)),
                 steps > 1 ? message(", median of {} steps", steps) : std::string(" per step"));
}

}  // namespace spillway::runtime
