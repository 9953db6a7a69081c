// What does it cost to cut a model with branches in one order, and which one? Prints the tables of
// the README. Arguments: published profiles, graphs of PipeDream or logs of DTR (*.log).
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "branched_models.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/planner/layer_order/layer_order.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "spillway/profile/import/trace_import.h"
#include "spillway/topology/atomic_file.h"

namespace {

using namespace spillway;
using namespace spillway::job;
using namespace spillway::layer_order;
using namespace spillway::partition;

constexpr const char* kNames[] = {"recorded", "depth-first", "breadth-first", "from-the-end",
                                  "narrow"};

double least_seconds(const PartitionProblem& problem, const LayerOrder& order) {
  PartitionProblem other = problem;
  other.chain = reordered(problem.chain, order);
  const auto solved = least_time_cuts(SegmentCosts(std::move(other)));
  return solved ? solved->worst : kNever;
}

/// One-forward-one-backward, messages and swaps over links of 12 GB/s.
PartitionProblem problem_of(const ModelChain& chain, std::uint32_t stages) {
  PartitionProblem problem;
  problem.chain = chain;
  problem.devices.resize(stages);
  for (StageDevice& device : problem.devices) device.swap_rate = TransferRate(12e9);
  problem.links.assign(stages - 1, LinkCosts{10e-6, TransferRate(12e9)});
  for (std::uint32_t k = 0; k < stages; ++k) problem.devices[k].held.in_flight = stages - k;
  return problem;
}

/// Seven tenths of what the fullest device holds where there is room for all.
Bytes tight_memory(const PartitionProblem& problem) {
  const SegmentCosts costs(problem);
  const auto raw = least_time_cuts(costs);
  double most = 0.0;
  for (std::uint32_t k = 0; k < costs.stages(); ++k)
    most = std::max(most, costs.load({raw->cuts[k], raw->cuts[k + 1], k}).raw_bytes());
  return Bytes(static_cast<std::uint64_t>(0.7 * most));
}

void print_row(const BranchedModel& model, const PartitionProblem& problem, const char* memory) {
  const OrderChoice best = choose_order(problem, kThoroughOrder);
  const OrderChoice quick = choose_order(problem);
  std::printf("| %s | %zu | %zu | %s | ", model.name.c_str(), model.chain.layers.size(),
              problem.devices.size(), memory);
  const auto orders = named_orders(problem.chain);
  for (const char* name : kNames) {
    const NamedOrder* found = &orders.front();  // Those that are missing equal another one.
    for (const NamedOrder& each : orders)
      if (each.name == name) found = &each;
    const double seconds =
        found->name == name ? least_seconds(problem, found->layers) : best.seconds;
    if (found->name != name)
      std::printf("same | ");
    else if (seconds == kNever)
      std::printf("does not fit | ");
    else
      std::printf("%+.2f %% | ", 100 * (seconds / best.seconds - 1.0));
  }
  std::printf("%+.2f %% | %.3f ms | ", 100 * (quick.seconds / best.seconds - 1.0),
              1e3 * best.seconds);
  if (best.is_exact)
    std::printf("none does better |");
  else
    std::printf("at most %.2f %% |", 100 * best.loss());
  std::printf(" %u |\n", best.downsets);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<BranchedModel> models = branched_models();
    for (int i = 1; i < argc; ++i) {
      const std::string path = argv[i];
      const std::string text = topology::text_of_file(path);
      const profile::StepProfile step = path.ends_with(".log")
                                            ? profile::import_dtr(text, path)
                                            : profile::import_pipedream(text, path);
      models.push_back(
          {std::filesystem::path(path).stem().stem().string(), measured_model(step).chain});
    }
    std::printf("| model | layers | stages | memory |");
    for (const char* name : kNames) std::printf(" %s |", name);
    std::printf(" chosen per plan | best found | loss of that | sets |\n");
    std::printf("|%s\n",
                " --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (const BranchedModel& model : models)
      for (const std::uint32_t stages : {4U, 8U}) {
        PartitionProblem problem = problem_of(model.chain, stages);
        print_row(model, problem, "ample");
        const Bytes memory = tight_memory(problem);
        for (StageDevice& device : problem.devices) device.memory = memory;
        print_row(model, problem, "70 %");
      }
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
