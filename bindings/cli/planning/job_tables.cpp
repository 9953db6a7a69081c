#include "planning/job_report.h"

#include <algorithm>
#include <array>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

using job::HeldBytes;
using job::JobAttempt;
using job::JobPlan;
using job::JobRequest;
using nlohmann::ordered_json;
using partition::StageEstimate;

namespace {

constexpr std::array<Named<Bytes HeldBytes::*>, 8> kClasses{{{"weights", &HeldBytes::weights},
                                                             {"gradients", &HeldBytes::gradients},
                                                             {"optimizer", &HeldBytes::optimizer},
                                                             {"buffers", &HeldBytes::buffers},
                                                             {"stash", &HeldBytes::stash},
                                                             {"working", &HeldBytes::working},
                                                             {"relayed", &HeldBytes::relayed},
                                                             {"reserved", &HeldBytes::reserved}}};

Figure classes(const HeldBytes& bytes) {
  Figure figure{{}, {}};
  for (const auto& [name, field] : kClasses)
    figure.json[std::string(name)] = (bytes.*field).count();
  return figure;
}

/// "0-11" or, where branches were put apart, "0-7 12-15 20-21".
Figure layers(const layer_order::LayerOrder& order, const StageEstimate& stage) {
  constexpr std::size_t kRangesShown = 3;
  const auto ranges = layer_order::layers_at(order, stage.first_layer, stage.last_layer);
  Figure figure{{}, ordered_json::array()};
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    figure.json.push_back({ranges[i].first, ranges[i].last});
    if (i < kRangesShown)
      figure.text += message("{}{}-{}", i == 0 ? "" : " ", ranges[i].first, ranges[i].last);
  }
  if (ranges.size() > kRangesShown) figure.text += " ...";
  return figure;
}

Figure recomputed(const std::vector<partition::ChosenPoint>& points) {
  Figure figure{{}, ordered_json::array()};
  for (const partition::ChosenPoint& point : points) figure.json.push_back(point.layer);
  return figure;
}

std::string work_text(const JobRequest& request) {
  if (request.micro_batches == 0)
    return message("the work of {}", counted(batch_of(request), "micro-batch"));
  const std::string text = counted(request.micro_batches, "micro-batch");
  const std::uint32_t share = batch_of(request) / request.micro_batches;
  return share == 1 ? text : message("{} of {} profiled ones each", text, share);
}

/// Places between neighbouring layers that no tensor of the profile crosses.
std::size_t silent_cuts(const partition::ModelChain& chain) {
  std::vector<bool> is_crossed(chain.layers.size(), false);
  for (const partition::BorderTensor& border : chain.borders)
    for (const partition::LayerIndex consumer : border.consumers)
      for (partition::LayerIndex place = border.producer + 1; place <= consumer; ++place)
        is_crossed[place] = true;
  return static_cast<std::size_t>(std::count(is_crossed.begin() + 1, is_crossed.end(), false));
}

}  // namespace

std::string request_text(const JobRequest& request, const std::string& path,
                         const std::string& links) {
  std::string text =
      line("model", "{}, {}, {} for a micro-batch", path,
           counted(request.chain.layers.size(), "layer"), seconds_text(work_of(request.chain)));
  if (request.guesses_forward)
    text += line("guessed", "where forward ends, and which layers backward operators belong to, as "
                            "this profile does not tell (spillway profile records it)");
  text += line("job", "{}{}, {} per step", counted(request.ranks, "rank"),
               request.device_memory == partition::kNoLimit
                   ? std::string(" of any size (--device-memory limits it)")
                   : message(" of {}", request.device_memory),
               work_text(request));
  text += line("links", links);
  const std::size_t silent = silent_cuts(request.chain);
  if (silent > 0 && !request.link.rate.is_unlimited())
    text += line("unlisted",
                 "nothing that the profile lists crosses {} of the {} between layers: "
                 "messages there take no time (spillway profile with a smaller "
                 "--min-storage lists smaller tensors)",
                 silent, counted(request.chain.layers.size() - 1, "place"));
  return text;
}

std::string links_text(const JobRequest& request, cluster::SwapTarget target,
                       const std::string& machine) {
  const std::string peer = request.link.rate.is_unlimited()
                               ? "messages between ranks take no time" +
                                     std::string(machine.empty() ? " (--link names a rate)" : "")
                               : to_string(request.link.rate) + " between ranks";
  const std::string host =
      request.swap_rate.is_none()
          ? std::string("nothing is swapped (--link-out and --link-in name a link to the host)")
          : message("{} between each rank and its host's {}, either way", request.swap_rate,
                    target == cluster::SwapTarget::kDisk ? "disks" : "memory");
  return machine.empty() ? message("{}; {}", peer, host)
                         : message("{}; {}: what {} leaves a rank", peer, host, machine);
}

double work_of(const partition::ModelChain& chain) {
  double seconds = 0.0;
  for (const partition::ModelLayer& layer : chain.layers)
    seconds += layer.forward_seconds + layer.backward_seconds;
  return seconds;
}

