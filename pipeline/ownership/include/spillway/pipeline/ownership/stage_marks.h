#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::pipeline {

/// The operator that a stage of a plan begins with.
struct StageMark {
  std::string name;
  std::uint32_t before = 0;  ///< Operators of that name before it, in forward of a micro-batch.
};

/// Finds the begins of stages among the operators of forward. One thread.
class StageMarks {
 public:
  /// Of all stages but the first, in order.
  explicit StageMarks(std::vector<StageMark> marks) : marks_(std::move(marks)) {}

  /// The next operator of forward: whether the next stage begins with it.
  bool begins_stage(std::string_view name);
  bool have_all_come() const { return next_ == marks_.size(); }
  /// What was to come next and has not, for a message: "stage 2 begins with aten::mm, the 7th of
  /// that name in forward, and forward has 5".
  std::string missing() const;

 private:
  std::vector<StageMark> marks_;
  std::size_t next_ = 0;
  std::vector<std::uint32_t> seen_;  ///< Operators of each mark's name.
};

}  // namespace spillway::pipeline
