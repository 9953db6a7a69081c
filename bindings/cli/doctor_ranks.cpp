#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "doctor_command.h"
#include "exit_codes.h"
#include "private_rank.h"
#include "rank_facts.h"
#include "spillway/base/error.h"
#include "spillway/base/read_pipe.h"
#include "spillway/device/copy_rates.h"
#include "spillway/device/cpu.h"
#include "spillway/transport/survey/texts.h"

namespace spillway::cli {
namespace {

/// The time of day, by which hosts are compared.
class WallClock final : public Clock {
 public:
  TimePoint now() const override {
    return TimePoint(
        std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()));
  }
};

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// As LibTorch chooses them where the program does not.
unsigned threads_of(const topology::Processors& processors) {
  const char* const wanted = std::getenv("OMP_NUM_THREADS");
  const long count = wanted == nullptr ? 0 : std::strtol(wanted, nullptr, 10);
  if (count > 0) return static_cast<unsigned>(count);
  return processors.bound_cores.empty() ? processors.cores.value_or(1)
                                        : static_cast<unsigned>(processors.bound_cores.size());
}

/// One that the user names for all ranks of the host is theirs to share.
bool is_one_gpu_named() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && std::strchr(visible, ',') == nullptr;
}

/// A rank whose settings are wrong has a problem, and keeps no other one waiting.
Examination examined(const runtime::NamedTexts& given, const DoctorOptions& options,
                     Examined whom) {
  try {
    return examine_process(given, options, whom);
  } catch (const Error& error) {
    Examination nothing;
    nothing.findings.push_back({"settings", "refused", Verdict::kProblem, error.what()});
    return nothing;
  }
}

RankFacts facts_of(const Examination& found, const std::string& host) {
  RankFacts facts;
  facts.host = host;
  facts.ranks_here = runtime::launched_ranks_here();
  facts.cores = found.machine.processors.bound_cores;
  facts.threads = threads_of(found.machine.processors);
  facts.quota = found.machine.processors.quota.value_or(0.0);
  facts.gpus = is_one_gpu_named() ? 0 : static_cast<unsigned>(found.gpus);
  facts.budget = found.budget;
  if (const auto usable = topology::usable_memory(found.machine.memory))
    facts.usable = usable->bytes;
  facts.findings = found.findings;
  return facts;
}

int print(const std::vector<Finding>& findings, const std::string& text) {
  std::cout << text << std::flush;
  wait_until_read(STDOUT_FILENO, std::chrono::seconds(1));
  return worst(findings) == Verdict::kProblem ? kFoundProblem : kDone;
}

/// What the first rank tells of a job.
int report(const JobFacts& job, const DoctorOptions& options) {
  std::vector<Finding> findings = job.ranks.front().findings;
  for (const auto& more : {check_job(job), findings_of_others(job.ranks)})
    findings.insert(findings.end(), more.begin(), more.end());
  return print(findings,
               options.json ? report_json(findings, job_json(job)) : report_text(findings));
}

int examine_together(transport::MpiTransport& transport, const runtime::NamedTexts& given,
                     const DoctorOptions& options) {
  const std::vector<std::string>& hosts = transport.job().hosts;
  const std::uint32_t rank = transport.rank().value();
  const auto first_of_host = std::find(hosts.begin(), hosts.end(), hosts[rank]);
  const bool speaks_for_host = first_of_host - hosts.begin() == static_cast<std::ptrdiff_t>(rank);
  Examination found =
      examined(given, options, speaks_for_host ? Examined::kMachine : Examined::kProcess);
  found.findings.push_back(examine_working_folder());
  const auto texts = transport::gather_texts(transport, to_text(facts_of(found, hosts[rank])));
  // Nobody measures links while another one still looks at its host.
  transport::number_of_first_rank(transport, 0);
  JobFacts job;
  const SteadyClock steady;
  const WallClock wall;
  job.links = transport::survey_links(transport, hosts, {steady, wall});
  int code = kDone;
  if (rank == 0) {
    job.mpi = transport.job();
    for (const std::string& text : texts) job.ranks.push_back(parse_rank_facts(text));
    job.processor = found.machine.processors.model.value_or("unknown processors");
    job.copy_rate = device::measure_copies(*device::make_cpu_device()).out;
    job.disks = found.disks.count;
    if (job.disks > 0) {
      job.disk_read_rate = found.disks.read / job.disks;
      job.disk_write_rate = found.disks.write / job.disks;
    }
    code = report(job, options);
  }
  return static_cast<int>(
      transport::number_of_first_rank(transport, static_cast<std::uint64_t>(code)));
}

/// Where MPI does not start, each rank is alone with what it knows.
int report_alone(const runtime::NamedTexts& given, DoctorOptions options, const Launcher& launcher,
                 const std::string& reason) {
  options.measures_disks = false;  // Others wait.
  transport::tell_once_on_host([&] {
    std::vector<Finding> findings = examined(given, options, Examined::kMachine).findings;
    findings.push_back({"MPI",
                        message("rank {} of {} on {} finds no other one", launcher.rank,
                                launcher.ranks, host_name()),
                        Verdict::kProblem, reason});
    print(findings, options.json ? report_json(findings) : report_text(findings));
  });
  return kFoundProblem;
}

}  // namespace

int examine_ranks(const runtime::NamedTexts& given, const DoctorOptions& options,
                  const Launcher& launcher) {
  std::unique_ptr<transport::MpiTransport> transport;
  try {
    transport = transport::make_mpi_transport();
  } catch (const Error& error) {
    return report_alone(given, options, launcher, error.what());
  }
  try {
    return examine_together(*transport, given, options);
  } catch (const std::exception& error) {
    transport->abort(error.what());
    throw;  // Not reached.
  }
}

}  // namespace spillway::cli
