#include "search_share.h"

#include <algorithm>
#include <cmath>

#include "spillway/base/assert.h"

namespace spillway::runtime {

namespace {
// Of one processor, however many there are: the threads of an operator wait for each other, so what
// one of them loses the whole step loses.
constexpr double kPart = 0.01;
// What may be saved up for: a search that goes on in small pieces would wake up for nothing else.
constexpr Duration kMostAtOnce = std::chrono::milliseconds(20);
}  // namespace

SearchShare::SearchShare(const Clock& clock, double processors)
    : clock_(clock),
      part_(kPart * std::min(processors, 1.0)),
      latest_(clock.now()),
      left_(kMostAtOnce) {
  SPILLWAY_ASSERT(processors > 0.0);
}

Duration SearchShare::rest_after(Duration used) {
  const std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  const double gained = part_ * static_cast<double>((now - latest_).count());
  latest_ = now;
  left_ = std::min(left_ + Duration(std::llround(gained)), kMostAtOnce) - used;
  if (left_ >= Duration(0)) return Duration(0);
  return Duration(std::llround(static_cast<double>(-left_.count()) / part_));
}

}  // namespace spillway::runtime
