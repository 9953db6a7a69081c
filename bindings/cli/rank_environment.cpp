#include "rank_environment.h"

#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

std::optional<std::string> gpu_of_rank(const Launcher& launcher, const char* visible) {
  if (launcher.ranks_here < 2 || !launcher.rank_here) return std::nullopt;
  if (visible == nullptr) return std::to_string(*launcher.rank_here);
  std::vector<std::string> gpus;
  std::istringstream list(visible);
  for (std::string gpu; std::getline(list, gpu, ',');) gpus.push_back(gpu);
  if (gpus.size() < 2) return std::nullopt;
  if (*launcher.rank_here >= gpus.size())
    throw ConfigError("CUDA_VISIBLE_DEVICES names {} GPUs, and {} ranks run on this host: start no "
                      "more ranks than GPUs, or let it name one GPU for each rank",
                      gpus.size(), launcher.ranks_here);
  return gpus[*launcher.rank_here];
}

Shard shard_of_this_process(const runtime::Settings& settings) {
  const auto launcher = find_launcher();
  if (!settings.split || !launcher) return {};
  if (launcher->ranks == 0)
    throw ConfigError("--shards {}: the launcher does not say how many ranks it has started",
                      settings.shards);
  const std::uint32_t count = settings.shards;
  if (launcher->ranks % count != 0) return {0, count};
  return {launcher->rank / (launcher->ranks / count), count};
}

std::vector<std::string> words_for(const Shard& shard, std::vector<std::string> words) {
  const std::string number = std::to_string(shard.number);
  const std::string count = std::to_string(shard.count);
  const std::array<std::pair<std::string_view, std::string_view>, 4> meanings{
      {{"{{shard}}", "{shard}"},
       {"{{shards}}", "{shards}"},
       {"{shard}", number},
       {"{shards}", count}}};
  for (std::string& word : words)
    for (std::size_t at = word.find('{'); at != std::string::npos; at = word.find('{', at)) {
      std::size_t after = at + 1;
      for (const auto& [name, meaning] : meanings)
        if (word.compare(at, name.size(), name) == 0) {
          word.replace(at, name.size(), meaning);
          after = at + meaning.size();
          break;
        }
      at = after;
    }
  return words;
}

void set_variables_of(const Shard& shard, const std::vector<std::string>& given_words) {
  std::string line;
  for (const std::string& word : given_words)
    line += message("{}{}", line.empty() ? "" : " ", shell_word(word));
  ::setenv("SPILLWAY_SHARD", std::to_string(shard.number).c_str(), 1);
  ::setenv("SPILLWAY_SHARDS", std::to_string(shard.count).c_str(), 1);
  // Inside of another run the words have the shard's numbers already.
  ::setenv("SPILLWAY_SHARD_WORDS", line.c_str(), 0);
}

}  // namespace spillway::cli
