#pragma once

#include <string>
#include <vector>

#include "findings.h"

namespace spillway::cli {

/// A report without the line that counts.
inline std::string rows_of(const std::vector<Finding>& findings) {
  std::string text = report_text(findings);
  text.erase(text.rfind('\n', text.size() - 2) + 1);
  return text;
}

}  // namespace spillway::cli
