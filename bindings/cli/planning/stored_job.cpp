#include "planning/stored_job.h"

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

std::string stored_job_text(const std::string& path) {
  return topology::text_of_file(
      path, message("spillway plan PROFILE --ranks COUNT --out {}", shell_word(path)));
}

planner::JobFile stored_job(const std::string& text, const std::string& path) {
  planner::JobFile file = planner::parse_job_file(text, path);
  if (const auto fault = planner::job_fault(file)) throw PlanError("{}: {}", path, *fault);
  return file;
}

}  // namespace spillway::cli
