#include <algorithm>
#include <nlohmann/json.hpp>

#include "job_file_keys.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/json_writer.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/schedule/execution_plan_json.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::job {
namespace {

using nlohmann::ordered_json;

/// JSON has no infinity: 0 stands for a link that takes no time for bytes.
ordered_json link_json(const LinkCosts& link) {
  return {{"latency_seconds", link.latency_seconds},
          {"bytes_per_second", link.rate.is_unlimited() ? 0.0 : link.rate.bytes_per_second()}};
}

ordered_json counts_of(const std::vector<Bytes>& sizes) {
  ordered_json counts = ordered_json::array();
  for (const Bytes size : sizes) counts.push_back(size.count());
  return counts;
}

ordered_json figures_json(const JobFile& file) {
  return {{"step_seconds", file.step_seconds},
          {"bound_seconds", file.bound_seconds},
          {"gap", gap_of(file.step_seconds, file.bound_seconds)},
          {"bubble", file.bubble},
          {"peak_bytes", counts_of(file.peaks)},
          {"host_bytes", counts_of(file.hosts)}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

ordered_json step_json(const schedule::ProfiledStep& step) {
  ordered_json layers = ordered_json::array();
  for (const partition::LayerIndex layer : step.layer_of_operator)
    layers.push_back(layer == schedule::kNoLayer ? -1 : std::int64_t{layer});
  return {{"operators", step.operators},
          {"operator_hash", hexadecimal_text(step.operator_hash)},
          {"layer_of_operator", std::move(layers)}};
}

ordered_json stages_json(const JobFile& file) {
  ordered_json stages = ordered_json::array();
  for (std::size_t k = 0; k < file.stages.size(); ++k) {
    ordered_json stage = {{"first", file.stages[k].first},
                          {"last", file.stages[k].last},
                          {"first_name", file.stages[k].first_name},
                          {"last_name", file.stages[k].last_name},
                          {"recomputed", ordered_json::array()},
                          {"recompute_points", ordered_json::array()},
                          {"whole_stash_bytes", file.stages[k].whole_stash.count()}};
    // Plans of before do not tell.
    if (!file.stages[k].begins_with.empty()) {
      stage["begins_with"] = file.stages[k].begins_with;
      stage["operators_before"] = file.stages[k].operators_before;
    }
    for (const partition::ChosenPoint& point : file.stages[k].recomputed) {
      stage["recomputed"].push_back(point.layer);
      stage["recompute_points"].push_back(point.point);
    }
    for (const auto& each : kTimes) stage[each.key] = file.costs.stages[k].*each.field;
    for (const auto& each : kSizes) stage[each.key] = (file.costs.stages[k].*each.field).count();
    stages.push_back(std::move(stage));
  }
  return stages;
}

std::vector<partition::ChosenPoint> in_order(std::vector<partition::ChosenPoint> points) {
  std::sort(points.begin(), points.end(),
            [](const partition::ChosenPoint& a, const partition::ChosenPoint& b) {
              return a.layer < b.layer;
            });
  return points;
}

/// Hands out memory that the operator behind it fills. All ranks run it, so no stage begins there.
bool only_allocates(std::string_view layer_name) {
  return layer_name.starts_with("aten::empty") || layer_name.starts_with("aten::new_empty") ||
         layer_name.starts_with("aten::_empty");
}

template <typename NameAt>
partition::LayerIndex begin_of(const partition::StageEstimate& stage, const NameAt& name_at) {
  partition::LayerIndex place = stage.first_layer;
  while (place < stage.last_layer && only_allocates(name_at(place))) ++place;
  return place;
}

template <typename NameAt>
std::uint32_t operators_before(partition::LayerIndex place, const NameAt& name_at) {
  const std::string_view name = schedule::operator_of_layer(name_at(place));
  // Names come again along a model, so a rank finds the operator by its name and by how many of
  // that name run before.
  std::uint32_t before = 0;
  for (partition::LayerIndex i = 0; i < place; ++i)
    before += schedule::operator_of_layer(name_at(i)) == name ? 1 : 0;
  return before;
}

/// What one micro-batch keeps of a stage, of which the plan knows what all of them in flight keep.
Bytes whole_stash(const JobPlan& plan, std::size_t stage) {
  const double in_flight = plan.held[stage].in_flight;
  const auto all = static_cast<double>(plan.bytes_before[stage].stash.count());
  // Up: swapped and kept bytes of a micro-batch must fit into it.
  const Bytes one(in_flight > 0.0 ? static_cast<std::uint64_t>(std::ceil(all / in_flight)) : 0);
  return std::max(one, plan.stages[stage].swapped);  // Sums in another order.
}

}  // namespace

JobFile describe_job(const JobPlan& plan, const partition::ModelChain& chain) {
  JobFile file;
  file.partitioner = plan.partitioner;
  file.model = identity_of(chain);
  file.step = chain.step;
  file.data_parallel = plan.data_parallel;
  file.micro_batches = plan.micro_batches;
  file.batch = plan.batch;
  file.device_memory = plan.device_memory;
  file.host_memory = plan.host_memory;
  file.order = plan.order.layers;
  const auto name_at = [&](partition::LayerIndex place) -> const std::string& {
    return chain.layers[layer_order::layer_at(plan.order.layers, place)].name;
  };
  for (std::size_t k = 0; k < plan.stages.size(); ++k) {
    const partition::StageEstimate& stage = plan.stages[k];
    const partition::LayerIndex begin = begin_of(stage, name_at);
    file.stages.push_back(
        {stage.first_layer, stage.last_layer, name_at(stage.first_layer), name_at(stage.last_layer),
         std::string(schedule::operator_of_layer(name_at(begin))), operators_before(begin, name_at),
         in_order(stage.recomputed), whole_stash(plan, k)});
  }
  file.actions = plan.actions;
  // With its options, so that the same schedule can be made again from the file alone.
  file.actions.name = schedule_text(plan.schedule, plan.variant);
  file.costs = plan.costs;
  for (const RankMemory& rank : plan.memory) {
    file.fixed.push_back(rank.fixed);
    file.peaks.push_back(rank.peak);
    file.hosts.push_back(rank.host);
  }
  file.step_seconds = plan.step_seconds;
  file.bound_seconds = plan.bound_seconds;
  // Rounding may leave it just below nothing, and readers refuse what is negative.
  file.bubble = std::max(0.0, plan.timing.bubble);
  return file;
}

schedule::ExecutionPlan execution_of(const JobFile& file) {
  schedule::ExecutionPlan plan;
  plan.layers = file.model.layers;
  plan.step = file.step;
  plan.order = file.order;
  for (std::size_t k = 0; k < file.stages.size(); ++k) {
    const JobFileStage& stage = file.stages[k];
    const planner_schedule::StageCosts& costs = file.costs.stages[k];
    plan.stages.push_back({stage.first,
                           stage.last,
                           {},
                           costs.stash,
                           costs.swapped,
                           stage.begins_with,
                           stage.operators_before});
    for (const partition::ChosenPoint& point : stage.recomputed)
      plan.stages[k].recomputed.push_back(point.layer);
  }
  plan.actions = file.actions;
  plan.micro_batch_size = file.batch / file.micro_batches;
  return plan;
}

std::string to_text(const JobFile& file) {
  ordered_json document;
  document["format"] = kJobPlanFormat.name;
  document["version"] = schedule::kPlanVersion;
  document["partitioner"] = file.partitioner;
  document["schedule"] = file.actions.name;
  document["layers"] = file.model.layers;
  document["layer_name_hash"] = hexadecimal_text(file.model.name_hash);
  document["ranks"] = file.actions.rank_count() * file.data_parallel;
  document["data_parallel"] = file.data_parallel;
  document["micro_batches"] = file.micro_batches;
  // Left out, it is the number of micro-batches.
  if (file.batch != file.micro_batches) document["batch"] = file.batch;
  if (file.device_memory != partition::kNoLimit)
    document["device_memory_bytes"] = file.device_memory.count();
  if (file.host_memory != partition::kNoLimit)
    document["host_memory_bytes"] = file.host_memory.count();
  const bool swaps =
      std::any_of(file.hosts.begin(), file.hosts.end(), [](Bytes held) { return held > Bytes(0); });
  if (swaps || file.swaps_to_disks) document["swaps_to"] = file.swaps_to_disks ? kDisks : kHosts;
  if (file.step) document["step"] = step_json(*file.step);
  if (!file.order.empty()) document["order"] = file.order;
  document["stages"] = stages_json(file);
  document["kept_input_share"] = file.costs.shares.input;
  if (file.costs.memory) document["copies_wait_bytes"] = file.costs.memory->count();
  // All three are written, also where they are equal: a reader takes each for itself.
  document["links"] = ordered_json::object();
  for (const auto& each : kLinks) document["links"][each.key] = link_json(file.costs.*each.field);
  // A link without an end holds up no sum, and is none.
  if (const planner_schedule::SharedSums& shared = file.costs.shared_sums;
      !shared.rate.is_unlimited())
    document["links"]["shared_sums"] = {{"ranks", shared.ranks},
                                        {"bytes_per_second", shared.rate.bytes_per_second()}};
  document["fixed_bytes"] = counts_of(file.fixed);
  document["actions"] = lines_of(schedule::to_csv(file.actions));
  document["figures"] = figures_json(file);
  // Keys as a reader leaves them, so that a file which is read and written stays as it is.
  if (!file.cluster.empty())
    document["cluster"] = ordered_json(nlohmann::json::parse(file.cluster));
  return json_by_lines(document);
}

}  // namespace spillway::job
