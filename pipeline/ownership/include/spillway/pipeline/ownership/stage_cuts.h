#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/base/bytes.h"

namespace spillway::pipeline {

/// Deals the parameters of a model to stages, in the order in which forward first uses them.
class StageCuts {
 public:
  /// Number of the parameter that each stage begins with. Throws PlanError where the first is not
  /// 0, or a later one is smaller than the one before.
  explicit StageCuts(std::vector<std::size_t> first_of_stage);
  /// About as many bytes for each stage.
  static StageCuts by_bytes(std::uint32_t stages);
  /// All to the stage that was begun last.
  static StageCuts by_begins(std::uint32_t stages);
  void begin_stage();

  std::uint32_t stages() const { return stages_; }
  /// Before the first one is dealt: bytes of all, as far as they are known.
  void expect(Bytes all) { all_ = all; }
  /// They are dealt by bytes, and others came than were expected.
  bool has_expected_others() const { return first_of_stage_.empty() && !begun_ && all_ != dealt_; }
  /// The stage of the next parameter.
  std::uint32_t next(Bytes size);

 private:
  StageCuts() = default;

  std::uint32_t stages_ = 0;
  std::vector<std::size_t> first_of_stage_;  ///< None: by bytes, or by begins.
  std::optional<std::uint32_t> begun_;       ///< The latest; none: they are not dealt by begins.
  Bytes all_;
  Bytes dealt_;
  std::size_t number_ = 0;
};

}  // namespace spillway::pipeline
