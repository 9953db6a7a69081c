#include "spillway/pipeline/ownership/stage_cuts.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::pipeline {

StageCuts::StageCuts(std::vector<std::size_t> first_of_stage)
    : stages_(static_cast<std::uint32_t>(first_of_stage.size())),
      first_of_stage_(std::move(first_of_stage)) {
  if (first_of_stage_.empty() || first_of_stage_.front() != 0 ||
      !std::is_sorted(first_of_stage_.begin(), first_of_stage_.end()))
    throw PlanError("parameters are dealt to {} stages: the first begins with parameter 0, and "
                    "each other one with a later one",
                    first_of_stage_.size());
}

StageCuts StageCuts::by_bytes(std::uint32_t stages) {
  SPILLWAY_ASSERT(stages > 0);
  StageCuts made;
  made.stages_ = stages;
  return made;
}

StageCuts StageCuts::by_begins(std::uint32_t stages) {
  StageCuts made = by_bytes(stages);
  made.begun_ = 0;
  return made;
}

void StageCuts::begin_stage() {
  SPILLWAY_ASSERT(begun_ && *begun_ + 1 < stages_);
  ++*begun_;
}

std::uint32_t StageCuts::next(Bytes size) {
  if (begun_) return *begun_;
  const std::size_t number = number_++;
  if (!first_of_stage_.empty()) {
    const auto behind = std::upper_bound(first_of_stage_.begin(), first_of_stage_.end(), number);
    return static_cast<std::uint32_t>(behind - first_of_stage_.begin() - 1);
  }
  // Where its middle lies. Of no known bytes each is the next stage's, as long as there are stages.
  const double middle =
      static_cast<double>(dealt_.count()) + 0.5 * static_cast<double>(size.count());
  dealt_ += size;
  const double share = all_ > Bytes() ? middle / static_cast<double>(all_.count()) * stages_
                                      : static_cast<double>(number);
  return static_cast<std::uint32_t>(std::min(share, static_cast<double>(stages_ - 1)));
}

}  // namespace spillway::pipeline
