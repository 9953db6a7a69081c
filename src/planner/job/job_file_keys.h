#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::job {

// Where that goes what leaves a rank.
inline constexpr const char* kHosts = "hosts";
inline constexpr const char* kDisks = "disks";

/// As `JobPlan::gap`, where it is one.
inline double gap_of(double step_seconds, double bound_seconds) {
  const double gap = share_above(step_seconds, bound_seconds);
  return std::isfinite(gap) ? gap : 0.0;
}

/// "50000000 (47.7 MiB)": as the file has it, so that it can be found there.
inline std::string stored_size(Bytes size) { return message("{} ({})", size.count(), size); }

/// Whether two figures are the same but for rounding: times are written with all their digits, and
/// read back as they were.
inline bool is_same(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max({std::abs(a), std::abs(b)});
}

/// A figure of a stage, or a link, by its key.
template <typename Of, typename Figure>
struct FileField {
  const char* key;
  Figure Of::*field;
};
inline constexpr std::array<FileField<planner_schedule::StageCosts, double>, 5> kTimes{
    {{"forward_seconds", &planner_schedule::StageCosts::forward_seconds},
     {"input_gradient_seconds", &planner_schedule::StageCosts::input_gradient_seconds},
     {"weight_gradient_seconds", &planner_schedule::StageCosts::weight_gradient_seconds},
     {"recompute_seconds", &planner_schedule::StageCosts::recompute_seconds},
     {"update_seconds", &planner_schedule::StageCosts::step_seconds}}};

inline constexpr std::array<FileField<planner_schedule::StageCosts, Bytes>, 7> kSizes{
    {{"stash_bytes", &planner_schedule::StageCosts::stash},
     {"swapped_bytes", &planner_schedule::StageCosts::swapped},
     {"boundary_bytes", &planner_schedule::StageCosts::boundary},
     {"weight_bytes", &planner_schedule::StageCosts::weights},
     {"gradient_bytes", &planner_schedule::StageCosts::gradients},
     {"optimizer_bytes", &planner_schedule::StageCosts::optimizer_state},
     {"update_peak_bytes", &planner_schedule::StageCosts::update_peak}}};

inline constexpr std::array<FileField<planner_schedule::ScheduleCosts, LinkCosts>, 3> kLinks{
    {{"peer_link", &planner_schedule::ScheduleCosts::peer},
     {"host_link", &planner_schedule::ScheduleCosts::host},
     {"reduce_link", &planner_schedule::ScheduleCosts::reduce}}};

}  // namespace spillway::job
