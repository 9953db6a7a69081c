#pragma once

#include <array>

#include "spillway/base/named_values.h"
#include "spillway/profile/chrome_trace.h"

namespace spillway::profile {

/// What files call them.
inline constexpr std::array<Named<TraceSource>, 2> kTraceSources{
    {{"prediction", TraceSource::kPrediction}, {"run", TraceSource::kRun}}};

constexpr std::string_view name_of(TraceSource source) {
  return source == TraceSource::kRun ? kTraceSources[1].name : kTraceSources[0].name;
}

}  // namespace spillway::profile
