#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/pipeline/agreement/job.h"

namespace spillway::pipeline {

/// "rank 1 (its host)", or without a host.
std::string name_of(Rank rank, const std::vector<std::string>& hosts);

/// The first fact that is not the same on all ranks, as a sentence without its end; nothing: all
/// are. That of the processor counts only by itself.
enum class Facts : std::uint8_t { kThatMustBeEqual, kOfTheProcessor };
std::optional<std::string> difference_of_facts(const std::vector<JobFacts>& facts_of_ranks,
                                               const std::vector<std::string>& hosts, Facts which);

/// Brings the facts of all ranks together. Throws ConfigError with the same sentence on all ranks
/// where they differ. Tells whom it waits for in the log.
void compare_facts(transport::Transport& transport, const JobFacts& facts,
                   const JobOptions& options, const Clock& clock);

}  // namespace spillway::pipeline
