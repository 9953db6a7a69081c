#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/schedule/execution_plan_json.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::schedule {
namespace {

constexpr std::uint64_t kMost53 = std::uint64_t{1} << 53;  // Exact in every reader of JSON.
constexpr std::uint64_t kMostLayers = 10'000'000;
constexpr std::int64_t kMost32 = static_cast<std::int64_t>(kNoLayer) - 1;

class ExecutionReader {
 public:
  ExecutionReader(JsonObject& root, const std::string& name) : root_(root), name_(name) {}

  ExecutionText read() {
    read_head();
    plan_.layers = static_cast<std::uint32_t>(root_.count("layers", 1, kMostLayers));
    pipelines_ = ranks_in(has_new_words() ? "data_parallel" : "groups");
    micro_batches_ = ranks_in("micro_batches");
    const std::uint32_t batch = root_.has("batch") ? ranks_in("batch") : micro_batches_;
    if (batch % micro_batches_ != 0)
      refuse("a batch of {} is not shared evenly by {} micro-batches", batch, micro_batches_);
    plan_.micro_batch_size = batch / micro_batches_;
    if (version_ == 2 || (has_new_words() && root_.has("step"))) read_step(root_.object("step"));
    if (root_.has("order"))
      plan_.order = root_.counts<std::uint32_t>("order", plan_.layers, 0, last_layer());
    stages_ = root_.objects("stages");
    for (JsonObject& stage : stages_) read_stage(stage);
    read_actions();
    return {std::move(plan_), std::move(stages_)};
  }

 private:
  static constexpr std::string_view kReplica = "data-parallel replica";

  template <typename... Args>
  [[noreturn]] void refuse(std::string_view pattern, const Args&... args) const {
    throw ConfigError("{}: {}", name_, message(pattern, args...));
  }

  void read_head() {
    root_.require_format(kJobPlanFormat);
    version_ = root_.count("version", 1, kMost53);
    if (version_ > kPlanVersion)
      refuse("version {} of the format is newer than this Spillway, which reads {} (use a newer "
             "Spillway)",
             version_, kPlanVersion);
  }

  bool has_new_words() const { return version_ >= 3; }

  /// The name as it is written today.
  std::string schedule_name() {
    constexpr std::string_view kOldWord = "windows";
    std::string name = root_.text("schedule");
    const std::size_t at = name.find(kOldWord);
    if (!has_new_words() && at != std::string::npos)
      name.replace(at, kOldWord.size(), "idle-offload");
    return name;
  }

  std::uint32_t ranks_in(const char* key) {
    return static_cast<std::uint32_t>(root_.count(key, 1, kMostRanksOfPlan));
  }

  std::int64_t last_layer() const { return static_cast<std::int64_t>(plan_.layers) - 1; }

  void read_step(JsonObject step) {
    ProfiledStep& read = plan_.step.emplace();
    read.operators =
        static_cast<std::uint32_t>(step.count("operators", 1, static_cast<std::uint64_t>(kMost32)));
    read.operator_hash = step.hexadecimal("operator_hash");
    read.layer_of_operator =
        step.counts<std::uint32_t>("layer_of_operator", JsonObject::kAnySize, -1, last_layer());
    step.refuse_others();
  }

  void read_stage(JsonObject& stage) {
    PlannedStage& read = plan_.stages.emplace_back();
    const auto last = static_cast<std::uint64_t>(last_layer());
    read.first = static_cast<std::uint32_t>(stage.count("first", 0, last));
    read.last = static_cast<std::uint32_t>(stage.count("last", 0, last));
    if (stage.has("operators_before")) {
      read.first_operator = stage.has("begins_with")
                                ? stage.text("begins_with")
                                : std::string(operator_of_layer(stage.text("first_name")));
      read.operators_before =
          static_cast<std::uint32_t>(stage.count("operators_before", 0, read.last));
    }
    read.recomputed =
        stage.counts<std::uint32_t>("recomputed", JsonObject::kAnySize, read.first, read.last);
    for (std::size_t i = 1; i < read.recomputed.size(); ++i) {
      const std::uint32_t before = read.recomputed[i - 1];
      const std::uint32_t layer = read.recomputed[i];
      if (layer == before)
        throw ConfigError("{} names layer {} twice", stage.place("recomputed"), layer);
      if (layer < before)
        throw ConfigError("{} names layer {} behind layer {}; layers stand there as they run",
                          stage.place("recomputed"), layer, before);
    }
    read.stash = Bytes(stage.count("stash_bytes", 0, kMost53));
    read.swapped = Bytes(stage.count("swapped_bytes", 0, kMost53));
  }

  void read_actions() {
    std::string csv;
    for (const std::string& line : root_.texts("actions", JsonObject::kAnySize)) csv += line + "\n";
    Schedule& actions = plan_.actions = read_schedule_csv(csv, name_ + ", actions");
    actions.name = schedule_name();
    if (actions.stages != stages_.size())
      refuse("its actions are of {}, and it describes {}", counted(actions.stages, "stage"),
             stages_.size());
    const std::uint64_t all = actions.all_micro_batches() * pipelines_;
    if (all != micro_batches_)
      refuse("its actions are of {} in {}, and it speaks of {}", counted(all, "micro-batch"),
             counted(pipelines_, kReplica), micro_batches_);
    if (actions.data_parallel != pipelines_)
      refuse("its actions sum the gradients of {}, and it speaks of {}",
             counted(actions.data_parallel, kReplica), pipelines_);
    const std::uint64_t told = root_.count("ranks", 1, kMost53);
    const std::uint64_t ranks = std::uint64_t{actions.rank_count()} * pipelines_;
    if (told != ranks)
      refuse("ranks is {}, and {} of {} are {}", told, counted(pipelines_, kReplica),
             counted(actions.rank_count(), "action list"), ranks);
  }

  JsonObject& root_;
  std::vector<JsonObject> stages_;
  const std::string& name_;
  ExecutionPlan plan_;
  std::uint64_t version_ = 0;
  std::uint32_t pipelines_ = 1;
  std::uint32_t micro_batches_ = 1;
};

ExecutionPlan parsed(std::string_view text, const std::string& name) {
  const JsonText json(text, name, JsonText::kAnyFormat);
  JsonObject root = json.root();
  ExecutionPlan plan = read_execution_plan(root, name).plan;
  if (const auto fault = plan_fault(plan)) throw ConfigError("{}: {}", name, *fault);
  if (!plan.step)
    throw ConfigError("{}: it does not say which operators its layers are, so it cannot be run",
                      name);
  return plan;
}

}  // namespace

ExecutionText read_execution_plan(JsonObject& root, const std::string& name) {
  return ExecutionReader(root, name).read();
}

ExecutionPlan parse_execution_plan(std::string_view text, const std::string& name) {
  try {
    return parsed(text, name);
  } catch (const ConfigError& error) {
    throw ConfigError("{}", with_next_step(error.what(), message("make the plan again with: {}",
                                                                 kJobPlanFormat.made_by)));
  } catch (const PlanError& error) {
    throw ConfigError("{}: {} (make the plan again with: {})", name, error.what(),
                      kJobPlanFormat.made_by);
  }
}

}  // namespace spillway::schedule
