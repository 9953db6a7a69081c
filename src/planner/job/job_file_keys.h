#pragma once

#include <array>
#include <cstdint>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

inline constexpr const char* kJobFileFormat = "spillway-job-plan";
inline constexpr std::uint64_t kJobFileVersion = 1;

/// One key per figure of a stage.
struct TimeField {
  const char* key;
  double StageCosts::*field;
};
inline constexpr std::array<TimeField, 7> kTimes{
    {{"forward_seconds", &StageCosts::forward_seconds},
     {"input_gradient_seconds", &StageCosts::input_gradient_seconds},
     {"weight_gradient_seconds", &StageCosts::weight_gradient_seconds},
     {"recompute_seconds", &StageCosts::recompute_seconds},
     {"update_seconds", &StageCosts::step_seconds},
     {"forward_swap_wait_seconds", &StageCosts::forward_swap_wait_seconds},
     {"backward_swap_wait_seconds", &StageCosts::backward_swap_wait_seconds}}};

struct SizeField {
  const char* key;
  Bytes StageCosts::*field;
};
inline constexpr std::array<SizeField, 6> kSizes{{{"stash_bytes", &StageCosts::stash},
                                                  {"boundary_bytes", &StageCosts::boundary},
                                                  {"weight_bytes", &StageCosts::weights},
                                                  {"gradient_bytes", &StageCosts::gradients},
                                                  {"optimizer_bytes", &StageCosts::optimizer_state},
                                                  {"update_peak_bytes", &StageCosts::update_peak}}};

struct LinkField {
  const char* key;
  LinkCosts ScheduleCosts::*field;
};
inline constexpr std::array<LinkField, 3> kLinks{{{"peer_link", &ScheduleCosts::peer},
                                                  {"host_link", &ScheduleCosts::host},
                                                  {"reduce_link", &ScheduleCosts::reduce}}};

}  // namespace spillway::planner
