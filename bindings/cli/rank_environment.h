#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/launcher.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// What CUDA_VISIBLE_DEVICES is to be for a rank of a split program, so that each rank of a host
/// has a GPU of its own, which it calls cuda:0; nothing: it stays as it is. `visible`: what it is
/// now; null: it is not set. Of several GPUs a rank gets that of its number on the host; a single
/// one is what the user, or the site, has chosen for it. Throws ConfigError where several are named
/// that are fewer than the ranks.
std::optional<std::string> gpu_of_rank(const Launcher& launcher, const char* visible);

/// Which of the programs with data of their own this process runs (`--shards`).
struct Shard {
  std::uint32_t number = 0;
  std::uint32_t count = 1;
};

/// By the launcher's variables. The only one where nobody has launched ranks, as such a process
/// trains alone; the first one where the ranks do not divide, which all of them refuse together.
/// Throws ConfigError where a launcher does not say how many ranks there are.
Shard shard_of_this_process(const runtime::Settings& settings);

/// The words of a program with the numbers of its shard for {shard} and {shards}; {{shard}} and
/// {{shards}} lose a pair of braces instead.
std::vector<std::string> words_for(const Shard& shard, std::vector<std::string> words);

/// Tells the program, and the core in it: SPILLWAY_SHARD, SPILLWAY_SHARDS and, for the comparison
/// of shards, the words as they were given.
void set_variables_of(const Shard& shard, const std::vector<std::string>& given_words);

}  // namespace spillway::cli