Table stage_table(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  const std::vector<StageEstimate>& stages = plan.stages;
  using Stage = StageEstimate;
  using Held = schedule::HeldCounts;
  const auto name = [&](partition::LayerIndex place) {
    const auto layer = layer_order::layer_at(plan.order.layers, place);
    const std::string& text = job.request.chain.layers[layer].name;
    return Figure{shown_text(text, kMostLettersOfLayer), text};
  };
  const auto rank = [&](auto k) { return plan.actions.rank_of(0, static_cast<std::uint32_t>(k)); };
  const auto ranges = [&](const Stage& stage) { return layers(plan.order.layers, stage); };
  const auto copies = [](double count) { return Figure{message("{}", count), count}; };
  return {
      stages.size(),
      {{"stage", "", std::identity()},
       {"rank", "rank", rank},
       {"", "first", of(stages, &Stage::first_layer)},
       {"", "last", of(stages, &Stage::last_layer)},
       {"layers", "ranges", of(stages, ranges)},
       {"time", "seconds", of(stages, &Stage::seconds, Figure::duration)},
       {"", "raw_seconds", of(stages, &Stage::raw_seconds, Figure::duration)},
       {"", "link_seconds", of(stages, &Stage::link_seconds, Figure::duration)},
       {"recomputed", "recompute_seconds", of(stages, &Stage::recompute_seconds, Figure::duration)},
       {"swapped", "swapped_bytes", of(stages, &Stage::swapped)},
       {"held", "memory_bytes", of(stages, &Stage::memory)},
       {"before", "raw_memory_bytes", of(stages, &Stage::raw_memory)},
       {"parameters", "parameter_bytes", of(stages, &Stage::parameters)},
       {"begins with", "first_name", of(stages, &Stage::first_layer, name)},
       {"", "last_name", of(stages, &Stage::last_layer, name)},
       {"", "before", of(plan.bytes_before, classes)},
       {"", "after", of(plan.bytes_after, classes)},
       {"", "in_flight", of(plan.held, &Held::in_flight, copies)},
       {"", "weight_versions", of(plan.held, &Held::weight_versions, copies)},
       {"", "state_copies", of(plan.held, &Held::state_copies, copies)},
       {"", "recomputed", of(stages, &Stage::recomputed, recomputed)}}};
}

Table rank_table(const JobPlan& plan) {
  const auto& times = plan.timing.ranks;
  const auto& memory = plan.memory;
  using Times = planner_schedule::RankTiming;
  using Memory = job::RankMemory;
  const double step = plan.step_seconds;
  const auto bubble = [step](double busy) {
    return Figure::share(step > 0.0 ? (step - busy) / step : 0.0);
  };
  const auto actions = [&](schedule::ActionKind kind) {
    return [&plan, kind](std::size_t rank) { return count_of(plan, rank, kind); };
  };
  Table table{
      memory.size(),
      {{"rank", "", std::identity()},
       {"", "busy_seconds", of(times, &Times::busy_seconds, Figure::duration)},
       {"", "bubble", of(times, &Times::busy_seconds, bubble)},
       {"", "exposed_communication_seconds",
        of(times, &Times::exposed_communication_seconds, Figure::duration)},
       {"", "exposed_swap_seconds", of(times, &Times::exposed_swap_seconds, Figure::duration)}}};
  for (const auto& [name, field] : kClasses)
    table.columns.push_back(
        {name, "", of(memory, [field = field](const Memory& each) { return each.held.*field; })});
  table.columns.insert(table.columns.end(),
                       {{"peak", "peak_bytes", of(memory, &Memory::peak)},
                        {"", "held", of(memory, &Memory::held, classes)},
                        {"", "fixed_bytes", of(memory, &Memory::fixed)},
                        {"", "host_bytes", of(memory, &Memory::host)},
                        {"", "swap_actions", actions(schedule::ActionKind::kSwapOut)},
                        {"", "recompute_actions", actions(schedule::ActionKind::kRecompute)}});
  return table;
}

Table attempt_table(std::span<const JobAttempt> all) {
  using Attempt = JobAttempt;
  const auto schedule = [](const Attempt& each) {
    return Figure{job::schedule_text(each.schedule, each.variant), each.schedule};
  };
  return {all.size(),
          {{"schedule", "schedule", of(all, schedule)},
           {"", "variant", of(all, &Attempt::variant)},
           {"partitioner", "partitioner", of(all, &Attempt::partitioner)},
           // Of those without a plan several numbers were tried, and the reasons name them.
           {"data-parallel", "", if_possible(all, &Attempt::data_parallel)},
           {"micro-batches", "", if_possible(all, &Attempt::micro_batches)},
           {"", "data_parallel", of(all, &Attempt::data_parallel)},
           {"", "micro_batches", of(all, &Attempt::micro_batches)},
           {"", "is_possible", of(all, &Attempt::is_possible)},
           {"", "refusal", of(all, &Attempt::refusal)},
           {"step", "step_seconds", if_possible(all, &Attempt::step_seconds, Figure::duration)},
           {"", "seconds_per_micro_batch",
            if_possible(all, &Attempt::seconds_per_micro_batch, Figure::duration)},
           {"bubble", "bubble", if_possible(all, &Attempt::bubble, Figure::share)},
           {"waits", "exposed_communication_seconds",
            if_possible(all, &Attempt::exposed_communication_seconds, Figure::duration)},
           {"gap", "gap", if_possible(all, &Attempt::gap, Figure::share)},
           {"peak", "peak_bytes", if_possible(all, &Attempt::peak)},
           {"", "reduces_memory", if_possible(all, &Attempt::reduces_memory)},
           {"", "not_tried", if_possible(all, &Attempt::not_tried)}}};
}

std::uint64_t count_of(const JobPlan& plan, std::size_t rank, schedule::ActionKind kind) {
  const auto& list = plan.actions.ranks[rank];
  return static_cast<std::uint64_t>(
      std::count_if(list.begin(), list.end(),
                    [&](const schedule::Action& action) { return action.kind == kind; }));
}

}  // namespace spillway::cli
