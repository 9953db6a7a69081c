#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/profile/step_profile.h"

namespace spillway::profile {

inline double step_seconds(const StepProfile& profile) {
  Duration sum{0};
  for (const TapeOp& op : profile.tape.ops) sum += op.time;
  return seconds(sum);
}

/// The most bytes that live at once while an operator runs, each value as large as it is, with all
/// that is too small to be one. What operators free before they end counts in pages.
inline double peak_bytes(const StepProfile& profile) {
  const StepTape& tape = profile.tape;
  std::uint64_t most = 0;
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    std::uint64_t level = 0;
    std::uint64_t born_pages = 0;
    for (ValueIndex i = 0; i < tape.values.size(); ++i) {
      const TapeValue& value = tape.values[i];
      const bool is_there = (value.birth == kCarriedIn || value.birth <= op) && value.death >= op;
      if (is_there) level += profile.bytes_of_value[i].count();
      if (value.birth == op) born_pages += value.pages;
    }
    const std::uint64_t inside = tape.ops[op].inside_peak_pages;
    level += (inside - std::min(inside, born_pages)) * profile.page_size.count();
    most = std::max(most, level);
  }
  return static_cast<double>(most + profile.small_bytes.count());
}

/// The same in whole pages.
inline double paged_peak_bytes(const StepProfile& profile) {
  StepProfile rounded = profile;
  for (ValueIndex i = 0; i < profile.bytes_of_value.size(); ++i)
    rounded.bytes_of_value[i] = profile.page_size * profile.tape.values[i].pages;
  return peak_bytes(rounded);
}

}  // namespace spillway::profile
