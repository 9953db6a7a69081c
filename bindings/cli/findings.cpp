#include "findings.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/runtime/settings/budget.h"

namespace spillway::cli {
namespace {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kWarning: return "warning";
    case Verdict::kProblem: break;
  }
  return "problem";
}

constexpr Bytes kLeastLocked = 8_MiB;   // What a io_uring of usual depth may have to lock.
constexpr TransferRate kSlowDisk{5e8};  // Below it paging costs more than it hides.

Finding unknown(std::string subject) {
  return {std::move(subject), "unknown", Verdict::kWarning, "mount /proc and /sys, or ignore this"};
}

Finding check_processors(const topology::Processors& processors) {
  if (!processors.cores && !processors.threads) return unknown("cores");
  std::string value =
      message("{}, {}, {}", counted(processors.cores.value_or(*processors.threads), "core"),
              counted(processors.threads.value_or(0), "thread"),
              counted(processors.numa_nodes.size(), "NUMA node"));
  if (processors.model) value += ", " + *processors.model;
  if (processors.bound && processors.bound < processors.threads)
    value += message(", bound to {} of the threads", *processors.bound);
  if (processors.quota)
    value += message(", limited to {}", *processors.quota == 1.0
                                            ? "one core's time"
                                            : message("{} cores' time", *processors.quota));
  return {"cores", value};
}

