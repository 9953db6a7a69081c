#include "planning/rebalance_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "planning/job_report.h"
#include "planning/planning_text.h"
#include "planning/request_text.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::JobPlan;
using planner::LayerIndex;
using planner::RankMove;
using planner::RebalanceChoice;

namespace {

constexpr std::size_t kRowsShown = 64;
constexpr std::size_t kMostLettersOfName = 44;

std::string steps_text(double count) { return counted(static_cast<std::uint64_t>(count), "step"); }

const std::string& name_at(const RebalanceReport& report, LayerIndex place) {
  return report.request.chain.layers[planner::layer_at(report.stored.order, place)].name;
}

std::string range_text(LayerIndex first, LayerIndex last) { return message("{}-{}", first, last); }

/// "aten::convolution #4 to aten::relu #5"
std::string names_text(const RebalanceReport& report, const RankMove& move) {
  const std::string first = shown_text(name_at(report, move.first_layer), kMostLettersOfName);
  if (move.first_layer == move.last_layer) return first;
  return first + " to " + shown_text(name_at(report, move.last_layer), kMostLettersOfName);
}

/// "pays after 3 steps, and gains 1.20 s in 100 steps"
std::string pays_text(const RebalanceReport& report, const RebalanceChoice& choice) {
  if (!report.job.before) return "pays at once: without it nothing runs";
  const double before = report.job.step_before();
  std::string text = message("pays after {}", steps_text(choice.pays_after(before).value_or(0.0)));
  if (!report.steps_left) return text + " (--steps-left names how many are left)";
  const double gained = *report.steps_left * (before - choice.step_seconds) - choice.move_seconds;
  return text +
         message(", and gains {} in {}", seconds_text(gained), steps_text(*report.steps_left));
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
  return message("nothing: the first move to pay does so after {}, and {} left",
                 steps_text(soonest),
                 steps_text(*report.steps_left) + (*report.steps_left == 1.0 ? " is" : " are"));
}

std::string whole_text(const RebalanceReport& report, const RebalanceChoice& choice) {
  const auto messages = std::count_if(choice.moves.begin(), choice.moves.end(),
                                      [](const RankMove& each) { return each.bytes > Bytes(0); });
  std::string text = message("{} in {}, {} at the end of a step", to_string(choice.bytes),
                             counted(static_cast<std::size_t>(messages), "message"),
                             counted(choice.rounds, "round"));
  if (report.request.data_parallel > 1)
    text += message("; each of {} pipelines does the same", report.request.data_parallel);
  if (std::isinf(report.request.link.bytes_per_second))
    text += "; messages take no time in this plan (--link names a rate)";
  return text;
}

std::string moves_table(const RebalanceReport& report, const RebalanceChoice& choice) {
  std::vector<std::vector<std::string>> rows{
      {"round", "from rank", "to rank", "layers", "bytes", "time", "which are"}};
  for (std::size_t i = 0; i < std::min(choice.moves.size(), kRowsShown); ++i) {
    const RankMove& move = choice.moves[i];
    rows.push_back({message("{}", move.round), message("{}", move.from_rank),
                    message("{}", move.to_rank), range_text(move.first_layer, move.last_layer),
                    to_string(move.bytes), seconds_text(move.seconds), names_text(report, move)});
  }
  std::string text = "\nMoves:\n" + table_text(rows);
  if (choice.moves.size() > kRowsShown)
    text += message("and {} more; --json tells all\n", choice.moves.size() - kRowsShown);
  return text;
}

std::string stages_table(const RebalanceReport& report) {
  const JobPlan& plan = report.job.plan;
  std::vector<std::vector<std::string>> rows{
      {"stage", "rank", "layers", "before", "time", "before", "held"}};
  for (std::size_t k = 0; k < std::min(plan.stages.size(), kRowsShown); ++k) {
    const planner::JobFileStage& stored = report.stored.stages[k];
    rows.push_back(
        {message("{}", k), message("{}", plan.actions.rank_of(0, static_cast<std::uint32_t>(k))),
         range_text(plan.stages[k].first_layer, plan.stages[k].last_layer),
         range_text(stored.first, stored.last), seconds_text(plan.stages[k].seconds),
         report.job.before ? seconds_text(report.job.before->stages[k].seconds) : std::string("-"),
         to_string(plan.stages[k].memory)});
  }
  std::string text = "\nStages, on the times of the new profile:\n" + table_text(rows);
  if (plan.stages.size() > kRowsShown)
    text += message("and {} more; --json tells all\n", plan.stages.size() - kRowsShown);
  return text;
}

std::string choices_table(const RebalanceReport& report) {
  if (report.job.choices.size() < (report.chosen() ? 2U : 1U)) return {};
  std::vector<std::vector<std::string>> rows{{"step", "moves", "rounds", "flush", "pays after"}};
  for (const RebalanceChoice& each : report.job.choices)
    rows.push_back({seconds_text(each.step_seconds), to_string(each.bytes),
                    message("{}", each.rounds), seconds_text(each.move_seconds),
                    steps_text(each.pays_after(report.job.step_before()).value_or(0.0))});
  return "\nAll choices:\n" + table_text(rows);
}

ordered_json known(double seconds) {
  return std::isfinite(seconds) ? ordered_json(seconds) : ordered_json();
}

ordered_json steps_json(const RebalanceReport& report, const RebalanceChoice& choice) {
  const auto steps = choice.pays_after(report.job.step_before());
  return steps ? ordered_json(static_cast<std::uint64_t>(*steps)) : ordered_json();
}

ordered_json moves_json(const RebalanceReport& report, const RebalanceChoice& choice) {
  ordered_json moves = ordered_json::array();
  for (const RankMove& move : choice.moves)
    moves.push_back({{"round", move.round},
                     {"first", move.first_layer},
                     {"last", move.last_layer},
                     {"first_name", name_at(report, move.first_layer)},
                     {"last_name", name_at(report, move.last_layer)},
                     {"from_rank", move.from_rank},
                     {"to_rank", move.to_rank},
                     {"bytes", move.bytes.count()},
                     {"seconds", move.seconds}});
  return moves;
}

ordered_json stages_json(const RebalanceReport& report) {
  const JobPlan& plan = report.job.plan;
  ordered_json stages = ordered_json::array();
  for (std::uint32_t k = 0; k < plan.stages.size(); ++k) {
    const planner::StageEstimate& stage = plan.stages[k];
    ordered_json before;
    if (report.job.before) before = known(report.job.before->stages[k].seconds);
    stages.push_back({{"rank", plan.actions.rank_of(0, k)},
                      {"first", stage.first_layer},
                      {"last", stage.last_layer},
                      {"first_before", report.stored.stages[k].first},
                      {"last_before", report.stored.stages[k].last},
                      {"seconds", stage.seconds},
                      {"seconds_before", std::move(before)},
                      {"memory_bytes", stage.memory.count()}});
  }
  return stages;
}

}  // namespace

