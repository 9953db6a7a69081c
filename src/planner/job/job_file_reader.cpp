#include <limits>

#include "job_file_keys.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/job_variant.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/schedule/execution_plan_json.h"

namespace spillway::job {
namespace {

constexpr std::uint64_t kMost53 = std::uint64_t{1} << 53;  // Exact in every reader of JSON.
constexpr std::int64_t kMostPoints = 1'000'000;
constexpr std::size_t kMostLettersOfName = 64;  // Shown in errors; no name of ours is longer.
constexpr double kMostSeconds = 1e12;
constexpr double kMostRate = 1e18;

/// Reads one file; every error names it and the place.
class JobReader {
 public:
  JobReader(std::string_view text, const std::string& name)
      : name_(name), text_(text, name, JsonText::kAnyFormat), root_(text_.root()) {}

  JobFile read() {
    // Ranks read the part that they execute by the same function, so what is accepted here is what
    // they run.
    schedule::ExecutionText execution = schedule::read_execution_plan(root_, name_);
    take(std::move(execution.plan));
    // Names are looked up now, while the file is at hand: a plan is made again by them, and an
    // error of that moment would not name the file.
    file_.partitioner = root_.text("partitioner");
    require_known("partitioner", [&] {
      partition::partitioner_named(shown_text(file_.partitioner, kMostLettersOfName));
    });
    require_known("schedule",
                  [&] { schedule_in(shown_text(file_.actions.name, kMostLettersOfName)); });
    file_.model.name_hash = root_.hexadecimal("layer_name_hash");
    // What is left out has no limit; 0 would be a limit that nothing keeps to.
    if (root_.has("device_memory_bytes"))
      file_.device_memory = Bytes(root_.count("device_memory_bytes", 1, kMost53));
    if (root_.has("host_memory_bytes"))
      file_.host_memory = Bytes(root_.count("host_memory_bytes", 0, kMost53));
    if (root_.has("swaps_to")) read_swaps_to();
    for (std::size_t k = 0; k < execution.stages.size(); ++k) read_stage(execution.stages[k], k);
    file_.costs.shares.input = root_.number("kept_input_share", 0.0, 1.0);
    if (root_.has("copies_wait_bytes"))
      file_.costs.memory = Bytes(root_.count("copies_wait_bytes", 0, kMost53));
    JsonObject links = root_.object("links");
    for (const auto& each : kLinks) file_.costs.*each.field = read_link(links, each.key);
    if (links.has("shared_sums")) file_.costs.shared_sums = read_shared_sums(links);
    links.refuse_others();
    file_.fixed = by_rank(root_, "fixed_bytes");
    read_figures();
    if (root_.has("cluster")) file_.cluster = root_.object("cluster").compact_without({});
    root_.refuse_others();  // A limit whose name was misspelt would be none.
    return std::move(file_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(std::string_view pattern, const Args&... args) const {
    throw ConfigError("{}: {}", name_, message(pattern, args...));
  }

  /// `look_up` throws for an unknown name; the error then begins with the file and the key.
  template <typename LookUp>
  void require_known(const char* key, const LookUp& look_up) const {
    try {
      look_up();
    } catch (const ConfigError& error) {
      refuse("{}: {}", key, error.what());
    }
  }

  void take(schedule::ExecutionPlan plan) {
    file_.model.layers = plan.layers;
    file_.step = std::move(plan.step);
    file_.order = std::move(plan.order);
    for (const schedule::PlannedStage& stage : plan.stages) {
      JobFileStage& taken = file_.stages.emplace_back();
      taken.first = stage.first;
      taken.last = stage.last;
      taken.begins_with = stage.first_operator;
      taken.operators_before = stage.operators_before;
      // Ranks need the layers alone. Which of its points each one takes is read with the stage.
      for (const partition::LayerIndex layer : stage.recomputed)
        taken.recomputed.push_back({layer, 0});
      planner_schedule::StageCosts& costs = file_.costs.stages.emplace_back();
      costs.stash = stage.stash;
      costs.swapped = stage.swapped;
    }
    file_.data_parallel = plan.actions.data_parallel;
    const std::uint64_t micro_batches = plan.actions.all_micro_batches() * file_.data_parallel;
    file_.micro_batches = static_cast<std::uint32_t>(micro_batches);
    // The file counts the work of a step in batches of the profile, ranks in such batches per
    // micro-batch.
    file_.batch = file_.micro_batches * plan.micro_batch_size;
    file_.actions = std::move(plan.actions);
  }

  void read_swaps_to() {
    const std::string word = root_.text("swaps_to");
    if (word != kHosts && word != kDisks)
      refuse("swaps_to is '{}' instead of {} or {}", shown_text(word), kHosts, kDisks);
    file_.swaps_to_disks = word == kDisks;
  }

  /// What `take` has left out.
  void read_stage(JsonObject& stage, std::size_t k) {
    JobFileStage& read = file_.stages[k];
    read.first_name = stage.text("first_name");
    read.last_name = stage.text("last_name");
    const auto points =
        stage.counts<std::uint32_t>("recompute_points", read.recomputed.size(), 0, kMostPoints);
    for (std::size_t i = 0; i < points.size(); ++i) read.recomputed[i].point = points[i];
    read.whole_stash = Bytes(stage.count("whole_stash_bytes", 0, kMost53));
    planner_schedule::StageCosts& costs = file_.costs.stages[k];
    for (const auto& each : kTimes) costs.*each.field = stage.number(each.key, 0.0, kMostSeconds);
    for (const auto& each : kSizes) costs.*each.field = Bytes(stage.count(each.key, 0, kMost53));
    // What is swapped is a part of what a micro-batch keeps.
    if (costs.swapped > read.whole_stash)
      throw ConfigError("{} is {}, more than the {} that a micro-batch keeps there",
                        stage.place("swapped_bytes"), stored_size(costs.swapped),
                        stored_size(read.whole_stash));
    stage.refuse_others();
  }

  static TransferRate read_rate(JsonObject& object) {
    const TransferRate rate(object.number("bytes_per_second", 0.0, kMostRate));
    // As it is written: JSON has no infinity, so 0 stands for a link that takes no time for bytes.
    return rate.is_none() ? TransferRate::unlimited() : rate;
  }

  static LinkCosts read_link(JsonObject& links, const char* key) {
    JsonObject object = links.object(key);
    LinkCosts link;
    link.latency_seconds = object.number("latency_seconds", 0.0, kMostSeconds);
    link.rate = read_rate(object);
    object.refuse_others();
    return link;
  }

  static planner_schedule::SharedSums read_shared_sums(JsonObject& links) {
    JsonObject object = links.object("shared_sums");
    planner_schedule::SharedSums shared;
    shared.ranks = static_cast<std::uint32_t>(object.count("ranks", 1, kMostRanksOfJob));
    shared.rate = read_rate(object);
    object.refuse_others();
    return shared;
  }

  std::vector<Bytes> by_rank(JsonObject& object, const char* key) const {
    std::vector<Bytes> sizes;
    for (const std::uint64_t each : object.counts<std::uint64_t>(
             key, file_.actions.ranks.size(), 0, static_cast<std::int64_t>(kMost53)))
      sizes.emplace_back(each);
    return sizes;
  }

  void read_figures() {
    JsonObject figures = root_.object("figures");
    file_.step_seconds = figures.number("step_seconds", 0.0, kMostSeconds);
    file_.bound_seconds = figures.number("bound_seconds", 0.0, kMostSeconds);
    file_.bubble = figures.number("bubble", 0.0, 1.0);
    file_.peaks = by_rank(figures, "peak_bytes");
    file_.hosts = by_rank(figures, "host_bytes");
    const double gap = gap_of(file_.step_seconds, file_.bound_seconds);
    const double told_gap = figures.number("gap", 0.0, std::numeric_limits<double>::max());
    figures.refuse_others();
    // A step below the bound would disprove it, so one of the two was changed.
    if (is_faster(file_.step_seconds, file_.bound_seconds))
      refuse("its figures say that a step takes {}, and that none takes less than {}",
             seconds_text(file_.step_seconds), seconds_text(file_.bound_seconds));
    if (!is_same(1.0 + told_gap, 1.0 + gap))
      refuse("figures.gap is {}, and its step_seconds and bound_seconds make it {}",
             all_digits(told_gap), all_digits(gap));
  }

  const std::string& name_;
  const JsonText text_;
  JsonObject root_;
  JobFile file_;
};

}  // namespace

JobFile parse_job_file(std::string_view text, const std::string& name) {
  try {
    return JobReader(text, name).read();
  } catch (const ConfigError& error) {
    throw ConfigError("{}", with_next_step(error.what(), message("make the plan again with: {}",
                                                                 kJobPlanFormat.made_by)));
  } catch (const PlanError& error) {
    throw ConfigError("{}: {} (make the plan again with: {})", name, error.what(),
                      kJobPlanFormat.made_by);
  }
}

}  // namespace spillway::job
