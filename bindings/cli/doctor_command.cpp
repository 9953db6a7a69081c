#include "doctor_command.h"

#include <cstdlib>
#include <iostream>

#include "exit_codes.h"
#include "findings.h"
#include "gpu_findings.h"
#include "installation.h"
#include "program_file.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/runtime/settings/budget.h"
#include "trials.h"

namespace spillway::cli {
namespace {

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  for (Finding& finding : more) findings.push_back(std::move(finding));
}

Finding check_installation(const Installation& here) {
  if (here.preload.empty() || here.served.empty())
    return {"installation", here.library_folder, Verdict::kProblem,
            here.preload.empty() ? "libspillway_preload.so is missing: install Spillway again"
                                 : "libspillway_core_*.so is missing: install Spillway again"};
  return {"installation", here.library_folder + ", for LibTorch " + here.list_of_served()};
}

// Checks the LibTorches that there are; `torches` takes them.
std::vector<Finding> check_torches(const DoctorOptions& options, const Installation& here,
                                   std::vector<FoundTorch>& torches) {
  if (!options.program.empty()) {
    const ProgramLookup program = find_program(options.program);
    if (program.path.empty())
      throw ConfigError("program not found: {}{}", options.program,
                        remedy_for_missing(options.program));
    const ProgramFile file = inspect_program(program.path);
    std::vector<Finding> findings;
    if (const auto objection = objection_to(file))
      findings.push_back({"program " + options.program, "it " + objection->reason,
                          Verdict::kProblem, objection->cure});
    if (const auto sanitizer = linked_sanitizer(file, program.path))
      findings.push_back(
          {"sanitizer of " + options.program, *sanitizer + ", which a run loads first"});
    if (const auto library = linked_torch(file, program.path))
      torches.push_back({options.program, *library, torch_version_of_file(*library).text,
                         linked_cuda_runtime(file, program.path).value_or("")});
    else
      torches = find_torch_of_python(options.program);
    if (torches.empty()) {
      findings.push_back({"LibTorch of " + options.program,
                          "the program is not linked with libtorch_cpu.so", Verdict::kWarning,
                          "Spillway acts once the program, or one that it starts, loads LibTorch, "
                          "as Python does"});
      return findings;
    }
    findings.push_back(check_torch(torches.front(), here.served));
    return findings;
  }
  torches = find_installed_torches();
  std::vector<Finding> findings = check_installed_torches(torches, here.served);
  if (findings.empty())
    findings.push_back({"LibTorch", "none found", Verdict::kWarning,
                        "if your trainer has its own, ask with: spillway doctor -- ./trainer"});
  return findings;
}

constexpr std::string_view kNoRates = "plans then start from guesses: spillway bench-io {}";
constexpr std::string_view kRatesNotKept =
    "what doctor measures is a quick look that is not kept; to have plans know the disk: spillway "
    "bench-io {}";

/// A disk whose rates are known counts as one.
FoundDisks rates_of(const runtime::ResolvedDirectory& directory,
                    const std::optional<swap::DiskProbe>& probe) {
  if (const swap::DiskPoint* const rates = probe ? probe->best() : nullptr)
    return {1, TransferRate(rates->read.median), TransferRate(rates->write.median)};
  if (!directory.measured) return {};
  return {1, directory.measured->read, directory.measured->write};
}

FoundDisks sum_of(const std::vector<FoundDisks>& disks) {
  FoundDisks all;
  for (const FoundDisks& disk : disks) {
    if (disk.count == 0 || disk.read.is_none() || disk.write.is_none()) return {};
    all.count += disk.count;
    all.read += disk.read;
    all.write += disk.write;
  }
  return all;
}

std::vector<Finding> check_disks(const runtime::Settings& settings, Bytes budget,
                                 const runtime::DirectorySurroundings& surroundings,
                                 const DoctorOptions& options, Finding& about_rates,
                                 FoundDisks& disks) {
  std::vector<Finding> findings;
  runtime::ResolvedDirectories resolved;
  try {
    resolved = runtime::resolve_spill_directories(settings, budget, surroundings);
  } catch (const ConfigError& error) {
    return {{"disk", "none", Verdict::kProblem, error.what()}};
  }
  const std::string of_any = message(kNoRates, "DIR");
  const std::string_view no_rates = options.measures_disks ? kRatesNotKept : kNoRates;
  std::vector<FoundDisks> measured;
  for (const runtime::ResolvedDirectory& directory : resolved.directories) {
    if (about_rates.mend == of_any && !directory.facts.is_ram_disk)
      about_rates.mend = message(no_rates, shell_word(directory.facts.path));
    std::optional<swap::DiskProbe> probe;
    std::string failure;
    if (options.measures_disks && !directory.facts.is_ram_disk) {
      swap::DiskProbeOptions quick;  // Blocks and depth of runs, for some seconds.
      quick.file_size = 256_MiB;
      quick.block_sizes = {2_MiB};
      quick.queue_depths = {16};
      quick.repetitions = 2;
      quick.longest_pass = std::chrono::seconds(1);
      quick.kind = settings.store;
      try {
        probe = swap::measure_directory(directory.facts.path, quick);
      } catch (const Error& error) {
        failure = error.what();
      }
    }
    findings.push_back(check_disk(directory, probe));
    if (resolved.sharers > 1)
      findings.back().value += message(", shared by {} ranks", resolved.sharers);
    measured.push_back(rates_of(directory, probe));
    if (!failure.empty()) {
      findings.back().verdict = Verdict::kProblem;
      findings.back().mend = failure;
    }
  }
  disks = sum_of(measured);
  if (!resolved.shortage.empty() && findings.front().mend.empty()) {
    findings.front().warn(resolved.shortage);
  }
  return findings;
}

// What runs would know of the disks; an unusable file leaves them without rates.
runtime::DirectorySurroundings look_around(const runtime::Settings& settings,
                                           Finding& about_rates) {
  const std::string path =
      settings.rates.empty() ? topology::default_disk_rates_path() : settings.rates;
  about_rates = {"disk rates", path, Verdict::kProblem, {}};
  try {
    auto surroundings = runtime::real_surroundings(settings);
    const std::size_t count = surroundings.rates.all().size();
    if (!surroundings.warnings.empty())
      about_rates = {"disk rates", path, Verdict::kWarning, surroundings.warnings.front()};
    else if (count == 0)
      about_rates = {"disk rates", "none recorded in " + path, Verdict::kWarning,
                     message(kNoRates, "DIR")};
    else
      about_rates = {"disk rates", message("{} recorded in {}", count, path)};
    return surroundings;
  } catch (const Error& error) {
    about_rates.mend = error.what();
  }
  return runtime::surroundings_without_rates();
}

Finding check_mpi() {
  for (const char* name : {"mpiexec", "mpirun", "srun"}) {
    const ProgramLookup found = find_program(name);
    if (!found.path.empty() && found.hindrance.empty()) return {"MPI", found.path};
  }
  return {"MPI", "no mpiexec, mpirun or srun; one process trains"};
}

// Tried with the first LibTorch that this installation serves.
Finding check_dispatch_key(const runtime::Settings& settings, const Installation& here,
                           const std::vector<FoundTorch>& torches) {
  for (const FoundTorch& torch : torches) {
    const std::string core = here.core_for(torch.version);
    if (!core.empty()) return try_dispatch_key(own_path(), torch.path, core, settings.dispatch_key);
  }
  return {"dispatch key", "not tried: no LibTorch that this Spillway serves was found",
          Verdict::kWarning, "try it with your trainer's: spillway doctor -- ./trainer"};
}

/// A program for CUDA may train on the CPU: not where there are GPUs, or are said to be, and no
/// budget is for the CPU alone.
std::string wish_of_program(const runtime::Settings& settings, const DoctorOptions& options,
                            const topology::Machine& machine) {
  const bool may_have_gpus =
      !machine.gpus.empty() || std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  if (options.program.empty() || !may_have_gpus || !settings.device_budgets.empty()) return {};
  return "the program's LibTorch is for CUDA (if it trains on the CPU: --budget cpu=auto)";
}

// That there are no GPUs is told without it.
FoundGpus check_cuda_of(const std::vector<FoundTorch>& torches, const Installation& here,
                        const topology::Machine& machine, const runtime::Settings& settings,
                        const runtime::NamedTexts& given, const DoctorOptions& options) {
  const std::string wish = wish_for_gpus(settings, options.arguments);
  for (const FoundTorch& torch : torches) {
    if (torch.cuda_runtime.empty()) continue;
    FoundGpus found = try_gpus(own_path(), torch.cuda_runtime, given);
    if (found.count > 0)
      append(found.findings, check_cuda_part(torch.version, here));
    else
      expect_gpus(found.findings.front(),
                  wish.empty() ? wish_of_program(settings, options, machine) : wish);
    return found;
  }
  if (torches.empty() || (machine.gpus.empty() && wish.empty())) return {};
  Finding none{"CUDA", "LibTorch is for the CPU alone", Verdict::kWarning,
               "programs use GPUs with a LibTorch that was built for CUDA 13 (cu130)"};
  expect_gpus(none, wish);
  return {{none}};
}

}  // namespace

