#include "rank_gpu.h"

#include <sstream>
#include <vector>

#include "spillway/base/error.h"

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

}  // namespace spillway::cli
