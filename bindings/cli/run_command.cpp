#include "run_command.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "child_output.h"
#include "exit_codes.h"
#include "installation.h"
#include "output_files.h"
#include "private_rank.h"
#include "program_file.h"
#include "progress_line.h"
#include "rank_environment.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/launcher.h"
#include "spillway/base/log.h"
#include "spillway/preload/active.h"
#include "spillway/runtime/settings/budget.h"
#include "spillway/runtime/settings/device_budget.h"
#include "spillway/runtime/settings/spill_directories.h"
#include "spillway/topology/disk_rates.h"
#include "spillway/transport/mpi.h"
#include "trials.h"

namespace spillway::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// Also against the words of the program: a script, or what it writes itself. `profile` is the
/// option that names the file of the profile.
void check_files(const runtime::Settings& settings, const std::vector<std::string>& program,
                 const char* profile) {
  const std::string& rates = settings.rates;
  std::vector<NamedFile> read{
      {"--plan", settings.plan},
      {"--config", settings.config},
      {"--rates", rates.empty() ? topology::default_disk_rates_path() : rates}};
  for (const std::string& word : program) read.push_back({"the program's argument", word});
  check_outputs(read, {{"--stats", output_path(settings, settings.stats)},
                       {"--trace", output_path(settings, settings.trace)},
                       {profile, output_path(settings, settings.profile_out)}});
}

// Everything that the run would stumble over later, while nothing has happened yet. The run itself
// repeats the warnings, in the process that they concern.
void check_settings(const runtime::Settings& settings, const std::vector<std::string>& program,
                    const char* profile) {
  check_files(settings, program, profile);
  if (!settings.profile_out.empty() && !settings.prefetch)
    throw ConfigError("a profile needs --prefetch on: it is made of learned steps");
  runtime::check_device_budgets(settings);
  // Ranks that ended before they meet would keep the others waiting: these tell of it together.
  if (settings.split && runtime::launched_rank()) return;
  const auto budget = runtime::resolve_budget(settings, topology::discover_machine());
  runtime::resolve_spill_directories(settings, budget.budget, runtime::real_surroundings(settings));
  // Whether the plan is for a step of this program, only the program can tell.
  runtime::planning_of(settings, budget.budget);
}

std::string usable_preload() {
  const std::string command = own_path();
  if (command.empty())
    throw UnsupportedError("the place of this command cannot be told, so its libraries are not "
                           "found: /proc is not mounted (mount -t proc proc /proc)");
  const Installation here = find_installation(command);
  if (here.preload.empty())
    throw UnsupportedError("libspillway_preload.so is not in {}: the installation is incomplete",
                           here.library_folder);
  if (here.preload.find_first_of(" :") != std::string::npos)
    throw UnsupportedError(
        "{} cannot be preloaded, because LD_PRELOAD allows no blank and no colon "
        "in a path (install Spillway elsewhere)",
        here.preload);
  return here.preload;
}

void refuse_unreachable(const ProgramFile& program, const std::string& path) {
  if (const auto objection = objection_to(program))
    throw UnsupportedError("{} {} ({})", path, objection->reason, objection->cure);
}

// Said only where a person looks on, or expects a file that may never come.
void note_program_without_torch(const runtime::Settings& settings, const ProgramFile& program,
                                const std::string& path) {
  const bool waits_for_file =
      !settings.stats.empty() || !settings.trace.empty() || !settings.profile_out.empty();
  if (settings.quiet || (!waits_for_file && !is_watched())) return;
  if (program.kind != ProgramKind::kDynamic || linked_torch(program, path)) return;
  std::fprintf(
      stderr,
      "[spillway] note: %s is not linked with LibTorch; Spillway acts once it, or a program "
      "that it starts, loads LibTorch\n",
      path.c_str());
}

void set_variables(const runtime::NamedTexts& settings) {
  for (const auto& [key, value] : settings)
    ::setenv(runtime::environment_name(key).c_str(), value.c_str(), 1);
}

void prepare_environment(const runtime::SettingSources& sources, const std::string& preload,
                         const runtime::Settings& settings,
                         const std::optional<std::string>& sanitizer) {
  set_variables(sources.options);
  // The program may change its folder, and ranks may start in others: paths go as they are seen
  // from here, wherever they were given.
  set_variables(runtime::absolute_path_settings(sources));
  const std::string existing = variable("LD_PRELOAD");
  const std::string before = sanitizer ? *sanitizer + ":" + existing : existing;
  const std::string combined = with_preload(preload, before);
  if (combined != preload && !existing.empty() && existing != preload)
    log_warning("LD_PRELOAD was set already ({}) and stays in force {} Spillway", existing,
                combined.starts_with(preload) ? "behind" : "beside");
  ::setenv("LD_PRELOAD", combined.c_str(), 1);
  // The preload library reads these two before there are settings, and knows one spelling.
  if (settings.split) ::setenv("SPILLWAY_SPLIT", "on", 1);
  if (settings.children == runtime::ChildPrograms::kStrip)
    ::setenv("SPILLWAY_CHILDREN", "strip", 1);
  // Else Python orders its sets in another way on each rank.
  if (settings.split) ::setenv("PYTHONHASHSEED", "0", 0);
  ::setenv(SPILLWAY_ACTIVE_VARIABLE, SPILLWAY_ACTIVE_VALUE, 1);
}

