#pragma once

#include "planning/job_words.h"

namespace CLI {
class App;
}

namespace spillway::cli {

/// Adds the options of `spillway plan` for many ranks; `words` must outlive the parsing.
void add_job_options(CLI::App& app, JobWords& words);

}  // namespace spillway::cli
