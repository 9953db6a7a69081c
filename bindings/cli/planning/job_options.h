#pragma once

#include "planning/job_words.h"

namespace spillway::cli {

class CommandLine;

/// Adds the options of `spillway plan` for many ranks; `words` must outlive the parsing.
void add_job_options(CommandLine& line, JobWords& words);

}  // namespace spillway::cli