// A budget that somebody gave must not be forgotten in silence: the process that this one becomes
// listens for cores, by a name that no other run has (see bindings/preload).
void ask_whether_under_spillway() {
  if (spillway_run_name() != nullptr) return;  // Inside of another run that asks already.
  std::uint32_t salt = 0;
  if (::getrandom(&salt, sizeof salt, GRND_NONBLOCK) != sizeof salt)
    salt = static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const std::string name =
      message("{}:{}{}-{}", SPILLWAY_ACTIVE_VALUE, SPILLWAY_RUN_NAME_START, ::getpid(), salt);
  ::setenv(SPILLWAY_ACTIVE_VARIABLE, name.c_str(), 1);
}

/// Nothing else tells a program that knows of one process which GPU is its own.
void choose_gpu(const runtime::Settings& settings) {
  const auto launcher = find_launcher();
  if (!settings.split || !launcher) return;
  const auto gpu = gpu_of_rank(*launcher, std::getenv("CUDA_VISIBLE_DEVICES"));
  if (!gpu) return;
  ::setenv("CUDA_VISIBLE_DEVICES", gpu->c_str(), 1);
  if (launcher->rank == 0 && log_enabled(LogLevel::kInfo))
    log_line(LogLevel::kInfo,
             message("a rank that uses a GPU has the one of its number on its host, as its cuda:0 "
                     "(CUDA_VISIBLE_DEVICES={} on this one)",
                     *gpu));
}

/// A run would see its GPUs only at the first tensor there. Programs in Python load CUDA by
/// themselves, later: there the run tells it.
void check_gpu_budgets(const runtime::NamedTexts& options, const runtime::Settings& settings,
                       const ProgramFile& program, const std::string& path) {
  const auto may_be_refused = [](const runtime::DeviceBudget& budget) {
    const bool is_size = budget.request.kind == runtime::BudgetRequest::Kind::kSize;
    const bool is_of_one = budget.device.find(':') != std::string::npos;
    return budget.device != "cpu" && (is_size || is_of_one);
  };
  const auto& budgets = settings.device_budgets;
  if (std::none_of(budgets.begin(), budgets.end(), may_be_refused)) return;
  const auto cuda_runtime = linked_cuda_runtime(program, path);
  if (!cuda_runtime) return;
  if (const auto why = objection_to_gpu_budgets(own_path(), *cuda_runtime, options); !why.empty())
    throw ConfigError("{}", why);
}

bool is_given(std::string_view key, const runtime::SettingSources& sources,
              const runtime::Settings& settings) {
  const auto names = [](const runtime::NamedTexts& texts, std::string_view name) {
    return std::any_of(texts.begin(), texts.end(), [&](const auto& each) {
      return each.first == name && !each.second.empty();
    });
  };
  return names(sources.options, key) ||
         names(sources.environment, runtime::environment_name(key)) ||
         (!settings.config.empty() && names(runtime::read_config_file(settings.config), key));
}

int execute(const std::string& path, const std::vector<std::string>& program) {
  ::execv(path.c_str(), exec_arguments(program).data());
  const int error = errno;
  const std::string starter = error == ENOENT ? starter_of(path) : std::string();
  if (!starter.empty() && ::access(path.c_str(), F_OK) == 0) {
    log_error("cannot start {}: it is to be started by {}, which does not exist", path, starter);
    return kNotExecutable;
  }
  log_error("cannot start {}: {}", path, std::strerror(error));
  return error == ENOENT ? kNotFound : kNotExecutable;
}

static_assert(kHiddenLauncher == SPILLWAY_HIDDEN_LAUNCHER);

// Of a program that runs on many ranks, the first one's effects are the user's.
void become_rank(const runtime::Settings& settings) {
  const auto launcher = find_launcher();
  const bool is_inside_of_one = !variable(SPILLWAY_PRIVATE_FILES_VARIABLE).empty();
  if (!settings.split || !launcher || launcher->ranks == 1 || is_inside_of_one) return;
  if (launcher->rank == 0) {
    const Finding folder = examine_working_folder();
    if (folder.verdict != Verdict::kOk)
      log_warning("{} {}: {}", folder.subject, folder.value, folder.mend);
    return;
  }
  const std::string rank = std::to_string(launcher->rank);
  const std::string temporary = variable("TMPDIR");
  become_private_rank({.rank = rank, .parent_folder = temporary.empty() ? "/tmp" : temporary});
}