// "6.18.3-amd64" as 6018; 0 when it cannot be read.
int version_number(const std::string& release) {
  int major = 0;
  int minor = 0;
  return std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

// The first kernel, as major * 1000 + minor, with which a mapper can work.
int first_kernel_for(memory::MapperKind kind) {
  switch (kind) {
    case memory::MapperKind::kUserfaultfd:
    case memory::MapperKind::kUserfaultfdUser: return 6008;  // Has UFFDIO_MOVE.
    case memory::MapperKind::kSignal: return 5007;           // Has MREMAP_DONTUNMAP.
    case memory::MapperKind::kCopy: break;
  }
  return 0;
}

Finding check_kernel(const topology::Kernel& kernel) {
  if (!kernel.release) return unknown("kernel");
  const int version = version_number(*kernel.release);
  std::string left;
  bool lacks_some = false;
  for (const auto& mapper : memory::mapper_kinds()) {
    if (version != 0 && version < first_kernel_for(mapper.value))
      lacks_some = true;
    else
      left.append(left.empty() ? "" : ", ").append(mapper.name);
  }
  if (!lacks_some) return {"kernel", *kernel.release};
  const bool must_copy = version < first_kernel_for(memory::MapperKind::kSignal);
  return {"kernel", message("{}; mappers that can work: {}", *kernel.release, left),
          Verdict::kWarning,
          must_copy ? "copying pages is slow: Linux 5.7 or later moves them, 6.8 or later serves "
                      "system calls on spilled memory, too"
                    : "Linux 6.8 or later serves system calls on spilled memory, too"};
}

Finding check_memory(const topology::Memory& memory) {
  if (!memory.total || !memory.available) return unknown("memory");
  return {"memory", message("{} in all, {} available now", *memory.total, *memory.available)};
}

Finding check_memory_limits(const topology::Memory& memory) {
  if (memory.limits.empty()) return {"memory limits", "no cgroup limit"};
  std::string value;
  for (const topology::MemoryLimit& limit : memory.limits)
    value += message("{}{} ({} used) by {}", value.empty() ? "" : "; ", limit.limit, limit.used,
                     limit.where);
  return {"memory limits", value};
}

Finding check_locked_memory(const topology::ProcessLimits& limits) {
  if (!limits.locked_bytes) return unknown("locked memory");
  if (*limits.locked_bytes == topology::kUnlimited) return {"locked memory", "unlimited"};
  const Bytes size(*limits.locked_bytes);
  if (size >= kLeastLocked) return {"locked memory", to_string(size)};
  return {"locked memory", to_string(size), Verdict::kWarning,
          "older kernels refuse io_uring with so little: ulimit -l unlimited, or a memlock line in "
          "/etc/security/limits.conf"};
}

Finding check_overcommit(const topology::Kernel& kernel) {
  if (!kernel.overcommit_mode) return unknown("overcommit");
  if (*kernel.overcommit_mode != 2)
    return {"overcommit", *kernel.overcommit_mode == 1 ? "always" : "heuristic"};
  return {"overcommit", "never (mode 2)", Verdict::kWarning,
          "reservations may be refused: sysctl vm.overcommit_memory=0"};
}

Finding check_huge_pages(const topology::Kernel& kernel) {
  if (!kernel.huge_pages) return unknown("huge pages");
  if (*kernel.huge_pages != "never") return {"huge pages", *kernel.huge_pages};
  return {"huge pages", "never", Verdict::kWarning,
          "transfers take several times the CPU time without: echo madvise > "
          "/sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding check_gpus(const std::vector<topology::Gpu>& gpus) {
  if (gpus.empty()) return {"GPUs", "none on the PCI bus"};
  Finding finding{"GPUs", {}};
  for (const topology::Gpu& gpu : gpus) {
    finding.value += message("{}{} ({}{})", finding.value.empty() ? "" : ", ", gpu.name,
                             gpu.bus_address, gpu.has_driver ? "" : ", without NVIDIA's driver");
    if (gpu.has_driver || !finding.mend.empty()) continue;
    finding.warn("programs cannot use a GPU without it: install a driver of release 580 or later");
  }
  return finding;
}

std::string disk_value(const runtime::ResolvedDirectory& directory) {
  const topology::Directory& facts = directory.facts;
  std::string value = facts.filesystem.value_or("unknown file system");
  if (facts.device) {
    value += " on " + facts.device->name;
    if (facts.device->model) value += " (" + *facts.device->model + ")";
  }
  if (facts.free) value += message(", {} free", *facts.free);
  return value;
}

constexpr std::string_view kMapperSetting = "--mapper, SPILLWAY_MAPPER or mapper of the file";

void add_warnings(Finding& finding, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) finding.warn(warning);
}

// A mapper that works: whether it serves all that a trainer does, and the budget.
Finding check_mapper(const runtime::Settings& settings, const topology::Machine& machine,
                     const runtime::ResolvedBudget& budget, memory::MapperKind kind,
                     const memory::MapperProbe& best) {
  Finding finding{"mapper", std::string(memory::name_of(kind))};
  if (settings.mapper != "auto") finding.value += ", as was asked for";
  if (!memory::serves_system_calls(kind)) {
    finding.value += "; files, pipes and sockets work, but MPI, RDMA and io_uring of the trainer "
                     "fail (EFAULT) on spilled memory";
    if (kind == memory::MapperKind::kCopy) finding.value += "; copying pages is slow";
    finding.warn("for {}: {}", memory::name_of(best.kind),
                 best.is_viable ? message("ask for auto ({})", kMapperSetting) : best.reason);
  }
  runtime::ResolvedBudget held = budget;
  held.warnings.clear();
  try {
    runtime::hold_to_mapper(held, settings, machine, kind);
    add_warnings(finding, held.warnings);
  } catch (const UnsupportedError& error) {
    finding.fail(error.what());
  }
  return finding;
}

}  // namespace

void Finding::add_mend(Verdict least, const std::string& next) {
  verdict = std::max(verdict, least);
  mend += (mend.empty() ? "" : "; ") + next;
}

std::vector<Finding> check_machine(const topology::Machine& machine) {
  return {check_kernel(machine.kernel),        check_processors(machine.processors),
          check_memory(machine.memory),        check_memory_limits(machine.memory),
          check_locked_memory(machine.limits), check_overcommit(machine.kernel),
          check_huge_pages(machine.kernel),    check_gpus(machine.gpus)};
}

