#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace spillway::cli {

/// "3.91 GB/s"
inline std::string gb_per_s(double rate) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f GB/s", rate);
  return text.data();
}

}  // namespace spillway::cli