Examination examine_process(const runtime::NamedTexts& given, const DoctorOptions& options,
                            Examined whom) {
  const runtime::Settings settings =
      runtime::load_settings({given, runtime::spillway_environment()});
  const bool sees_machine = whom == Examined::kMachine;
  Examination result;
  std::vector<Finding>& findings = result.findings;
  result.machine = topology::discover_machine();
  const topology::Machine& machine = result.machine;
  std::vector<FoundTorch> torches;
  const Installation here = find_installation(own_path());
  if (sees_machine) {
    findings.push_back(check_installation(here));
    append(findings, check_torches(options, here, torches));
    findings.push_back(check_dispatch_key(settings, here, torches));
  }
  append(findings, check_machine(machine));
  FoundGpus gpus = check_cuda_of(torches, here, machine, settings, given, options);
  result.gpus = gpus.count;
  append(findings, std::move(gpus.findings));
  const auto [budget, resolved] = check_budget(settings, machine);
  result.budget = resolved.budget;
  findings.push_back(check_address_space(machine.limits, resolved));
  findings.push_back(budget);
  findings.push_back(check_mappers(settings, machine, resolved, memory::probe_mappers()));
  findings.push_back(check_io_uring(swap::why_no_io_uring()));
  if (!sees_machine) return result;
  Finding about_rates;
  const auto surroundings = look_around(settings, about_rates);
  append(findings,
         check_disks(settings, resolved.budget, surroundings, options, about_rates, result.disks));
  findings.push_back(about_rates);
  return result;
}

int examine(const runtime::NamedTexts& given, const DoctorOptions& options) {
  if (const auto launcher = find_launcher(); launcher && launcher->is_of_mpi)
    return examine_ranks(given, options, *launcher);
  std::vector<Finding> findings = examine_process(given, options, Examined::kMachine).findings;
  findings.push_back(check_mpi());
  std::cout << (options.json ? report_json(findings) : report_text(findings));
  return worst(findings) == Verdict::kProblem ? kFoundProblem : kDone;
}

}  // namespace spillway::cli
