#include "spillway/pipeline/ownership/stage_marks.h"

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::pipeline {

bool StageMarks::begins_stage(std::string_view name) {
  seen_.resize(marks_.size());
  const bool begins =
      next_ < marks_.size() && marks_[next_].name == name && marks_[next_].before == seen_[next_];
  for (std::size_t i = next_; i < marks_.size(); ++i) seen_[i] += marks_[i].name == name ? 1 : 0;
  if (begins) ++next_;
  return begins;
}

std::string StageMarks::missing() const {
  SPILLWAY_ASSERT(!have_all_come());
  const StageMark& mark = marks_[next_];
  return message("stage {} begins with {}, number {} of that name in forward, and forward has {}",
                 next_ + 1, mark.name, mark.before + 1, seen_.empty() ? 0 : seen_[next_]);
}

}  // namespace spillway::pipeline
