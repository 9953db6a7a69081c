#include "spillway/planner/job/job_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/json_writer.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/schedule/schedule_csv.h"

namespace spillway::planner {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "spillway-job-plan";
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMost32 = std::numeric_limits<std::uint32_t>::max() - 1;
constexpr std::uint64_t kMost53 = std::uint64_t{1} << 53;  // Exact in every reader of JSON.
constexpr std::int64_t kMostPoints = 1'000'000;
constexpr double kMostSeconds = 1e12;
constexpr double kMostRate = 1e18;

/// One key per figure of a stage.
struct TimeField {
  const char* key;
  double StageCosts::*field;
};
constexpr std::array<TimeField, 7> kTimes{
    {{"forward_seconds", &StageCosts::forward_seconds},
     {"input_gradient_seconds", &StageCosts::input_gradient_seconds},
     {"weight_gradient_seconds", &StageCosts::weight_gradient_seconds},
     {"recompute_seconds", &StageCosts::recompute_seconds},
     {"update_seconds", &StageCosts::step_seconds},
     {"forward_swap_wait_seconds", &StageCosts::forward_swap_wait_seconds},
     {"backward_swap_wait_seconds", &StageCosts::backward_swap_wait_seconds}}};

struct SizeField {
  const char* key;
  Bytes StageCosts::*field;
};
constexpr std::array<SizeField, 5> kSizes{{{"stash_bytes", &StageCosts::stash},
                                           {"boundary_bytes", &StageCosts::boundary},
                                           {"weight_bytes", &StageCosts::weights},
                                           {"gradient_bytes", &StageCosts::gradients},
                                           {"optimizer_bytes", &StageCosts::optimizer_state}}};

struct LinkField {
  const char* key;
  LinkCosts ScheduleCosts::*field;
};
constexpr std::array<LinkField, 3> kLinks{{{"peer_link", &ScheduleCosts::peer},
                                           {"host_link", &ScheduleCosts::host},
                                           {"reduce_link", &ScheduleCosts::reduce}}};

/// JSON has no infinity: 0 stands for a link that takes no time for bytes.
ordered_json link_json(const LinkCosts& link) {
  const bool is_free = std::isinf(link.bytes_per_second);
  return {{"latency_seconds", link.latency_seconds},
          {"bytes_per_second", is_free ? 0.0 : link.bytes_per_second}};
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

ordered_json stages_json(const JobFile& file) {
  ordered_json stages = ordered_json::array();
  for (std::size_t k = 0; k < file.stages.size(); ++k) {
    ordered_json stage = {{"first", file.stages[k].first},
                          {"last", file.stages[k].last},
                          {"first_name", file.stages[k].first_name},
                          {"last_name", file.stages[k].last_name},
                          {"recomputed", ordered_json::array()},
                          {"recompute_points", ordered_json::array()},
                          {"swapped_bytes", file.stages[k].swapped.count()}};
    for (const ChosenPoint& point : file.stages[k].recomputed) {
      stage["recomputed"].push_back(point.layer);
      stage["recompute_points"].push_back(point.point);
    }
    for (const TimeField& each : kTimes) stage[each.key] = file.costs.stages[k].*each.field;
    for (const SizeField& each : kSizes)
      stage[each.key] = (file.costs.stages[k].*each.field).count();
    stages.push_back(std::move(stage));
  }
  return stages;
}

/// Reads one file; every error names it and the place.
class JobReader {
 public:
  JobReader(std::string_view text, const std::string& name)
      : name_(name), text_(text, name, JsonText::kAnyFormat), root_(text_.root()) {}

  JobFile read() {
    root_.require_format(kFormat);
    const std::uint64_t version = root_.count("version", 1, kMost53);
    if (version > kVersion)
      refuse("version {} of the format is newer than this Spillway, which reads {} (use a newer "
             "Spillway)",
             version, kVersion);
    file_.partitioner = root_.text("partitioner");
    file_.groups = static_cast<std::uint32_t>(root_.count("groups", 1, kMostRanksOfJob));
    file_.micro_batches =
        static_cast<std::uint32_t>(root_.count("micro_batches", 1, kMostRanksOfJob));
    if (root_.has("device_memory_bytes"))
      file_.device_memory = Bytes(root_.count("device_memory_bytes", 1, kMost53));
    if (root_.has("host_memory_bytes"))
      file_.host_memory = Bytes(root_.count("host_memory_bytes", 0, kMost53));
    if (root_.has("order"))
      file_.order = root_.counts<LayerIndex>("order", JsonObject::kAnySize, 0, kMost32);
    for (JsonObject& stage : root_.objects("stages")) read_stage(stage);
    file_.costs.shares.input = root_.number("kept_input_share", 0.0, 1.0);
    if (root_.has("copies_wait_bytes"))
      file_.costs.memory = Bytes(root_.count("copies_wait_bytes", 0, kMost53));
    JsonObject links = root_.object("links");
    for (const LinkField& each : kLinks) file_.costs.*each.field = read_link(links, each.key);
    if (links.has("shared_sums")) file_.costs.shared_sums = read_shared_sums(links);
    links.refuse_others();
    read_actions();
    JsonObject figures = root_.object("figures");
    file_.step_seconds = figures.number("step_seconds", 0.0, kMostSeconds);
    file_.bound_seconds = figures.number("bound_seconds", 0.0, kMostSeconds);
    figures.refuse_others();
    root_.refuse_others();  // A limit whose name was misspelt would be none.
    return std::move(file_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(std::string_view pattern, const Args&... args) const {
    throw ConfigError("{}: {}", name_, message(pattern, args...));
  }

  void read_stage(JsonObject& stage) {
    JobFileStage read;
    read.first = static_cast<LayerIndex>(stage.count("first", 0, kMost32));
    read.last = static_cast<LayerIndex>(stage.count("last", 0, kMost32));
    read.first_name = stage.text("first_name");
    read.last_name = stage.text("last_name");
    const auto layers =
        stage.counts<LayerIndex>("recomputed", JsonObject::kAnySize, read.first, read.last);
    const auto points =
        stage.counts<std::uint32_t>("recompute_points", layers.size(), 0, kMostPoints);
    for (std::size_t i = 0; i < layers.size(); ++i)
      read.recomputed.push_back({layers[i], points[i]});
    read.swapped = Bytes(stage.count("swapped_bytes", 0, kMost53));
    file_.stages.push_back(std::move(read));
    StageCosts& costs = file_.costs.stages.emplace_back();
    for (const TimeField& each : kTimes)
      costs.*each.field = stage.number(each.key, 0.0, kMostSeconds);
    for (const SizeField& each : kSizes)
      costs.*each.field = Bytes(stage.count(each.key, 0, kMost53));
    stage.refuse_others();
  }

  static LinkCosts read_link(JsonObject& links, const char* key) {
    JsonObject object = links.object(key);
    LinkCosts link;
    link.latency_seconds = object.number("latency_seconds", 0.0, kMostSeconds);
    const double rate = object.number("bytes_per_second", 0.0, kMostRate);
    if (rate > 0.0) link.bytes_per_second = rate;
    object.refuse_others();
    return link;
  }

  static SharedSums read_shared_sums(JsonObject& links) {
    JsonObject object = links.object("shared_sums");
    SharedSums shared;
    shared.ranks = static_cast<std::uint32_t>(object.count("ranks", 1, kMostRanksOfJob));
    const double rate = object.number("bytes_per_second", 0.0, kMostRate);
    if (rate > 0.0) shared.bytes_per_second = rate;
    object.refuse_others();
    return shared;
  }

  void read_actions() {
    const auto lines = root_.texts("actions", JsonObject::kAnySize);
    std::string csv;
    for (const std::string& line : lines) csv += line + "\n";
    file_.actions = read_schedule_csv(csv, name_ + ", actions");
    file_.actions.name = root_.text("schedule");
    if (file_.actions.stages != file_.stages.size())
      refuse("its actions are of {} stages, and it describes {}", file_.actions.stages,
             file_.stages.size());
    const std::uint64_t all = file_.actions.all_micro_batches() * file_.groups;
    if (all != file_.micro_batches)
      refuse("its actions are of {} micro-batches in {} groups, and it speaks of {}", all,
             file_.groups, file_.micro_batches);
    if (file_.actions.data_parallel != file_.groups)
      refuse("its actions sum the gradients of {} groups, and it speaks of {}",
             file_.actions.data_parallel, file_.groups);
    const std::size_t ranks = file_.actions.ranks.size();
    for (const std::uint64_t each :
         root_.counts<std::uint64_t>("fixed_bytes", ranks, 0, static_cast<std::int64_t>(kMost53)))
      file_.fixed.emplace_back(each);
  }

  const std::string& name_;
  const JsonText text_;
  JsonObject root_;
  JobFile file_;
};

}  // namespace

JobFile describe_job(const JobPlan& plan, const ModelChain& chain) {
  JobFile file;
  file.partitioner = plan.partitioner;
  file.groups = plan.groups;
  file.micro_batches = plan.micro_batches;
  file.device_memory = plan.device_memory;
  file.host_memory = plan.host_memory;
  file.order = plan.order.layers;
  const auto name_at = [&](LayerIndex place) {
    return chain.layers[layer_at(plan.order.layers, place)].name;
  };
  for (const StageEstimate& stage : plan.stages)
    file.stages.push_back({stage.first_layer, stage.last_layer, name_at(stage.first_layer),
                           name_at(stage.last_layer), stage.recomputed, stage.swapped});
  file.actions = plan.actions;
  file.actions.name = schedule_text(plan.schedule, plan.variant);
  file.costs = plan.costs;
  for (const RankMemory& rank : plan.memory) file.fixed.push_back(rank.fixed);
  file.step_seconds = plan.step_seconds;
  file.bound_seconds = plan.bound_seconds;
  return file;
}

std::string to_text(const JobFile& file) {
  ordered_json document;
  document["format"] = kFormat;
  document["version"] = kVersion;
  document["partitioner"] = file.partitioner;
  document["schedule"] = file.actions.name;
  document["groups"] = file.groups;
  document["micro_batches"] = file.micro_batches;
  if (file.device_memory != kNoLimit) document["device_memory_bytes"] = file.device_memory.count();
  if (file.host_memory != kNoLimit) document["host_memory_bytes"] = file.host_memory.count();
  if (!file.order.empty()) document["order"] = file.order;
  document["stages"] = stages_json(file);
  document["kept_input_share"] = file.costs.shares.input;
  if (file.costs.memory) document["copies_wait_bytes"] = file.costs.memory->count();
  document["links"] = ordered_json::object();
  for (const LinkField& each : kLinks)
    document["links"][each.key] = link_json(file.costs.*each.field);
  if (const SharedSums& shared = file.costs.shared_sums; !std::isinf(shared.bytes_per_second))
    document["links"]["shared_sums"] = {{"ranks", shared.ranks},
                                        {"bytes_per_second", shared.bytes_per_second}};
  document["fixed_bytes"] = ordered_json::array();
  for (const Bytes each : file.fixed) document["fixed_bytes"].push_back(each.count());
  document["actions"] = lines_of(to_csv(file.actions));
  document["figures"] = {{"step_seconds", file.step_seconds},
                         {"bound_seconds", file.bound_seconds}};
  return json_by_lines(document);
}

JobFile parse_job_file(std::string_view text, const std::string& name) {
  try {
    return JobReader(text, name).read();
  } catch (const ConfigError& error) {
    throw ConfigError("{}", with_next_step(error.what(), "make the plan again with: spillway plan "
                                                         "PROFILE --ranks COUNT --out FILE"));
  } catch (const PlanError& error) {
    throw ConfigError("{}: {} (make the plan again with: spillway plan PROFILE --ranks COUNT --out "
                      "FILE)",
                      name, error.what());
  }
}

}  // namespace spillway::planner
