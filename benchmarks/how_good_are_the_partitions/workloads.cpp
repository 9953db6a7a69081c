#include "workloads.h"

#include <fstream>
#include <sstream>

#include "piper_chain.h"
#include "spillway/base/error.h"
#include "spillway/profile/import/trace_import.h"

namespace spillway::quality {

using namespace partition;

namespace {

constexpr double kBytesPerSecond = 12e9;
constexpr double kMessageSeconds = 10e-6;

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw IoError("{} cannot be read; name a file of the published profiles", file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

PartitionProblem problem_of(const Workload& workload, const Setting& setting) {
  PartitionProblem problem;
  problem.chain = workload.chain;
  if (setting.memory_reduction == MemoryReduction::kNone)
    for (ModelLayer& layer : problem.chain.layers) layer.recompute.clear();
  StageDevice device;
  device.memory = setting.memory;
  if (setting.memory_reduction == MemoryReduction::kSwapAndRecompute)
    device.swap_rate = TransferRate(kBytesPerSecond);
  problem.devices.assign(setting.stages, device);
  if (workload.has_links)
    problem.links.assign(setting.stages - 1,
                         LinkCosts{kMessageSeconds, TransferRate(kBytesPerSecond)});
  for (std::uint32_t k = 0; k < setting.stages; ++k) {
    const bool holds_all = setting.flight == Flight::kAllForward;
    const double in_flight = holds_all ? setting.stages : setting.stages - k;
    problem.devices[k].held = {in_flight, setting.flight == Flight::kNoFlush ? in_flight : 1.0};
  }
  return problem;
}

Workload workload_from(std::string_view source, const std::string& file) {
  if (source == "pipedream")
    return {imported_chain(profile::import_pipedream(text_of(file), file)), true, true};
  if (source == "piper") return {piper_chain(text_of(file), file), false, true};
  if (source == "vpipe") return {vpipe_chain(), false, false};
  throw ConfigError("there is no source '{}' of models; use pipedream, piper or vpipe", source);
}

}  // namespace spillway::quality
