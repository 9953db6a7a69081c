#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

// Where that goes what leaves a rank.
inline constexpr const char* kHosts = "hosts";
inline constexpr const char* kDisks = "disks";

/// As `JobPlan::gap`, where it is one; a bound may lie above its step in the last bits.
inline double gap_of(double step_seconds, double bound_seconds) {
  const double gap = bound_seconds > 0.0 ? step_seconds / bound_seconds - 1.0 : 0.0;
  return std::isfinite(gap) ? std::max(0.0, gap) : 0.0;
}

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
inline constexpr std::array<FileField<StageCosts, double>, 5> kTimes{
    {{"forward_seconds", &StageCosts::forward_seconds},
     {"input_gradient_seconds", &StageCosts::input_gradient_seconds},
     {"weight_gradient_seconds", &StageCosts::weight_gradient_seconds},
     {"recompute_seconds", &StageCosts::recompute_seconds},
     {"update_seconds", &StageCosts::step_seconds}}};

inline constexpr std::array<FileField<StageCosts, Bytes>, 7> kSizes{
    {{"stash_bytes", &StageCosts::stash},
     {"swapped_bytes", &StageCosts::swapped},
     {"boundary_bytes", &StageCosts::boundary},
     {"weight_bytes", &StageCosts::weights},
     {"gradient_bytes", &StageCosts::gradients},
     {"optimizer_bytes", &StageCosts::optimizer_state},
     {"update_peak_bytes", &StageCosts::update_peak}}};

inline constexpr std::array<FileField<ScheduleCosts, LinkCosts>, 3> kLinks{
    {{"peer_link", &ScheduleCosts::peer},
     {"host_link", &ScheduleCosts::host},
     {"reduce_link", &ScheduleCosts::reduce}}};

}  // namespace spillway::planner
