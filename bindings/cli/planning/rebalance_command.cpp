#include "planning/rebalance_command.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "exit_codes.h"
#include "planning/job_contradictions.h"
#include "planning/job_machine.h"
#include "planning/plan_report.h"
#include "planning/progress_line.h"
#include "planning/rebalance_report.h"
#include "planning/stored_job.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/job/measured_model.h"

namespace spillway::cli {

using planner::JobRequest;

namespace {

constexpr std::uint32_t kMostStepsLeft = 1'000'000'000;

/// What makes a plan of its own, or is about links that the stored plan has.
void refuse_beside_rebalance(const PlanOptions& options) {
  const JobOptions& job = options.job;
  const RateOptions& rates = options.common.rates;
  refuse_any({{"--check", &job.check},
              {"--costs", &job.costs},
              {"--partitioner", &job.partitioner},
              {"--order", &job.order},
              {"--svg", &job.picture},
              {"--topology", &job.topology},
              {"--ranks-per-host", &job.ranks_per_host},
              {"--rates", &rates.rates},
              {"--nvme", &rates.nvme},
              {"--disk-out", &rates.disk_out},
              {"--disk-in", &rates.disk_in}},
             "has no place beside --rebalance, which goes on with a stored plan and its links");
  if (job.compare) throw ConfigError("--compare has no place beside --rebalance");
}

/// Words about what the plan holds, which may be repeated but say nothing else.
class HeldWords {
 public:
  HeldWords(const PlanOptions& options, const JobRequest& stored)
      : words_(options), path_(options.job.rebalance), stored_(stored) {}

  void require_counts() const {
    const JobOptions& job = words_.job;
    require_count("--ranks", job.ranks, stored_.ranks);
    require_count("--micro-batches", job.micro_batches, stored_.micro_batches);
    require_count("--batch", job.batch, stored_.batch);
    require_count("--data-parallel", job.data_parallel, stored_.data_parallel);
  }

  void require_schedule() const {
    const std::string& text = words_.job.schedule;
    if (text.empty()) return;
    const std::string held = planner::schedule_text(stored_.schedule, stored_.variant);
    const planner::NamedSchedule named =
        text == planner::kAnySchedule ? planner::NamedSchedule{} : planner::schedule_in(text);
    const bool is_same =
        named.generator != nullptr && named.generator->name == stored_.schedule &&
        (named.variant == planner::JobVariant{} || named.variant == stored_.variant);
    require(is_same, "--schedule", text, held);
  }

  /// A limit that the plan has not may be said now.
  void limit(const char* option, const std::string& text, Bytes& held) const {
    if (text.empty()) return;
    const Bytes size = size_in(option, text);
    require(held == planner::kNoLimit || held == size, option, text, to_string(held));
    held = size;
  }

  /// So may a link. `is_known`: the plan has one.
  void link(const char* option, const std::string& text, double rate, bool is_known,
            double& held) const {
    constexpr double kRounding = 1e-9;
    require(!is_known || std::abs(rate - held) <= kRounding * held, option, text, gb_per_s(held));
    held = rate;
  }

 private:
  void require_count(const char* option, const std::string& text, std::uint32_t held) const {
    if (text.empty()) return;
    require(count_in(option, text, 1, planner::kMostRanksOfJob) == held, option, text,
            message("{}", held));
  }

  void require(bool is_same, const char* option, const std::string& text,
               const std::string& held) const {
    if (!is_same)
      throw ConfigError("{} {} contradicts {}, which has {} (leave it out, or plan anew without "
                        "--rebalance)",
                        option, shown_text(text), path_, held);
  }

  const PlanOptions& words_;
  const std::string& path_;
  const JobRequest& stored_;
};

void hold_to_options(const PlanOptions& options, const profile::StepProfile& profile,
                     JobRequest& request) {
  const RateOptions& rates = options.common.rates;
  const HeldWords held(options, request);
  held.require_counts();
  held.require_schedule();
  held.limit("--device-memory", options.job.device_memory, request.device_memory);
  if (!options.job.link.empty())
    held.link("--link", options.job.link, rate_in(options.job.link, "--link"),
              !std::isinf(request.link.bytes_per_second), request.link.bytes_per_second);
  RateOptions host;
  host.link_out = rates.link_out;
  host.link_in = rates.link_in;
  host.duplex = rates.duplex;
  if (!(host.link_out + host.link_in + host.duplex).empty())
    held.link("--link-out", host.link_out, swap_rates(host, 1, profile).host,
              request.swap_bytes_per_second > 0.0, request.swap_bytes_per_second);
  if (!rates.host_memory.empty() && request.swap_bytes_per_second == 0.0)
    throw ConfigError(
        "--host-memory {} is for what is swapped, and {} has no link to the host (add "
        "--link-out and --link-in)",
        rates.host_memory, options.job.rebalance);
  held.limit("--host-memory", rates.host_memory, request.host_memory);
}

}  // namespace

int rebalance_plan(const PlanOptions& options, std::ostream& out, const Clock& clock) {
  const std::string& path = options.job.rebalance;
  refuse_beside_rebalance(options);
  if (options.common.profile.empty())
    throw ConfigError("PROFILE is missing: the step of one micro-batch as it runs now, recorded "
                      "since {} was made (see spillway plan --help)",
                      path);
  std::optional<double> steps_left;
  if (!options.job.steps_left.empty())
    steps_left = count_in("--steps-left", options.job.steps_left, 1, kMostStepsLeft);
  std::vector<NamedFile> read = files_read(options.common);
  read.push_back({"--rebalance", path});
  check_outputs(read, {{"--out", options.out}});

  const planner::JobFile stored = stored_job(stored_job_text(path), path);
  const profile::StepProfile profile = load_step(options.common.profile).profile;
  RebalanceReport report;
  report.profile = options.common.profile;
  report.path = path;
  report.steps_left = steps_left;
  report.stored = stored;
  report.request =
      planner::request_of(stored, path, planner::measured_model(profile), options.common.profile);
  if (stored.swaps_to_disks)
    refuse_any({{"--host-memory", &options.common.rates.host_memory}},
               "has no place beside --rebalance of a plan that swaps to disks");
  hold_to_options(options, profile, report.request);
  const TimePoint begin = clock.now();
  {
    ProgressLine progress;
    progress.show(message("re-balancing {} layers on {} ranks", report.request.chain.layers.size(),
                          report.request.ranks));
    report.job = planner::rebalance_job(report.request, steps_left);
    progress.clear();
  }
  report.search_seconds = seconds(clock.now() - begin);
  if (!options.out.empty())
    store_job(report.job.plan, report.request.chain, swap_target_of(stored), stored.cluster,
              options.out);
  if (options.common.json) {
    out << json_text(rebalance_json(report));
    return kDone;
  }
  out << rebalance_text(report);
  if (!options.out.empty()) out << stored_text(report.job.plan, options.out);
  return kDone;
}

}  // namespace spillway::cli
