#include "spillway/planner/job/job_file.h"

#include <algorithm>
#include <cmath>

#include "job_file_keys.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/mix.h"
#include "spillway/base/shown_text.h"
#include "spillway/base/sizes_apart.h"
#include "spillway/planner/schedule/rank_memory.h"

namespace spillway::job {
namespace {

std::optional<std::string> fault_of_memory(const JobFile& file) {
  if (file.device_memory == partition::kNoLimit) return std::nullopt;
  std::vector<Bytes> room;
  for (std::size_t rank = 0; rank < file.fixed.size(); ++rank) {
    if (file.fixed[rank] > file.device_memory) {
      const SizesApart sizes = sizes_apart(file.fixed[rank], file.device_memory);
      return message("rank {} holds {} before its first action, and its device has {}", rank,
                     sizes.first, sizes.second);
    }
    // What no action moves is not in the lists that are walked through.
    room.push_back(file.device_memory - file.fixed[rank]);
  }
  const auto fault = planner_schedule::memory_fault(file.actions, file.costs, room);
  if (!fault) return std::nullopt;
  return schedule::to_string(*fault);
}

std::optional<std::string> fault_of_hosts(const JobFile& file, const std::vector<Bytes>& held) {
  // Disks have no limit in a plan.
  if (file.swaps_to_disks) return std::nullopt;
  for (std::size_t rank = 0; rank < held.size(); ++rank)
    if (held[rank] > file.host_memory) {
      const SizesApart sizes = sizes_apart(held[rank], file.host_memory);
      return message("rank {} has {} on its host at its most, and that has {} for it", rank,
                     sizes.first, sizes.second);
    }
  return std::nullopt;
}

/// What a stage keeps of a micro-batch and what it swaps is all that there is, where nothing is
/// recomputed, but for bytes that were rounded.
std::optional<std::string> fault_of_stashes(const JobFile& file) {
  constexpr Bytes kRounded(64);
  for (std::size_t k = 0; k < file.stages.size(); ++k) {
    const JobFileStage& stage = file.stages[k];
    const Bytes both = file.costs.stages[k].stash + file.costs.stages[k].swapped;
    const bool is_too_much = both > stage.whole_stash + kRounded;
    const bool is_too_little = stage.recomputed.empty() && both + kRounded < stage.whole_stash;
    if (is_too_much || is_too_little)
      return message("stages[{}].whole_stash_bytes is {}, and its stash_bytes and swapped_bytes "
                     "are {}{}: it was changed",
                     k, stored_size(stage.whole_stash), stored_size(both),
                     is_too_much ? "" : ", with nothing recomputed");
  }
  return std::nullopt;
}

/// Weights that leave for good are only freed.
bool swaps_anything(const JobFile& file) {
  return planner_schedule::swaps_parts(file.costs.stages) ||
         schedule::has_action(file.actions, schedule::ActionKind::kSwapOut) ||
         schedule::has_action(file.actions, schedule::ActionKind::kSwapInWeights);
}

std::optional<std::string> fault_of_host_link(const JobFile& file) {
  // Without a link to hosts a plan has the one that takes no time, which it must not use.
  if (!file.costs.host.rate.is_unlimited() || !swaps_anything(file)) return std::nullopt;
  return "it swaps, and its links.host_link has a rate of 0: nothing moves there";
}

std::optional<std::string> told_otherwise(const char* key, double told, double made) {
  if (is_same(told, made)) return std::nullopt;
  return message("figures.{} is {}, and its actions make it {}: it was changed", key,
                 all_digits(told), all_digits(made));
}

std::optional<std::string> told_otherwise(const char* key, const std::vector<Bytes>& told,
                                          const std::vector<Bytes>& made) {
  for (std::size_t rank = 0; rank < told.size(); ++rank)
    if (told[rank] != made[rank])
      return message("figures.{}[{}] is {}, and its actions make it {}: it was changed", key, rank,
                     stored_size(told[rank]), stored_size(made[rank]));
  return std::nullopt;
}

std::optional<std::string> fault_of_figures(const JobFile& file) {
  const planner_schedule::ScheduleTiming timing =
      planner_schedule::time_schedule(file.actions, file.costs);
  std::vector<Bytes> peaks;
  for (std::size_t rank = 0; rank < timing.ranks.size(); ++rank) {
    peaks.push_back(timing.ranks[rank].peak_memory + file.fixed[rank]);
    // Counted over its list a rank may fit, and hold more while copies take their time.
    if (peaks[rank] > file.device_memory) {
      const SizesApart sizes = sizes_apart(peaks[rank], file.device_memory);
      return message("rank {} holds {} at its peak, and its device has {}", rank, sizes.first,
                     sizes.second);
    }
  }
  if (!std::isfinite(timing.step_seconds))
    return "its step never ends: some link carries next to nothing";
  const std::vector<Bytes> hosts = planner_schedule::host_bytes(file.actions, file.costs.stages);
  if (auto fault = fault_of_hosts(file, hosts)) return fault;
  if (auto fault = told_otherwise("step_seconds", file.step_seconds, timing.step_seconds))
    return fault;
  // Shares of the whole: what rounds to nothing counts as nothing.
  if (!is_same(1.0 + file.bubble, 1.0 + timing.bubble))
    return told_otherwise("bubble", file.bubble, timing.bubble);
  if (auto fault = told_otherwise("peak_bytes", file.peaks, peaks)) return fault;
  if (auto fault = told_otherwise("host_bytes", file.hosts, hosts)) return fault;
  if (auto fault = fault_of_host_link(file)) return fault;
  return fault_of_stashes(file);
}

}  // namespace

std::optional<std::string> job_fault(const JobFile& file) {
  try {
    // Each check relies on the ones before: only lists without another fault can be counted
    // through, and only those that can be carried out be simulated.
    if (auto fault = schedule::plan_fault(execution_of(file))) return fault;
    if (auto fault = fault_of_memory(file)) return fault;
    return fault_of_figures(file);
  } catch (const PlanError& error) {
    return error.what();
  } catch (const ConfigError& error) {
    return error.what();
  }
}

ModelIdentity identity_of(const partition::ModelChain& chain) {
  ModelIdentity identity;
  identity.layers = static_cast<std::uint32_t>(chain.layers.size());
  for (const partition::ModelLayer& layer : chain.layers) {
    for (const char letter : layer.name)
      identity.name_hash = mix(identity.name_hash, static_cast<unsigned char>(letter));
    // Names end somewhere: "a", "bc" is not "ab", "c".
    identity.name_hash = mix(identity.name_hash, layer.name.size());
  }
  return identity;
}

void require_same_model(const ModelIdentity& planned, const std::string& plan,
                        const partition::ModelChain& chain, const std::string& profile) {
  const ModelIdentity here = identity_of(chain);
  if (planned == here) return;
  throw PlanError("{}: this plan is of another model: {}, whose names have the hash {}, and "
                  "{} has {} with {} (make the plan again with: spillway plan-job {} --ranks COUNT "
                  "--out {})",
                  plan, counted(planned.layers, "layer"), hexadecimal_text(planned.name_hash),
                  profile, here.layers, hexadecimal_text(here.name_hash), shell_word(profile),
                  shell_word(plan));
}

}  // namespace spillway::job
