#include <limits>

#include "job_file_keys.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/job_variant.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::planner {
namespace {

constexpr std::uint64_t kMost53 = std::uint64_t{1} << 53;  // Exact in every reader of JSON.
constexpr std::uint64_t kMostLayers = 10'000'000;
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
    root_.require_format(kJobFileFormat);
    const std::uint64_t version = root_.count("version", 1, kMost53);
    if (version > kJobFileVersion)
      refuse("version {} of the format is newer than this Spillway, which reads {} (use a newer "
             "Spillway)",
             version, kJobFileVersion);
    file_.partitioner = root_.text("partitioner");
    require_known("partitioner",
                  [&] { partitioner_named(shown_text(file_.partitioner, kMostLettersOfName)); });
    file_.model.layers = static_cast<std::uint32_t>(root_.count("layers", 1, kMostLayers));
    file_.model.name_hash = root_.hexadecimal("layer_name_hash");
    file_.groups = static_cast<std::uint32_t>(root_.count("groups", 1, kMostRanksOfJob));
    file_.micro_batches =
        static_cast<std::uint32_t>(root_.count("micro_batches", 1, kMostRanksOfJob));
    file_.batch = file_.micro_batches;
    if (root_.has("batch"))
      file_.batch = static_cast<std::uint32_t>(root_.count("batch", 1, kMostRanksOfJob));
    if (file_.batch % file_.micro_batches != 0)
      refuse("a batch of {} is not shared evenly by {} micro-batches", file_.batch,
             file_.micro_batches);
    if (root_.has("device_memory_bytes"))
      file_.device_memory = Bytes(root_.count("device_memory_bytes", 1, kMost53));
    if (root_.has("host_memory_bytes"))
      file_.host_memory = Bytes(root_.count("host_memory_bytes", 0, kMost53));
    if (root_.has("swaps_to")) read_swaps_to();
    if (root_.has("order"))
      file_.order = root_.counts<LayerIndex>("order", file_.model.layers, 0, last_layer());
    for (JsonObject& stage : root_.objects("stages")) read_stage(stage);
    file_.costs.shares.input = root_.number("kept_input_share", 0.0, 1.0);
    if (root_.has("copies_wait_bytes"))
      file_.costs.memory = Bytes(root_.count("copies_wait_bytes", 0, kMost53));
    JsonObject links = root_.object("links");
    for (const LinkField& each : kLinks) file_.costs.*each.field = read_link(links, each.key);
    if (links.has("shared_sums")) file_.costs.shared_sums = read_shared_sums(links);
    links.refuse_others();
    read_actions();
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

  /// `look_up` throws for a name that nobody has; the error then begins with the file and the key.
  template <typename LookUp>
  void require_known(const char* key, const LookUp& look_up) const {
    try {
      look_up();
    } catch (const ConfigError& error) {
      refuse("{}: {}", key, error.what());
    }
  }

  LayerIndex last_layer() const { return file_.model.layers - 1; }

  void read_swaps_to() {
    const std::string word = root_.text("swaps_to");
    if (word != kHosts && word != kDisks)
      refuse("swaps_to is '{}' instead of {} or {}", shown_text(word), kHosts, kDisks);
    file_.swaps_to_disks = word == kDisks;
  }

  void read_stage(JsonObject& stage) {
    JobFileStage read;
    read.first = static_cast<LayerIndex>(stage.count("first", 0, last_layer()));
    read.last = static_cast<LayerIndex>(stage.count("last", 0, last_layer()));
    read.first_name = stage.text("first_name");
    read.last_name = stage.text("last_name");
    read_recomputed(stage, read);
    read.whole_stash = Bytes(stage.count("whole_stash_bytes", 0, kMost53));
    file_.stages.push_back(std::move(read));
    StageCosts& costs = file_.costs.stages.emplace_back();
    for (const TimeField& each : kTimes)
      costs.*each.field = stage.number(each.key, 0.0, kMostSeconds);
    for (const SizeField& each : kSizes)
      costs.*each.field = Bytes(stage.count(each.key, 0, kMost53));
    if (costs.swapped > file_.stages.back().whole_stash)
      throw ConfigError("{} is {}, and all that a micro-batch keeps there is {}",
                        stage.place("swapped_bytes"), costs.swapped,
                        file_.stages.back().whole_stash);
    stage.refuse_others();
  }

  /// Each layer once, in the order in which they run.
  static void read_recomputed(JsonObject& stage, JobFileStage& read) {
    const auto layers =
        stage.counts<LayerIndex>("recomputed", JsonObject::kAnySize, read.first, read.last);
    const auto points =
        stage.counts<std::uint32_t>("recompute_points", layers.size(), 0, kMostPoints);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (i > 0 && layers[i] == layers[i - 1])
        throw ConfigError("{} names layer {} twice", stage.place("recomputed"), layers[i]);
      if (i > 0 && layers[i] < layers[i - 1])
        throw ConfigError("{} names layer {} behind layer {}; layers stand there as they run",
                          stage.place("recomputed"), layers[i], layers[i - 1]);
      read.recomputed.push_back({layers[i], points[i]});
    }
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
    file_.actions = schedule::read_schedule_csv(csv, name_ + ", actions");
    file_.actions.name = root_.text("schedule");
    require_known("schedule",
                  [&] { schedule_in(shown_text(file_.actions.name, kMostLettersOfName)); });
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
    read_ranks();
    file_.fixed = by_rank(root_, "fixed_bytes");
  }

  void read_ranks() {
    const std::uint64_t told = root_.count("ranks", 1, kMost53);
    const std::uint64_t all = std::uint64_t{file_.actions.rank_count()} * file_.groups;
    if (told != all)
      refuse("ranks is {}, and {} groups of {} lists of actions are {}", told, file_.groups,
             file_.actions.rank_count(), all);
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
    throw ConfigError("{}", with_next_step(error.what(), "make the plan again with: spillway plan "
                                                         "PROFILE --ranks COUNT --out FILE"));
  } catch (const PlanError& error) {
    throw ConfigError("{}: {} (make the plan again with: spillway plan PROFILE --ranks COUNT --out "
                      "FILE)",
                      name, error.what());
  }
}

}  // namespace spillway::planner
