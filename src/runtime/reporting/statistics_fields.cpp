#include "statistics_fields.h"

#include "spillway/base/error.h"

namespace spillway::runtime {
namespace {

using Json = nlohmann::ordered_json;
using S = RunStatistics;

Json rate(const S& s, TransferRate profile::TransferRates::*field) {
  return s.rates ? Json(((*s.rates).*field).bytes_per_second()) : Json();
}

Json given_plan(const S& s) {
  if (!s.given_plan) return {};
  const S::GivenPlan& plan = *s.given_plan;
  return {{"file", plan.file},
          {"budget_bytes", plan.budget.count()},
          {"write_bytes_per_second", plan.rates.write.bytes_per_second()},
          {"read_bytes_per_second", plan.rates.read.bytes_per_second()},
          {"step_seconds", plan.step_seconds},
          {"followed_steps", plan.steps},
          {"steps", plan.all_steps},
          {"misfit", plan.misfit}};
}

Json stalls(const S& s) {
  auto list = Json::array();
  for (const StallCause& cause : s.stalls)
    list.push_back({{"op", cause.op},
                    {"times", cause.times},
                    {"fetch_wait_seconds", seconds(cause.for_inputs)},
                    {"write_wait_seconds", seconds(cause.for_room)}});
  return list;
}

Json value_stalls(const S& s) {
  auto list = Json::array();
  for (const ValueStall& stall : s.learned.stalls)
    list.push_back({{"value", stall.value},
                    {"bytes", stall.bytes.count()},
                    {"made_by", stall.made_by},
                    {"times", stall.times},
                    {"fetch_wait_seconds", seconds(stall.for_inputs)},
                    {"write_wait_seconds", seconds(stall.for_room)}});
  return list;
}

Json of_rank(const RanksReport::Row& row) {
  const RankFigures& figures = row.figures;
  Json json = {{"host", row.host},
               {"stages", row.stages},
               {"threads", figures.threads},
               {"budget_bytes", figures.budget_bytes},
               {"parameter_bytes", figures.parameter_bytes},
               {"peak_bytes", figures.peak_bytes},
               {"gpu_budget_bytes", figures.gpu_budget_bytes},
               {"gpu_peak_bytes", figures.gpu_peak_bytes},
               {"gpu_spilled_bytes", figures.gpu_spilled_bytes},
               {"gpu_sent_bytes", figures.gpu_sent_bytes},
               {"gpu_staged_bytes", figures.gpu_staged_bytes},
               {"spilled_bytes", figures.spilled_bytes},
               {"micro_batches", figures.micro_batches},
               {"steps", figures.steps},
               {"seconds", figures.seconds},
               {"busy_seconds", figures.busy_seconds},
               {"idle_for_ranks_seconds", figures.idle_for_ranks_seconds},
               {"idle_for_reads_seconds", figures.idle_for_reads_seconds},
               {"idle_for_program_seconds", figures.idle_for_program_seconds},
               {"most_awaited_rank", Json()},
               {"idle_for_most_awaited_seconds", figures.idle_for_most_awaited_seconds},
               {"reads", figures.reads},
               {"reads_seconds", figures.reads_seconds},
               {"most_reads", figures.most_reads},
               {"most_read_by", figures.most_read_by.data()}};
  if (figures.most_awaited != RankFigures::kNobody)
    json["most_awaited_rank"] = figures.most_awaited;
  return json;
}

Json ranks(const S& s) {
  if (!s.ranks) return {};
  auto list = Json::array();
  for (const RanksReport::Row& row : s.ranks->rows) list.push_back(of_rank(row));
  return list;
}

Json layer_moves(const S& s) {
  if (!s.ranks) return {};
  const LayerMoves& moves = s.ranks->moves;
  return {{"times", moves.times},
          {"parameters", moves.parameters},
          {"bytes", moves.bytes},
          {"seconds_before", moves.seconds_before},
          {"seconds_forecast", moves.seconds_forecast},
          {"seconds_after", moves.seconds_after ? Json(*moves.seconds_after) : Json()}};
}

Json devices(const S& s) {
  auto list = Json::array();
  for (const S& device : s.devices) {
    Json json;
    for (const StatisticsField& field : statistics_fields())
      if (!field.is_of_process) json[std::string(field.key)] = field.value(device);
    list.push_back(std::move(json));
  }
  return list;
}

constexpr bool kOfProcess = true;

// clang-format off
constexpr StatisticsField kFields[] = {
  {"format", "", [](const S&) -> Json { return "spillway run statistics"; },
   "\"spillway run statistics\"", kOfProcess},
  {"version", "", [](const S&) -> Json { return 1; }, "1", kOfProcess},
  {"spillway_version", "", [](const S& s) -> Json { return s.spillway_version; },
   "version of Spillway", kOfProcess},
  {"libtorch_version", "", [](const S& s) -> Json { return s.libtorch_version; },
   "version of the trainer's LibTorch", kOfProcess},
  {"device", "", [](const S& s) -> Json { return s.device; },
   "whose memory and tensors the figures are about: \"cpu\", and in `devices` \"cuda:0\" and so on"},
  {"device_name", "", [](const S& s) -> Json { return s.device_name; }, "name of the card; empty for the CPU"},
  {"device_memory_bytes", "bytes", [](const S& s) -> Json { return s.device_memory.count(); },
   "memory of the card; 0 for the CPU"},
  {"program", "", [](const S& s) -> Json { return s.program; },
   "name of the program, as the process was called", kOfProcess},
  {"process_id", "", [](const S& s) -> Json { return s.process_id; },
   "process id", kOfProcess},
  {"rank", "", [](const S& s) -> Json { return s.rank ? Json(*s.rank) : Json(); },
   "rank in a launched job; null outside of one", kOfProcess},
  {"ranks", "", ranks,
   "in the file of the first rank of a split program, a row for each rank; else null. `host`; `stages` that it "
   "computes; `threads` of operators; `budget_bytes`, `peak_bytes`, `spilled_bytes` and `steps`, as above; "
   "`gpu_budget_bytes`, `gpu_peak_bytes` and `gpu_spilled_bytes`, the same of its GPU: 0 without one, and without "
   "a budget where that memory is LibTorch's own; `gpu_sent_bytes` of tensors there that left straight for another "
   "rank's GPU, and `gpu_staged_bytes` that left for other ranks, or came from them, by way of the host; "
   "`parameter_bytes` that it keeps; `micro_batches` of the run; `seconds` from its first task to its last, and "
   "in these `busy_seconds`, with a task, `idle_for_ranks_seconds`, until a message was there that the next task"
   " needed, `idle_for_reads_seconds`, until the program had the bytes that it was waiting for and went on to "
   "the next task, and `idle_for_program_seconds`, until the program had come to the next task; "
   "`most_awaited_rank`, whose messages ended most of the idle time for ranks (null: nobody's), and "
   "`idle_for_most_awaited_seconds`; `reads`, times that the program waited for the bytes of a tensor, "
   "`reads_seconds`, how long, and `most_reads`, by `most_read_by`, the operator that waited longest", kOfProcess},

  {"layer_moves", "", layer_moves,
   "layers that moved between the ranks of a split program: `times`; `parameters` and `bytes` that moved; "
   "of the slowest stage for a micro-batch `seconds_before`, as measured before the first move, `seconds_forecast`, "
   "what it was to take behind the last one, and `seconds_after`, as measured there (null: the run ended or went "
   "on with another model before it was known). Null where `ranks` is", kOfProcess},

  {"devices", "", devices,
   "an object for each GPU that the program used, in the order of their first use, with all keys of this table but "
   "those about the process: `format`, `version`, `spillway_version`, `libtorch_version`, `program`, `process_id`, "
   "`rank`, `ranks`, `layer_moves`, `devices`, `peak_rss_bytes`, `run_seconds`, `endurance_bytes`, "
   "`recompute`, `recorded_peak_bytes`, `verified_kinds`, `verified_operators`, `differing_kinds`, `mapper`, "
   "`dispatch_key`, `directories`, `prefetch`, `verify`", kOfProcess},

  {"budget_bytes", "bytes", [](const S& s) -> Json { return s.budget.count(); },
   "limit on the bytes of tensors in memory"},
  {"budget_origin", "", [](const S& s) -> Json { return s.budget_origin; },
   "origin of the budget: given, or how it was derived"},
  {"peak_bytes", "bytes", [](const S& s) -> Json { return s.memory.counted_peak.count(); },
   "largest bytes of tensors in memory at any time; never above the budget"},
  {"needed_bytes", "bytes", [](const S& s) -> Json { return s.memory.live_peak.count(); },
   "largest live tensor bytes wherever they were: what the trainer would have taken. Of the whole run, at one "
   "moment; what `profile` and `plan` call \"at once in the step\" is of one kind of step, with the most small "
   "tensors that the run ever had beside its largest pages, so it may be a little more (or less, where another "
   "part of the run needs most). While `has_whole_step` is false a step may need more"},
  {"small_peak_bytes", "bytes", [](const S& s) -> Json { return s.memory.small_peak.count(); },
   "largest bytes of tensors that are too small to be paged"},
  {"shared_peak_bytes", "bytes", [](const S& s) -> Json { return s.shared_peak.count(); },
   "largest bytes of pages, in memory or not, that storages from 4 KiB to `--min-storage` shared at any time"},
  {"peak_rss_bytes", "bytes", [](const S& s) -> Json { return s.peak_rss.count(); },
   "largest resident set of the process, libraries included", kOfProcess},
  {"largest_op_needs_bytes", "bytes", [](const S& s) -> Json { return s.smallest_budget.count(); },
   "what the largest operator so far held at once, with all that is too small to leave and a page to spare: the "
   "smallest budget that surely does for what has run; 0 when none was seen"},
  {"largest_op", "", [](const S& s) -> Json { return s.largest_op; },
   "name of that operator"},
  {"oversize_ops", "", [](const S& s) -> Json { return s.oversize.ops; },
   "operators that needed more than the budget and were paged through"},
  {"oversize_moved_bytes", "bytes", [](const S& s) -> Json { return s.oversize.moved.count(); },
   "bytes swapped out and in while they ran"},
  {"refusal", "", [](const S& s) -> Json { return s.refusal.text; },
   "why the run could not go on, or only slowly. Empty when nothing was refused, and once the same operator got "
   "through or a step ended after it; operators that were larger than the budget and came through are told of at the "
   "end of the run, as `budget`"},
  {"refusal_cause", "", [](const S& s) -> Json { return name_of(s.refusal.cause); },
   "of which kind that is: `budget`, an operator that does not fit; `store`, disks that are full or take no "
   "writes; `unreadable`, what they hold does not come back as it was; `recomputation`, a dropped tensor that "
   "cannot be recomputed; `pinned`, tensors that the program has locked in memory (mlock) or a device uses; "
   "`addresses`, tensors in memory and on disk take all that are reserved"},

  {"steps", "", [](const S& s) -> Json { return s.steps; },
   "recognised training steps, the last one too once its optimizer has begun"},
  {"has_whole_step", "", [](const S& s) -> Json { return s.has_whole_step; },
   "whether a step has come to its end: another began, or the program ended by itself after an update had "
   "begun"},
  {"step_seconds_median", "s", [](const S& s) -> Json { return s.step_seconds_median; },
   "median time of the latest 65536 steps (of the latest 64 where only their repetition showed them)"},
  {"run_seconds", "s", [](const S& s) -> Json { return s.run_seconds; },
   "time since Spillway started in the process", kOfProcess},
  {"stall_seconds", "s", [](const S& s) -> Json { return s.stall_seconds(); },
   "time that threads of the trainer waited for Spillway, summed over threads: the sum of the next three"},
  {"fetch_wait_seconds", "s", [](const S& s) -> Json { return seconds(s.memory.fetch_wait); },
   "stalls of operators until their inputs were in memory"},
  {"write_wait_seconds", "s", [](const S& s) -> Json { return seconds(s.memory.room_wait); },
   "stalls of operators for room, that is until other bytes were written out"},
  {"trap_wait_seconds", "s", [](const S& s) -> Json { return seconds(s.memory.fault_wait); },
   "stalls of accesses outside of operators, each from its report to its end"},
  {"trap_count", "", [](const S& s) -> Json { return s.memory.faults; },
   "number of such accesses"},
  {"intercept_seconds", "s", [](const S& s) -> Json { return s.intercept_seconds; },
   "time to find the tensors of operators, for bookkeeping and for planning, estimated from one operator in "
   "64; the cost of one more pass through the dispatcher is not included (see "
   "`benchmarks/what_does_interception_cost`)"},
  {"disk_busy_seconds", "s", [](const S& s) -> Json { return seconds(s.memory.store.busy_time); },
   "time with at least one transfer in flight"},

  {"spilled_bytes", "bytes", [](const S& s) -> Json { return s.memory.spilled.count(); },
   "bytes written to the store"},
  {"fetched_bytes", "bytes", [](const S& s) -> Json { return s.memory.fetched.count(); },
   "bytes read from the store"},
  {"disk_written_bytes", "bytes", [](const S& s) -> Json { return s.disk_written.count(); },
   "bytes that the store wrote to its disks, which wears them; 0 for stores in memory"},
  {"host_tier_bytes", "bytes", [](const S& s) -> Json { return s.memory.store.host.capacity.count(); },
   "size of the host memory tier before the disks, as set by `ram:` of `--nvme`; 0 without it, as the next "
   "four. Of GPUs, where it is pinned, without what pages on their way past it take"},
  {"host_tier_peak_bytes", "bytes", [](const S& s) -> Json { return s.memory.store.host.peak.count(); },
   "largest bytes in that tier"},
  {"host_written_bytes", "bytes", [](const S& s) -> Json { return s.memory.store.host.written.count(); },
   "part of the spilled bytes that went to that tier"},
  {"host_read_bytes", "bytes", [](const S& s) -> Json { return s.memory.store.host.read.count(); },
   "part of the fetched bytes that came from that tier"},
  {"demoted_bytes", "bytes", [](const S& s) -> Json { return s.memory.store.host.demoted.count(); },
   "bytes that went on from that tier to the disks; counted as spilled only once"},
  {"directly_written_bytes", "bytes", [](const S& s) -> Json { return s.memory.store.directly_written.count(); },
   "part of the spilled bytes that a GPU wrote to the disks itself, past host memory (`--gds`)"},
  {"directly_read_bytes", "bytes", [](const S& s) -> Json { return s.memory.store.directly_read.count(); },
   "part of the fetched bytes that it read from there itself"},
  {"host_update_bytes", "bytes", [](const S& s) -> Json { return s.memory.worked_on_host.count(); },
   "with `--update host`: pages of a GPU that optimizers wrote or read in host memory, each time; 0 of the CPU"},
  {"host_update_wait_seconds", "s", [](const S& s) -> Json { return seconds(s.memory.host_wait); },
   "time that optimizers waited for these to be in host memory"},
  {"host_update_sent_bytes", "bytes", [](const S& s) -> Json { return s.sent_to_host.count(); },
   "with `--update host`: pages of a GPU, gradients above all, that were asked for in backward, when the last "
   "operator before the update had ended, and not by the update; those that had left the GPU already count, too"},
  {"clean_leaves_bytes", "bytes", [](const S& s) -> Json { return s.memory.left_clean.count(); },
   "bytes that left memory without a write, because the store had a good copy"},
  {"spill_space_peak_bytes", "bytes", [](const S& s) -> Json { return s.memory.store.extents_peak.count(); },
   "largest space used in the store"},
  {"endurance_bytes", "bytes", [](const S& s) -> Json { return s.endurance.count(); },
   "rated endurance of the spill drives, as set; 0 for stores in memory", kOfProcess},
  {"write_bytes_per_second", "B/s", [](const S& s) { return rate(s, &profile::TransferRates::write); },
   "recent bandwidth of the store while it only writes (the rate known before, where this run wrote little); "
   "null when nothing was swapped"},
  {"read_bytes_per_second", "B/s", [](const S& s) { return rate(s, &profile::TransferRates::read); },
   "the same while it only reads"},
  {"duplex_share", "", [](const S& s) { return s.rates ? Json(s.rates->duplex_share) : Json(); },
   "share of either bandwidth that is left while both directions run; null when nothing was swapped"},
  {"cancelled_writes", "", [](const S& s) -> Json { return s.memory.cancelled_writes; },
   "number of write-outs that a use of the storage cancelled"},
  {"io_retries", "", [](const S& s) -> Json { return s.memory.store.retries; },
   "number of repeated transfers"},

  {"ops", "", [](const S& s) -> Json { return s.ops; },
   "number of operators"},
  {"deviations", "", [](const S& s) -> Json { return s.learned.deviations; },
   "number of operators that did not match the plan"},
  {"step_shapes", "", [](const S& s) -> Json { return s.learned.shapes; },
   "number of known kinds of step"},
  {"not_reported", "", [](const S& s) -> Json { return s.not_reported; },
   "facts that could not be reported, with the reason, else empty. A run that ends while a step waits for "
   "its plan (`--planning at-once`), or where an uncaught exception left the learner locked, reports nothing "
   "about plans (`given_plan` is null), no `deviations`, `step_shapes` and `value_stalls` (0, empty), and no "
   "median of steps that only their repetition showed"},
  {"planned_step_seconds", "s", [](const S& s) -> Json { return s.learned.planned_step_seconds(); },
   "step time that the plan followed last predicts, by the latest typical times of operators and rates of "
   "the disk (median forecast of the latest 16 steps); measured steps may be below; 0 while none was "
   "followed"},
  {"followed_step_seconds", "s", [](const S& s) -> Json { return s.learned.followed_step_seconds(); },
   "median time of the latest 16 steps that followed the plan, stalls included; 0 while there was none; the "
   "first step under a plan does not count"},
  {"bound_step_seconds", "s", [](const S& s) -> Json { return s.learned.bound_step_seconds(); },
   "lower bound of the step time of any plan with the same times, rates and budget, so never above the "
   "planned time; measured steps may be below; 0 while no plan was followed"},
  {"planned_peak_bytes", "bytes", [](const S& s) -> Json { return s.planned_peak().count(); },
   "largest bytes in memory that the plan predicts"},
  {"followed_peak_bytes", "bytes", [](const S& s) -> Json { return s.learned.followed_peak.count(); },
   "the most bytes in memory in steps that went as planned"},
  {"strategy", "", [](const S& s) -> Json { return s.learned.strategy; }, "who made the plan"},
  {"given_plan", "", given_plan,
   "about the plan of `--plan`, null without, or where it is for another device: `file`; `budget_bytes`, "
   "`write_bytes_per_second` and `read_bytes_per_second` that it was made for; `step_seconds` as predicted then; "
   "`followed_steps` of all "
   "`steps` that ended went by it from their first operator to the last (then all other keys about plans are "
   "about it); `misfit`, why it was for none of them, or empty"},

  {"recompute", "", [](const S& s) -> Json { return s.recompute; },
   "whether operators may run again: as set, but false where they cannot be recorded (`--prefetch off`, or a "
   "`dispatch_key` other than Fake)", kOfProcess},
  {"dropped_bytes", "bytes", [](const S& s) -> Json { return s.memory.dropped.count(); },
   "bytes that left memory without a copy, to be recomputed"},
  {"recorded_peak_bytes", "bytes", [](const S& s) -> Json { return s.recorded_peak.count(); },
   "the most bytes at once, beside the budget, of copies of what recorded operators have read and no page holds: "
   "small tensors, and larger ones (weights below `--min-storage`) that were written while an operator might "
   "still run again with them", kOfProcess},
  {"replays", "", [](const S& s) -> Json { return s.replays; },
   "number of operators that ran a second time to bring dropped tensors back"},
  {"unplanned_replays", "", [](const S& s) -> Json { return s.unplanned_replays; },
   "number of replays that no plan had foreseen"},
  {"refused_drops", "", [](const S& s) -> Json { return s.refused_drops; },
   "number of tensors that a plan dropped and that stayed, because they could not have been recomputed or "
   "were in use; memory then holds more than planned"},
  {"replay_seconds", "s", [](const S& s) -> Json { return s.replay_seconds; },
   "time of replays"},
  {"checked_pages", "", [](const S& s) -> Json { return s.memory.store.checked; },
   "with `verify`: number of reads of a page from the spill store that were compared with what was written; each "
   "attempt counts"},
  {"wrong_pages", "", [](const S& s) -> Json { return s.memory.store.wrong; },
   "number of pages whose latest read gave other bytes, or another length"},
  {"recovered_pages", "", [](const S& s) -> Json { return s.memory.store.recovered; },
   "number of pages that were such, and right when they were read again"},
  {"verified_kinds", "", [](const S& s) -> Json { return s.verified.equal_kinds; },
   "with `verify` and `recompute`: number of kinds of call (operator, shapes and types of its tensors, other "
   "arguments) that ran twice and gave the same bits", kOfProcess},
  {"verified_operators", "", [](const S& s) -> Json { return s.verified.operators; },
   "number of these kinds of each operator", kOfProcess},
  {"differing_kinds", "", [](const S& s) -> Json { return s.verified.differing_kinds; },
   "number of kinds of call that gave other bits; calls of these kinds are not replayed", kOfProcess},

  {"stalls", "", stalls,
   "the operators that waited longest, by kind: `op`, `times`, `fetch_wait_seconds`, `write_wait_seconds`"},
  {"value_stalls", "", value_stalls,
   "the values that were waited for longest: `value` (\"activation 31\", the number that profiles and traces give "
   "it), `bytes`, `made_by` (operator; empty for what comes from before the step), `times`, `fetch_wait_seconds` "
   "(to come in; an operator's wait is shared out among its missing inputs by their pages), `write_wait_seconds` "
   "(to find room at its birth)"},

  {"mapper", "", [](const S& s) -> Json { return s.mapper; },
   "mapper of pages, as chosen at start", kOfProcess},
  {"dispatch_key", "", [](const S& s) -> Json { return s.dispatch_key; },
   "dispatch key at which operators are intercepted, as chosen at start", kOfProcess},
  {"store", "", [](const S& s) -> Json { return s.store; },
   "I/O interface of the store, as chosen at start"},
  {"directories", "", [](const S& s) -> Json { return s.directories; },
   "directories of the store", kOfProcess},
  {"prefetch", "", [](const S& s) -> Json { return s.prefetch; },
   "setting `prefetch`", kOfProcess},
  {"verify", "", [](const S& s) -> Json { return s.verify; },
   "setting `verify`", kOfProcess},
};
// clang-format on

}  // namespace

std::span<const StatisticsField> statistics_fields() { return kFields; }

std::string statistics_table() {
  std::string table = "| key | unit | meaning |\n| --- | --- | --- |\n";
  for (const StatisticsField& field : kFields)
    table += message("| `{}` | {} | {} |\n", field.key, field.unit, field.meaning);
  return table;
}

}  // namespace spillway::runtime