std::string rebalance_text(const RebalanceReport& report) {
  const planner::JobRequest& request = report.request;
  const RebalanceChoice* const choice = report.chosen();
  std::string text = line("model", message("{}, {}, {} for a micro-batch", report.profile,
                                           counted(request.chain.layers.size(), "layer"),
                                           seconds_text(work_of(request.chain))));
  text += line("plan", message("{}: {} on {} of {}, {} per step", report.path,
                               planner::schedule_text(request.schedule, request.variant),
                               counted(request.data_parallel, "pipeline"),
                               counted(report.stored.actions.rank_count(), "rank"),
                               request.micro_batches == 1
                                   ? std::string("1 micro-batch")
                                   : message("{} micro-batches", request.micro_batches)));
  text += line("times", times_text(report));
  text += line("moves", choice ? whole_text(report, *choice) : stay_text(report));
  text += line("peak", message("{} on the fullest rank", report.job.plan.peak()));
  text += line("planned", message("in {}", seconds_text(report.search_seconds)));
  if (choice) text += moves_table(report, *choice);
  text += stages_table(report);
  return text + choices_table(report);
}

ordered_json rebalance_json(const RebalanceReport& report) {
  const planner::JobRequest& request = report.request;
  const RebalanceChoice* const choice = report.chosen();
  const double before = report.job.step_before();
  ordered_json json = {{"plan", report.path},
                       {"partitioner", request.partitioner},
                       {"schedule", planner::schedule_text(request.schedule, request.variant)},
                       {"ranks", request.ranks},
                       {"data_parallel", request.data_parallel},
                       {"micro_batches", request.micro_batches},
                       {"batch", request.batch},
                       {"planned_step_seconds", report.stored.step_seconds},
                       {"step_seconds_before", known(before)},
                       {"refusal_before", report.job.refusal},
                       {"step_seconds", report.job.plan.step_seconds},
                       {"bound", report.job.plan.bound_seconds},
                       {"peak_bytes", report.job.plan.peak().count()}};
  json["steps_left"] = report.steps_left
                           ? ordered_json(static_cast<std::uint64_t>(*report.steps_left))
                           : ordered_json();
  json["pays"] = choice != nullptr;
  json["pays_after_steps"] = choice ? steps_json(report, *choice) : ordered_json();
  json["gained_seconds"] = choice && report.steps_left && report.job.before
                               ? ordered_json(*report.steps_left * (before - choice->step_seconds) -
                                              choice->move_seconds)
                               : ordered_json();
  json["moved_bytes"] = choice ? choice->bytes.count() : 0;
  json["move_seconds"] = choice ? choice->move_seconds : 0.0;
  json["rounds"] = choice ? choice->rounds : 0;
  json["moves"] = choice ? moves_json(report, *choice) : ordered_json::array();
  json["stages"] = stages_json(report);
  json["choices"] = ordered_json::array();
  for (const RebalanceChoice& each : report.job.choices)
    json["choices"].push_back({{"step_seconds", each.step_seconds},
                               {"moved_bytes", each.bytes.count()},
                               {"move_seconds", each.move_seconds},
                               {"rounds", each.rounds},
                               {"pays_after_steps", steps_json(report, each)}});
  json["choices_without_room"] = report.job.without_room;
  json["search_seconds"] = report.search_seconds;
  json["model"] = {{"path", report.profile},
                   {"layers", request.chain.layers.size()},
                   {"micro_batch_seconds", work_of(request.chain)}};
  return json;
}

}  // namespace spillway::cli