Finding check_address_space(const topology::ProcessLimits& limits,
                            const runtime::ResolvedBudget& budget) {
  if (!limits.address_space_bytes) return unknown("address space");
  const Bytes usual = runtime::ResolvedBudget().arena;
  if (*limits.address_space_bytes == topology::kUnlimited)
    return {"address space", message("unlimited; a run reserves {} for tensors", usual)};
  const std::string size = to_string(Bytes(*limits.address_space_bytes));
  if (budget.arena == Bytes())
    return {"address space", size + "; a run finds too little for its budget", Verdict::kProblem,
            message("a run reserves {} for tensors where nothing limits it: ulimit -v unlimited",
                    usual)};
  if (budget.arena == usual)
    return {"address space", message("{}; a run reserves {} for tensors", size, usual)};
  return {"address space",
          message("{}; a run reserves {} of them for tensors at most, instead of {}", size,
                  budget.arena, usual),
          Verdict::kWarning,
          message("that bounds what tensors take in memory and on disk together: ulimit -v "
                  "unlimited{}{}",
                  budget.arena_advice.empty() ? "" : "; ", budget.arena_advice)};
}

CheckedBudget check_budget(const runtime::Settings& settings, const topology::Machine& machine) {
  CheckedBudget checked;
  auto& [finding, budget] = checked;
  try {
    budget = runtime::resolve_budget(settings, machine);
  } catch (const ConfigError& error) {
    finding = {"budget", "none", Verdict::kProblem, error.what()};
    runtime::hold_to_address_limit(budget, settings, machine);
    return checked;
  }
  finding = {"budget", {}};
  const auto fits = [&](const auto& hold_to) {
    try {
      hold_to(budget, settings, machine);
      return true;
    } catch (const UnsupportedError& error) {
      finding.fail(error.what());
      return false;
    }
  };
  const bool fits_data = fits(runtime::hold_to_writable_limit);
  const bool fits_addresses = fits(runtime::hold_to_address_limit);
  finding.value = message("{} ({})", budget.budget, budget.origin);
  add_warnings(finding, budget.warnings);
  if (!fits_addresses) budget.arena = Bytes();
  if (!fits_data || !fits_addresses) budget.budget = Bytes();
  return checked;
}

Finding check_mappers(const runtime::Settings& settings, const topology::Machine& machine,
                      const runtime::ResolvedBudget& budget,
                      const std::vector<memory::MapperProbe>& probes) {
  const bool is_forced = settings.mapper != "auto";
  Finding refused{
      "mapper",
      is_forced ? settings.mapper + " was asked for and does not work" : std::string("none works"),
      Verdict::kProblem,
      {}};
  for (const memory::MapperProbe& probe : probes) {
    const std::string name(memory::name_of(probe.kind));
    if (is_forced && name != settings.mapper) continue;
    if (probe.is_viable) return check_mapper(settings, machine, budget, probe.kind, probes.front());
    refused.mend += message("{}{}: {}", refused.mend.empty() ? "" : "; ", name, probe.reason);
  }
  if (is_forced) refused.mend += message(" (choose another, such as auto: {})", kMapperSetting);
  return refused;
}

Finding check_io_uring(const std::string& why_not) {
  if (why_not.empty()) return {"io_uring", "available"};
  return {"io_uring", "not available; threads with pread and pwrite serve instead",
          Verdict::kWarning, why_not};
}

Finding check_disk(const runtime::ResolvedDirectory& directory,
                   const std::optional<swap::DiskProbe>& probe) {
  Finding finding{"disk " + directory.facts.path, disk_value(directory)};
  const swap::DiskPoint* rates = probe ? probe->best() : nullptr;
  TransferRate slowest;
  if (rates != nullptr) {
    finding.value += message(", write {}, read {}, both {} (by {})",
                             TransferRate(rates->write.median), TransferRate(rates->read.median),
                             TransferRate(rates->mixed_write.median + rates->mixed_read.median),
                             probe->description);
    slowest = TransferRate(std::min(rates->write.median, rates->read.median));
  } else if (directory.measured) {
    const topology::DiskRate& measured = *directory.measured;
    finding.value += message(", write {}, read {} (bench-io, {})", measured.write, measured.read,
                             measured.measured_at);
    slowest = std::min(measured.write, measured.read);
  }
  if (directory.facts.is_ram_disk) {
    finding.warn("this is a RAM disk: what spills there frees no memory; name a folder on a disk "
                 "with --nvme DIR");
  } else if (!slowest.is_none() && slowest < kSlowDisk) {
    finding.warn("steps will wait for this disk; a local NVMe drive gives 2 GB/s and more");
  } else if (!directory.warnings.empty() || (probe && !probe->warnings.empty())) {
    finding.warn((directory.warnings.empty() ? probe->warnings : directory.warnings).front());
  }
  return finding;
}

