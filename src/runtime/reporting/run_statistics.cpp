#include "spillway/runtime/reporting/run_statistics.h"

#include <nlohmann/json.hpp>

#include "spillway/topology/atomic_file.h"

namespace spillway::runtime {

namespace {

using Json = nlohmann::ordered_json;

Json program_part(const RunStatistics& s) {
  return {{"format", "spillway run statistics"},
          {"version", 1},
          {"spillway_version", s.spillway_version},
          {"libtorch_version", s.libtorch_version},
          {"device", s.device},
          {"program", s.program},
          {"process_id", s.process_id},
          {"rank", s.rank ? Json(*s.rank) : Json()}};
}

Json memory_part(const RunStatistics& s) {
  return {{"budget_bytes", s.budget.count()},
          {"budget_origin", s.budget_origin},
          {"peak_bytes", s.peak.count()},
          {"needed_bytes", s.needed.count()},
          {"small_peak_bytes", s.small_peak.count()},
          {"peak_rss_bytes", s.peak_rss.count()},
          {"largest_op_needs_bytes", s.largest_op_needs.count()},
          {"largest_op", s.largest_op},
          {"refusal", s.refusal.text},
          {"refusal_cause", name_of(s.refusal.cause)}};
}

Json time_part(const RunStatistics& s) {
  return {{"steps", s.steps},
          {"step_seconds_median", s.step_seconds_median},
          {"run_seconds", s.run_seconds},
          {"stall_seconds", s.stall_seconds()},
          {"fetch_wait_seconds", s.fetch_wait_seconds},
          {"write_wait_seconds", s.write_wait_seconds},
          {"trap_wait_seconds", s.trap_wait_seconds},
          {"trap_count", s.trap_count},
          {"intercept_seconds", s.intercept_seconds},
          {"disk_busy_seconds", s.disk_busy_seconds}};
}

Json transfer_part(const RunStatistics& s) {
  const auto rate = [&](double profile::TransferRates::*field) {
    return s.rates ? Json((*s.rates).*field) : Json();
  };
  return {{"spilled_bytes", s.spilled.count()},
          {"fetched_bytes", s.fetched.count()},
          {"disk_written_bytes", s.disk_written.count()},
          {"clean_leaves_bytes", s.clean_leaves.count()},
          {"spill_space_peak_bytes", s.spill_space_peak.count()},
          {"endurance_bytes", s.endurance.count()},
          {"write_bytes_per_second", rate(&profile::TransferRates::write_bytes_per_second)},
          {"read_bytes_per_second", rate(&profile::TransferRates::read_bytes_per_second)},
          {"duplex_share", rate(&profile::TransferRates::duplex_share)},
          {"cancelled_writes", s.cancelled_writes},
          {"io_retries", s.io_retries}};
}

Json given_plan_of(const RunStatistics& s) {
  if (!s.given_plan) return {};
  const RunStatistics::GivenPlan& plan = *s.given_plan;
  return {{"file", plan.file},
          {"budget_bytes", plan.budget.count()},
          {"write_bytes_per_second", plan.rates.write_bytes_per_second},
          {"read_bytes_per_second", plan.rates.read_bytes_per_second},
          {"step_seconds", plan.step_seconds},
          {"followed_steps", plan.steps},
          {"steps", plan.all_steps},
          {"misfit", plan.misfit}};
}

Json plan_part(const RunStatistics& s) {
  return {{"ops", s.ops},
          {"deviations", s.deviations},
          {"step_shapes", s.step_shapes},
          {"left_out", s.left_out},
          {"planned_step_seconds", s.planned_step_seconds},
          {"followed_step_seconds", s.followed_step_seconds},
          {"bound_step_seconds", s.bound_step_seconds},
          {"planned_peak_bytes", s.planned_peak.count()},
          {"followed_peak_bytes", s.followed_peak.count()},
          {"strategy", s.strategy},
          {"given_plan", given_plan_of(s)}};
}

Json replay_part(const RunStatistics& s) {
  return {{"recompute", s.recompute},
          {"dropped_bytes", s.dropped.count()},
          {"recorded_peak_bytes", s.recorded_peak.count()},
          {"replays", s.replays},
          {"unplanned_replays", s.unplanned_replays},
          {"refused_drops", s.refused_drops},
          {"replay_seconds", s.replay_seconds},
          {"verified_kinds", s.verified.equal_kinds},
          {"verified_operators", s.verified.operators},
          {"differing_kinds", s.verified.differing_kinds}};
}

Json stalls_of(const RunStatistics& s) {
  auto stalls = Json::array();
  for (const StallCause& cause : s.stalls)
    stalls.push_back({{"op", cause.op},
                      {"times", cause.times},
                      {"fetch_wait_seconds", seconds(cause.for_inputs)},
                      {"write_wait_seconds", seconds(cause.for_room)}});
  return stalls;
}

Json value_stalls_of(const RunStatistics& s) {
  auto stalls = Json::array();
  for (const ValueStall& stall : s.value_stalls)
    stalls.push_back({{"value", stall.value},
                      {"bytes", stall.bytes.count()},
                      {"made_by", stall.made_by},
                      {"times", stall.times},
                      {"fetch_wait_seconds", seconds(stall.for_inputs)},
                      {"write_wait_seconds", seconds(stall.for_room)}});
  return stalls;
}

Json choices_part(const RunStatistics& s) {
  return {{"mapper", s.mapper},           {"dispatch_key", s.dispatch_key}, {"store", s.store},
          {"directories", s.directories}, {"prefetch", s.prefetch},         {"verify", s.verify}};
}

}  // namespace

std::string to_json(const RunStatistics& s) {
  Json json = program_part(s);
  for (const auto part : {memory_part, time_part, transfer_part, plan_part, replay_part})
    json.update(part(s));
  json["stalls"] = stalls_of(s);
  json["value_stalls"] = value_stalls_of(s);
  json.update(choices_part(s));
  // Names of programs and folders need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_statistics(const std::string& path, const RunStatistics& statistics) {
  topology::write_file_at_once(path, to_json(statistics));
}

}  // namespace spillway::runtime
