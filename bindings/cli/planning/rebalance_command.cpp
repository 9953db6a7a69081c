#include "planning/commands.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <vector>

#include "output_files.h"
#include "planning/job_report.h"
#include "planning/planning_step.h"
#include "planning/stored_job.h"
#include "progress_line.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/job/job_rebalance.h"
#include "spillway/planner/job/measured_model.h"

namespace spillway::cli {

using job::JobFileStage;
using job::JobPlan;
using job::JobRequest;
using job::RankMove;
using job::RebalanceChoice;
using nlohmann::ordered_json;
using partition::LayerIndex;
using partition::StageEstimate;

namespace {

/// A stored plan that was taken up with a new profile.
struct RebalanceReport {
  const RebalanceOptions& options;
  job::JobFile stored;
  job::JobRequest request{};
  job::RebalancedJob job{};
  double search_seconds = 0.0;

  /// The moves to make; null where the stages stay.
  const job::RebalanceChoice* chosen() const {
    return job.chosen ? &job.choices[*job.chosen] : nullptr;
  }
};

std::string steps_text(double count) { return counted(static_cast<std::uint64_t>(count), "step"); }

const std::string& name_at(const RebalanceReport& report, LayerIndex place) {
  return report.request.chain.layers[layer_order::layer_at(report.stored.order, place)].name;
}

std::string range_text(LayerIndex first, LayerIndex last) { return message("{}-{}", first, last); }

/// "aten::convolution #4 to aten::relu #5"
std::string names_text(const RebalanceReport& report, const RankMove& move) {
  const std::string first = shown_text(name_at(report, move.first_layer), kMostLettersOfLayer);
  if (move.first_layer == move.last_layer) return first;
  return first + " to " + shown_text(name_at(report, move.last_layer), kMostLettersOfLayer);
}

/// "pays after 3 steps, and gains 1.20 s in 100 steps"
std::string pays_text(const RebalanceReport& report, const RebalanceChoice& choice) {
  if (!report.job.before) return "pays at once: without it nothing runs";
  const double before = report.job.step_before();
  std::string text = message("pays after {}", steps_text(choice.pays_after(before).value_or(0.0)));
  if (!report.options.steps_left) return text + " (--steps-left names how many are left)";
  const double gained =
      *report.options.steps_left * (before - choice.step_seconds) - choice.move_seconds;
  return text + message(", and gains {} in {}", seconds_text(gained),
                        steps_text(*report.options.steps_left));
}

/// What a step took and takes, and what it costs to get there.
std::string times_text(const RebalanceReport& report) {
  std::string text =
      message("a step took {} when it was planned", seconds_text(report.stored.step_seconds));
  const RebalanceChoice* const choice = report.chosen();
  const double before = report.job.step_before();
  if (report.job.before)
    text += message(", takes {} now as it is cut", seconds_text(before));
  else
    text += message("; as it is cut it does not run any more: {}", report.job.refusal);
  if (!choice) return text + ", and stays so";
  text += message(", {} re-balanced", seconds_text(choice->step_seconds));
  if (report.job.before)
    text += message(" ({})", signed_percent_text(choice->step_seconds / before - 1.0));
  return text + message("; the flush takes {}, which {}", seconds_text(choice->move_seconds),
                        pays_text(report, *choice));
}

/// Why the stages stay.
std::string stay_text(const RebalanceReport& report) {
  if (report.job.choices.empty() && report.job.without_room > 0)
    return message(
        "nothing: ranks have no room for layers on the way to what would be quicker ({})",
        counted(report.job.without_room, "choice"));
  if (report.job.choices.empty()) return "nothing: no move of layers makes the step quicker";
  double soonest = report.job.choices.front().pays_after(report.job.step_before()).value_or(0.0);
  for (const RebalanceChoice& each : report.job.choices)
    soonest = std::min(soonest, each.pays_after(report.job.step_before()).value_or(soonest));
  return message(
      "nothing: the first move to pay does so after {}, and {} left", steps_text(soonest),
      steps_text(*report.options.steps_left) + (*report.options.steps_left == 1 ? " is" : " are"));
}

std::string whole_text(const RebalanceReport& report, const RebalanceChoice& choice) {
  const auto messages = std::count_if(choice.moves.begin(), choice.moves.end(),
                                      [](const RankMove& each) { return each.bytes > Bytes(0); });
  std::string text = message("{} in {}, {} at the end of a step", to_string(choice.bytes),
                             counted(static_cast<std::size_t>(messages), "message"),
                             counted(choice.rounds, "round"));
  if (report.request.data_parallel > 1)
    text += message("; each of {} pipelines does the same", report.request.data_parallel);
  if (report.request.link.rate.is_unlimited())
    text += "; messages take no time in this plan (--link names a rate)";
  return text;
}

constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// Null for what is not known.
Figure seconds_if_known(double seconds) {
  return std::isfinite(seconds) ? Figure::duration(seconds) : Figure("-", nullptr);
}

Figure pays_after(const RebalanceReport& report, const RebalanceChoice& choice) {
  const auto steps = choice.pays_after(report.job.step_before());
  if (!steps) return {steps_text(0.0), nullptr};
  return {steps_text(*steps), static_cast<std::uint64_t>(*steps)};
}

Table move_table(const RebalanceReport& report, const std::vector<RankMove>& moves) {
  using Move = RankMove;
  const auto name = [&](LayerIndex place) { return name_at(report, place); };
  const auto range = [](const Move& move) { return range_text(move.first_layer, move.last_layer); };
  const auto names = [&](const Move& move) { return names_text(report, move); };
  return {moves.size(),
          {{"round", "round", of(moves, &Move::round)},
           {"from rank", "from_rank", of(moves, &Move::from_rank)},
           {"to rank", "to_rank", of(moves, &Move::to_rank)},
           {"layers", "", of(moves, range)},
           {"", "first", of(moves, &Move::first_layer)},
           {"", "last", of(moves, &Move::last_layer)},
           {"", "first_name", of(moves, &Move::first_layer, name)},
           {"", "last_name", of(moves, &Move::last_layer, name)},
           {"bytes", "bytes", of(moves, &Move::bytes)},
           {"time", "seconds", of(moves, &Move::seconds, Figure::duration)},
           {"which are", "", of(moves, names)}}};
}

Table stage_table(const RebalanceReport& report) {
  using Stage = StageEstimate;
  const JobPlan& plan = report.job.plan;
  const std::vector<Stage>& stages = plan.stages;
  const std::vector<JobFileStage>& stored = report.stored.stages;
  const auto rank = [&](auto k) { return plan.actions.rank_of(0, static_cast<std::uint32_t>(k)); };
  const auto range = [](const Stage& each) {
    return range_text(each.first_layer, each.last_layer);
  };
  const auto old_range = [](const JobFileStage& each) { return range_text(each.first, each.last); };
  const auto before = [&](std::size_t k) {
    return seconds_if_known(report.job.before ? report.job.before->stages[k].seconds : kUnknown);
  };
  return {stages.size(),
          {{"stage", "", std::identity()},
           {"rank", "rank", rank},
           {"layers", "", of(stages, range)},
           {"", "first", of(stages, &Stage::first_layer)},
           {"", "last", of(stages, &Stage::last_layer)},
           {"before", "", of(stored, old_range)},
           {"", "first_before", of(stored, &JobFileStage::first)},
           {"", "last_before", of(stored, &JobFileStage::last)},
           {"time", "seconds", of(stages, &Stage::seconds, Figure::duration)},
           {"before", "seconds_before", before},
           {"held", "memory_bytes", of(stages, &Stage::memory)}}};
}

Table choice_table(const RebalanceReport& report) {
  using Choice = RebalanceChoice;
  const std::vector<Choice>& choices = report.job.choices;
  const auto pays = [&](const Choice& choice) { return pays_after(report, choice); };
  return {choices.size(),
          {{"step", "step_seconds", of(choices, &Choice::step_seconds, Figure::duration)},
           {"moves", "moved_bytes", of(choices, &Choice::bytes)},
           {"rounds", "rounds", of(choices, &Choice::rounds)},
           {"flush", "move_seconds", of(choices, &Choice::move_seconds, Figure::duration)},
           {"pays after", "pays_after_steps", of(choices, pays)}}};
}

/// The step before and after, each move, whether it pays, other choices, and the stages.
std::string rebalance_text(const RebalanceReport& report) {
  const job::JobRequest& request = report.request;
  const RebalanceChoice* const choice = report.chosen();
  std::string text =
      line("model", "{}, {}, {} for a micro-batch", report.options.profile,
           counted(request.chain.layers.size(), "layer"), seconds_text(work_of(request.chain)));
  text += line("plan", "{}: {} on {} of {}, {} per step", report.options.plan,
               job::schedule_text(request.schedule, request.variant),
               counted(request.data_parallel, "pipeline"),
               counted(report.stored.actions.rank_count(), "rank"),
               counted(request.micro_batches, "micro-batch"));
  text += line("times", times_text(report));
  text += line("moves", choice ? whole_text(report, *choice) : stay_text(report));
  text += line("peak", "{} on the fullest rank", report.job.plan.peak());
  text += line("planned", "in {}", seconds_text(report.search_seconds));
  if (choice) text += "\nMoves:\n" + table_text(move_table(report, choice->moves));
  text += "\nStages, on the times of the new profile:\n" + table_text(stage_table(report));
  const std::size_t choices = report.job.choices.size();
  if (choices < (choice ? 2U : 1U)) return text;
  return text + "\nAll choices:\n" + table_text(choice_table(report), {}, kAllRows);
}

/// The keys that planning_output.md describes.
ordered_json rebalance_json(const RebalanceReport& report) {
  const job::JobRequest& request = report.request;
  const RebalanceChoice* const choice = report.chosen();
  const double before = report.job.step_before();
  ordered_json json = {{"plan", report.options.plan},
                       {"partitioner", request.partitioner},
                       {"schedule", job::schedule_text(request.schedule, request.variant)},
                       {"ranks", request.ranks},
                       {"data_parallel", request.data_parallel},
                       {"micro_batches", request.micro_batches},
                       {"batch", request.batch},
                       {"planned_step_seconds", report.stored.step_seconds},
                       {"step_seconds_before", seconds_if_known(before).json},
                       {"refusal_before", report.job.refusal},
                       {"step_seconds", report.job.plan.step_seconds},
                       {"bound", report.job.plan.bound_seconds},
                       {"peak_bytes", report.job.plan.peak().count()}};
  json["steps_left"] =
      report.options.steps_left ? ordered_json(*report.options.steps_left) : ordered_json();
  json["pays"] = choice != nullptr;
  json["pays_after_steps"] = choice ? pays_after(report, *choice).json : ordered_json();
  json["gained_seconds"] =
      choice && report.options.steps_left && report.job.before
          ? ordered_json(*report.options.steps_left * (before - choice->step_seconds) -
                         choice->move_seconds)
          : ordered_json();
  json["moved_bytes"] = choice ? choice->bytes.count() : 0;
  json["move_seconds"] = choice ? choice->move_seconds : 0.0;
  json["rounds"] = choice ? choice->rounds : 0;
  json["moves"] = choice ? table_json(move_table(report, choice->moves)) : ordered_json::array();
  json["stages"] = table_json(stage_table(report));
  json["choices"] = table_json(choice_table(report));
  json["choices_without_room"] = report.job.without_room;
  json["search_seconds"] = report.search_seconds;
  json["model"] = {{"path", report.options.profile},
                   {"layers", request.chain.layers.size()},
                   {"micro_batch_seconds", work_of(request.chain)}};
  return json;
}

void require_same(bool is_same, const char* option, const std::string& said,
                  const std::string& held, const std::string& plan) {
  if (!is_same)
    throw ConfigError("{} of {} contradicts {}, which has {} (leave it out, or plan anew with: "
                      "spillway plan-job)",
                      option, said, plan, held);
}

/// A limit that the plan has not may be said now.
void hold_limit(const char* option, const std::optional<Bytes>& said, const std::string& plan,
                Bytes& held) {
  if (!said) return;
  require_same(held == partition::kNoLimit || held == *said, option, to_string(*said),
               to_string(held), plan);
  held = *said;
}

/// So may a link. `is_known`: the plan has one.
void hold_link(const char* option, TransferRate rate, bool is_known, const std::string& plan,
               TransferRate& held) {
  constexpr double kRounding = 1e-9;
  require_same(!is_known || std::abs(rate / held - 1.0) <= kRounding, option, to_string(rate),
               to_string(held), plan);
  held = rate;
}

void hold_to_options(const RebalanceOptions& options, const job::JobFile& stored,
                     const profile::StepProfile& profile, JobRequest& request) {
  const RateOptions& rates = options.rates;
  hold_limit("--device-memory", options.device_memory, options.plan, request.device_memory);
  if (options.link)
    hold_link("--link", *options.link, !request.link.rate.is_unlimited(), options.plan,
              request.link.rate);
  if (rates.link_out)
    hold_link("--link-out", swap_rates(rates, 1, profile).host, !request.swap_rate.is_none(),
              options.plan, request.swap_rate);
  if (rates.host_memory && stored.swaps_to_disks)
    throw ConfigError(
        "--host-memory {} has no place beside {}, which swaps to disks (leave it out)",
        as_option(*rates.host_memory), options.plan);
  if (rates.host_memory && request.swap_rate.is_none())
    throw ConfigError(
        "--host-memory {} is for what is swapped, and {} has no link to the host (add "
        "--link-out and --link-in)",
        as_option(*rates.host_memory), options.plan);
  hold_limit("--host-memory", rates.host_memory, options.plan, request.host_memory);
}

}  // namespace

void rebalance_plan(const RebalanceOptions& options, std::ostream& out, const Clock& clock) {
  const std::string& path = options.plan;
  check_outputs({{"PLAN", path}, {"PROFILE", options.profile}}, {{"--out", options.out}});
  if (is_stored_job(options.profile) && !is_stored_job(path))
    throw ConfigError(
        "{} is a plan for many ranks, and stands in the place of the profile (spillway "
        "rebalance {} {})",
        options.profile, shell_word(options.profile), shell_word(path));
  const job::JobFile stored = stored_job(path);
  const profile::StepProfile profile = load_step(options.profile).profile;
  RebalanceReport report{.options = options, .stored = stored};
  report.request = job::request_of(stored, path, job::measured_model(profile), options.profile);
  hold_to_options(options, stored, profile, report.request);
  const TimePoint begin = clock.now();
  {
    ProgressLine progress;
    progress.show(message("re-balancing {} on {}",
                          counted(report.request.chain.layers.size(), "layer"),
                          counted(report.request.ranks, "rank")));
    report.job = job::rebalance_job(report.request, options.steps_left);
    progress.clear();
  }
  report.search_seconds = seconds(clock.now() - begin);
  if (!options.out.empty())
    store_job(report.job.plan, report.request.chain, swap_target_of(stored), stored.cluster,
              options.out);
  out << (options.json ? json_text(rebalance_json(report)) : rebalance_text(report));
  if (!options.out.empty() && !options.json) out << stored_text(report.job.plan, options.out);
}

}  // namespace spillway::cli