Finding check_working_folder(const std::string& path, bool tells_births) {
  if (tells_births) return {"working folder", path};
  return {"working folder", path + ", where the file system does not tell when a file was made",
          Verdict::kWarning,
          "other ranks see at once what the first one makes: let the program make folders with "
          "exist_ok=True, and caches before the run; or work on another file system"};
}

Finding check_torch(const FoundTorch& torch, const std::vector<std::string>& served) {
  std::string list;
  for (const std::string& minor : served) (list += list.empty() ? "" : ", ") += minor;
  Finding finding{"LibTorch of " + torch.user, message("{}, {}", torch.version, torch.path)};
  const std::string minor = minor_of(torch.version);
  if (torch.version.empty()) {
    finding.value = "unknown version, " + torch.path;
    finding.fail("use an official build of LibTorch " + list);
  } else if (std::find(served.begin(), served.end(), minor) == served.end()) {
    finding.fail(served.empty() ? "no core library is installed: install Spillway again"
                                : message("this Spillway serves LibTorch {}; a trainer with {} "
                                          "needs a core for that (SPILLWAY_OTHER_CORES)",
                                          list, minor));
  }
  return finding;
}

std::vector<Finding> check_installed_torches(const std::vector<FoundTorch>& torches,
                                             const std::vector<std::string>& served) {
  std::vector<Finding> findings;
  bool is_one_served = false;
  for (const FoundTorch& torch : torches) {
    findings.push_back(check_torch(torch, served));
    is_one_served = is_one_served || findings.back().verdict == Verdict::kOk;
  }
  if (is_one_served)
    for (Finding& one : findings) one.verdict = std::min(one.verdict, Verdict::kWarning);
  return findings;
}

Verdict worst(const std::vector<Finding>& findings) {
  Verdict verdict = Verdict::kOk;
  for (const Finding& finding : findings) verdict = std::max(verdict, finding.verdict);
  return verdict;
}

std::string report_text(const std::vector<Finding>& findings) {
  std::ostringstream out;
  std::size_t widest = 0;
  for (const Finding& finding : findings) widest = std::max(widest, finding.subject.size());
  for (const Finding& finding : findings) {
    std::string verdict = name_of(finding.verdict);
    verdict.resize(8, ' ');
    out << verdict << finding.subject << std::string(widest - finding.subject.size() + 2, ' ')
        << finding.value << '\n';
    if (!finding.mend.empty())
      out << std::string(widest + 10, ' ') << "-> " << finding.mend << '\n';
  }
  const auto count = [&](Verdict verdict) {
    return static_cast<std::uint64_t>(
        std::count_if(findings.begin(), findings.end(),
                      [&](const Finding& finding) { return finding.verdict == verdict; }));
  };
  out << findings.size() << " checks: " << count(Verdict::kOk) << " ok, "
      << counted(count(Verdict::kWarning), "warning") << ", "
      << counted(count(Verdict::kProblem), "problem") << '\n';
  return out.str();
}

void to_json(nlohmann::json& json, const Finding& finding) {
  json = {finding.subject, finding.value, static_cast<int>(finding.verdict), finding.mend};
}

void from_json(const nlohmann::json& json, Finding& finding) {
  finding = {json.at(0), json.at(1), static_cast<Verdict>(json.at(2).get<int>()), json.at(3)};
}

std::string report_json(const std::vector<Finding>& findings) {
  return report_json(findings, nullptr);
}

std::string report_json(const std::vector<Finding>& findings, const nlohmann::ordered_json& job) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    checks.push_back({{"subject", finding.subject},
                      {"value", finding.value},
                      {"verdict", name_of(finding.verdict)},
                      {"mend", finding.mend}});
  nlohmann::ordered_json json = {{"format", "spillway doctor"},
                                 {"version", 1},
                                 {"verdict", name_of(worst(findings))},
                                 {"checks", std::move(checks)}};
  if (!job.is_null()) json["job"] = job;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::cli