bool is_budget(const std::string& word) {
  try {
    runtime::Settings settings;
    runtime::assign_setting(settings, "budget", word, "budget");
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

// What else may have been meant by a program that is not there.
std::string hint_for_program(const std::string& name) {
  if (is_budget(name)) return message(" (did you mean --budget {}?)", name);
  if (name.rfind("--", 0) == 0) return " (options of `spillway run` stand before the \"--\")";
  if (name.find(' ') != std::string::npos)
    return message(" (a program and its arguments are words of their own, not quoted together: "
                   "spillway run -- {})",
                   name);
  return remedy_for_missing(name);
}

/// Returns where it does not start.
int start_program(const runtime::SettingSources& sources, const runtime::Settings& settings,
                  const std::vector<std::string>& given_program,
                  const std::function<int(const ProgramStart&)>& start) {
  if (given_program.empty())
    throw ConfigError("no program to run (spillway run [options] -- program arguments...)");
  std::optional<Shard> shard;
  if (is_given("shards", sources, settings)) shard = shard_of_this_process(settings);
  const std::vector<std::string> program = shard ? words_for(*shard, given_program) : given_program;
  check_settings(settings, program, start ? "--out" : "--profile-out");
  const ProgramLookup found = find_program(program.front());
  if (found.path.empty()) {
    log_error("program not found: {}{}", program.front(), hint_for_program(program.front()));
    return kNotFound;
  }
  if (!found.hindrance.empty()) {
    log_error("cannot start {}: {}", found.path, found.hindrance);
    return kNotExecutable;
  }
  const ProgramFile file = inspect_program(found.path);
  refuse_unreachable(file, found.path);
  const std::string preload = usable_preload();
  note_program_without_torch(settings, file, found.path);
  choose_gpu(settings);
  check_gpu_budgets(sources.options, settings, file, found.path);
  prepare_environment(sources, preload, settings, linked_sanitizer(file, found.path));
  if (shard) set_variables_of(*shard, given_program);
  const auto become = [&] {
    become_rank(settings);
    return execute(found.path, program);
  };
  if (!start) {
    if (is_given("budget", sources, settings)) ask_whether_under_spillway();
    return become();
  }
  return start(
      {settings.profile_out, found.path, linked_torch(file, found.path).has_value(), become});
}

}  // namespace

RunArguments split_run_arguments(const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string_view>& more) {
  RunArguments result;
  std::size_t at = 0;
  for (; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    if (word == "--") {
      ++at;
      break;
    }
    if (word.empty() || word.front() != '-') break;
    result.options.push_back(word);
    const runtime::SettingInfo* setting = setting_behind(word);
    const auto own = more.find(word);
    if (setting == nullptr && own == more.end()) continue;
    const std::string* next = at + 1 < arguments.size() ? &arguments[at + 1] : nullptr;
    if (setting == nullptr || !setting->is_switch) {
      require_value(word, setting == nullptr ? own->second : setting->value, next);
      result.options.push_back(arguments[++at]);
    } else if (next != nullptr && (*next == "on" || *next == "off")) {
      // Any other word behind a switch is the program.
      result.options.back() += '=' + arguments[++at];
    }
  }
  result.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return result;
}

std::string with_preload(const std::string& preload, const std::string& existing) {
  std::string first;
  std::string others;
  std::string_view rest = existing;
  while (!rest.empty()) {
    const auto end = rest.find_first_of(" :");
    const auto entry = rest.substr(0, end);
    if (is_sanitizer(entry))
      first.append(entry).append(":");
    else if (!entry.empty() && entry != preload)
      others.append(":").append(entry);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return first + preload + others;
}

int run_program(const runtime::NamedTexts& given, const std::vector<std::string>& program,
                const std::function<int(const ProgramStart&)>& start) {
  const runtime::SettingSources sources{given, runtime::spillway_environment()};
  const auto rank = start ? std::nullopt : runtime::launched_rank();
  bool is_split = rank && is_given("split", sources, {});
  int code = kWrongUsage;
  std::string refusal;
  try {
    const runtime::Settings settings = runtime::load_settings(sources);
    configure_log(settings.quiet ? LogLevel::kError : settings.log_level);
    if (settings.split) hide_launcher();
    is_split = rank && settings.split;
    code = start_program(sources, settings, program, start);
  } catch (const std::exception& error) {
    if (!is_split) throw;
    refusal = error.what();
  }
  if (!is_split) return code;
  // It has not become the program, for which other ranks may wait in MPI.
  transport::tell_once_on_host([&] {
    if (refusal.empty()) return;
    configure_log(LogLevel::kError, *rank);
    log_error("{}", refusal);
  });
  return code;
}

}  // namespace spillway::cli
