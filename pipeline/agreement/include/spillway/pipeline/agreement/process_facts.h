#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "spillway/pipeline/agreement/job.h"

namespace spillway::pipeline {

/// Name of the fact that has the arguments of the program.
inline constexpr std::string_view kArgumentsFact = "the list of arguments";

/// Name of a fact in which ranks may differ: the first one warns of it, and the job goes on.
inline constexpr std::string_view kProcessorFact = "the processor";
/// By what libraries choose their kernels: maker, family, model and kinds of instructions. Empty
/// where `information` tells of none.
std::string processor_of(const std::filesystem::path& information = "/proc/cpuinfo");

/// The contents of a file as a number. Throws IoError where it cannot be read.
std::string hash_of_file(const std::filesystem::path& path);

/// What of this process has to be equal on all ranks, as far as that is known without LibTorch: the
/// program and its Python files by their contents, its arguments, and the variables that change
/// numbers (README). `process` is its folder in /proc. Throws IoError where the program cannot be
/// read. Takes as long as it takes to read it.
JobFacts facts_of_process(const std::filesystem::path& process = "/proc/self");

}  // namespace spillway::pipeline
