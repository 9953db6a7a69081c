#include "spillway/runtime/settings/settings.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/memory/frame_mapper.h"
#include "support/error_text.h"
#include "support/golden_folder.h"
#include "support/golden_part.h"
#include "support/golden_text.h"
#include "support/temporary_directory.h"

namespace spillway::runtime {
namespace {

std::string config_file(const std::string& text) {
  static const TemporaryDirectory directory;
  const std::string path = directory.path() + "/spillway.conf";
  std::ofstream(path) << text;
  return path;
}

/// What a call refuses, or "accepted".
template <typename Action>
std::string refusal_of(const Action& action) {
  return error_text<ConfigError>([&] { action(); });
}

std::string refusal_of_option(const std::string& key, const std::string& value) {
  return refusal_of([&] { load_settings({{{key, value}}, {}}); });
}

Settings with_option(const std::string& key, const std::string& value) {
  return load_settings({{{key, value}}, {}});
}

TEST(SettingCatalogue, ExplainsEveryKeyOnce) {
  std::set<std::string_view> keys;
  for (const SettingInfo& info : setting_catalogue()) {
    EXPECT_TRUE(keys.insert(info.key).second) << info.key;
    EXPECT_FALSE(info.group.empty()) << info.key;
    EXPECT_FALSE(info.meaning.empty()) << info.key;
    EXPECT_FALSE(info.value.empty()) << info.key;
    EXPECT_FALSE(info.fallback.empty()) << info.key;
  }
  for (const char* key :
       {"budget", "nvme", "store", "queue-depth", "verify", "mapper", "dispatch-key", "prefetch",
        "min-storage", "stats", "quiet", "progress", "log-level", "config", "rates", "children",
        "reserve", "trace", "trace-steps"})
    EXPECT_EQ(keys.count(key), 1u) << key;
}

TEST(EnvironmentName, IsTheKeyInCapitals) {
  EXPECT_EQ(environment_name("queue-depth"), "SPILLWAY_QUEUE_DEPTH");
}

TEST(LoadSettings, HasDefaults) {
  const Settings settings = load_settings({});
  EXPECT_EQ(settings.budget.kind, BudgetRequest::Kind::kAuto);
  EXPECT_EQ(settings.min_storage, 1_MiB);
  EXPECT_EQ(settings.queue_depth, 16u);
  EXPECT_TRUE(settings.prefetch);
  EXPECT_FALSE(settings.verify);
  EXPECT_TRUE(settings.nvme.empty());
  EXPECT_EQ(settings.oversize_limit, std::nullopt);
}

TEST(LoadSettings, TellsNoOversizeOperatorsFromNoLimitOnThem) {
  EXPECT_EQ(with_option("oversize-limit", "0B").oversize_limit, Bytes());
  EXPECT_EQ(with_option("oversize-limit", "40GiB").oversize_limit, 40_GiB);
}

TEST(LoadSettings, ReadsEachKindOfBudget) {
  EXPECT_EQ(with_option("budget", "4GiB").budget.size, 4_GiB);
  EXPECT_EQ(with_option("budget", "12.5%").budget.percent, 12.5);
  EXPECT_EQ(with_option("budget", "auto").budget.kind, BudgetRequest::Kind::kAuto);
}

TEST(LoadSettings, TakesABudgetForEachDevice) {
  const Settings settings = with_option("budget", "cuda:0=20GiB,cuda=50%,cpu=64GiB");
  EXPECT_EQ(settings.budget.size, 64_GiB);
  ASSERT_EQ(settings.device_budgets.size(), 3u);
  EXPECT_EQ(settings.device_budgets[0].device, "cuda:0");
  EXPECT_EQ(settings.device_budgets[0].request.size, 20_GiB);
  EXPECT_EQ(settings.device_budgets[1].device, "cuda");
  EXPECT_EQ(settings.device_budgets[1].request.percent, 50.0);
  EXPECT_EQ(with_option("budget", "cuda=4GiB").budget.kind, BudgetRequest::Kind::kAuto);
  EXPECT_TRUE(with_option("budget", "4GiB").device_budgets.empty());
}

TEST(LoadSettings, LetsABudgetForAllDevicesWinOverThoseOfEach) {
  const Settings settings =
      load_settings({{{"budget", "4GiB"}}, {{"SPILLWAY_BUDGET", "cuda=8GiB,cpu=2GiB"}}});
  EXPECT_EQ(settings.budget.size, 4_GiB);
  EXPECT_TRUE(settings.device_budgets.empty());
}

TEST(LoadSettings, TakesChecksumsWhereGpusMoveNothingThemselves) {
  EXPECT_NO_THROW(load_settings({{{"verify", "on"}, {"gds", "auto"}}, {}}));
}

TEST(LoadSettings, ReadsDirectories) {
  const auto nvme = with_option("nvme", "/scratch:200GiB,/fast,/odd:name").nvme;
  ASSERT_EQ(nvme.size(), 3u);
  EXPECT_EQ(nvme[0].path, "/scratch");
  EXPECT_EQ(nvme[0].limit, 200_GiB);
  EXPECT_EQ(nvme[1].path, "/fast");
  EXPECT_EQ(nvme[1].limit, 0_B);
  EXPECT_EQ(nvme[2].path, "/odd:name");
}

TEST(LoadSettings, ReadsMemoryBeforeTheDirectories) {
  const Settings both = with_option("nvme", "ram:64MiB,/scratch:2GiB,/fast");
  EXPECT_EQ(both.host_tier, 64_MiB);
  ASSERT_EQ(both.nvme.size(), 2u);
  EXPECT_EQ(both.nvme[0].limit, 2_GiB);
  EXPECT_EQ(with_option("nvme", "/fast,ram:2MiB").host_tier, 2_MiB);
  const Settings alone = with_option("nvme", "ram:1.5GB");
  EXPECT_EQ(alone.host_tier, 1500000000_B);
  EXPECT_TRUE(alone.nvme.empty()) << "the directory is picked as without it";
  // Folders of such names, and what wins over an earlier setting.
  EXPECT_EQ(with_option("nvme", "./ram:8GiB").host_tier, 0_B);
  Settings settings;
  assign_setting(settings, "nvme", "ram:64MiB,/a", "test");
  assign_setting(settings, "nvme", "/b", "test");
  EXPECT_EQ(settings.host_tier, 0_B);
  EXPECT_EQ(settings.nvme.size(), 1u);
}

TEST(LoadSettings, ReadsSwitchesAndChoices) {
  EXPECT_TRUE(with_option("verify", "on").verify);
  EXPECT_FALSE(with_option("prefetch", "off").prefetch);
  EXPECT_EQ(with_option("store", "io_uring").store, swap::StoreKind::kIoUring);
  EXPECT_EQ(with_option("children", "strip").children, ChildPrograms::kStrip);
  EXPECT_EQ(with_option("log-level", "debug").log_level, LogLevel::kDebug);
  EXPECT_EQ(with_option("mapper", "signal").mapper, "signal");
  EXPECT_EQ(with_option("dispatch-key", "record-function").dispatch_key, "record-function");
}

TEST(LoadSettings, ReadsWhatToTrace) {
  EXPECT_EQ(load_settings({}).trace, "");
  EXPECT_EQ(load_settings({}).trace_steps, 3u);
  EXPECT_EQ(with_option("trace", "/tmp/run-%p.json").trace, "/tmp/run-%p.json");
  EXPECT_EQ(with_option("trace-steps", "12").trace_steps, 12u);
}

TEST(LoadSettings, LetsOptionsWinOverVariablesOverTheFile) {
  const std::string path = config_file("budget = 1GiB\nqueue-depth = 4\nstore = posix\n");
  const Settings settings = load_settings(
      {{{"budget", "3GiB"}},
       {{"SPILLWAY_CONFIG", path}, {"SPILLWAY_BUDGET", "2GiB"}, {"SPILLWAY_QUEUE_DEPTH", "8"}}});
  EXPECT_EQ(settings.budget.size, 3_GiB);
  EXPECT_EQ(settings.queue_depth, 8u);
  EXPECT_EQ(settings.store, swap::StoreKind::kPosix);
  EXPECT_EQ(settings.config, path);
}

TEST(LoadSettings, TakesTheFileOfTheOptionOverThatOfTheVariable) {
  const std::string path = config_file("queue-depth = 5\n");
  const Settings settings =
      load_settings({{{"config", path}}, {{"SPILLWAY_CONFIG", "/no/such/file"}}});
  EXPECT_EQ(settings.queue_depth, 5u);
}

TEST(LoadSettings, IgnoresForeignVariablesAndThoseOfTheBuild) {
  EXPECT_EQ(refusal_of([] {
              load_settings({{},
                             {{"HOME", "/home/me"},
                              {"SPILLWAY_ACTIVE", "1"},
                              {"SPILLWAY_LIBTORCH_DIR", "/opt/torch"},
                              // `SPILLWAY_LIBTORCH=2.11 ./quickstart.sh`, which starts runs.
                              {"SPILLWAY_LIBTORCH", "2.11"},
                              {"SPILLWAY_SKIP_PACKAGES", "1"},
                              {"SPILLWAY_BUDGET", ""}}});
            }),
            "accepted");
}

TEST(LoadSettings, TakesOptionsOfSplitWithIt) {
  EXPECT_EQ(refusal_of_option("replicas", "1"), "accepted");
  EXPECT_EQ(load_settings({{{"replicas", "2"}, {"split", "on"}}, {}}).replicas, 2u);
  EXPECT_EQ(load_settings({{{"split", "off"}}, {{"SPILLWAY_REPLICAS", "2"}}}).replicas, 2u);
}

TEST(ReadConfigFile, UnderstandsCommentsBlanksAndQuotes) {
  const auto texts = read_config_file(config_file("# a comment\n\n"
                                                  "budget=4GiB   # why\n"
                                                  "  nvme = \"/my disk # 1\"  # quoted\n"
                                                  "stats = /tmp/run#1.json\r\n"));
  const NamedTexts expected = {
      {"budget", "4GiB"}, {"nvme", "/my disk # 1"}, {"stats", "/tmp/run#1.json"}};
  EXPECT_EQ(texts, expected);
}

const std::vector<std::pair<std::string, std::vector<std::string>>> kRefusedOptions = {
    {"budget",
     {"",
      "4",
      "0GiB",
      "0%",
      "101%",
      "%",
      "-4GiB",
      "4GB%",
      "4Gig",
      "lots",
      "gpu=4GiB",
      "cuda:=4GiB",
      "cuda:x=4GiB",
      "cuda:00=4GiB",
      "cuda:-1=4GiB",
      "cuda:99999=4GiB",
      "cpu:0=4GiB",
      "CUDA=4GiB",
      "=4GiB",
      "4GiB,cpu=2GiB",
      "cpu=2GiB,4GiB",
      "cpu=2GiB,",
      "cuda:1=4GiB,cpu=2GiB,cuda:1=8GiB",
      "cuda=",
      "cuda",
      "cpu=2GiB,cuda",
      "cuda,cpu=2GiB",
      "cuda=4",
      "cuda=0",
      "cuda:0=4",
      "cuda:0:20MiB",
      "cpu=2GiB,cuda:20MiB",
      "cuda=0GiB",
      "cuda=101%"}},
    {"nvme",
     {"ram:64MiB,/a,ram:32MiB", "ram:,/a", "ram:lots", "ram:-1GiB", "ram:64", "ram:0GiB",
      "ram:1MiB", "/scratch:200", "/a,,/b", "/a,/b,/a", "/a:0GiB"}},
    {"store", {"iouring"}},
    {"verify", {"onn"}},
    {"queue-depth", {"0", "8x"}},
    {"trace-steps", {"0"}},
    {"log-level", {"loud"}},
    {"min-store", {"1MiB"}},
    {"replicas", {"2"}}};

const std::vector<std::pair<std::string, std::string>> kRefusedVariables = {
    {"SPILLWAY_BUDGET", "4"}, {"SPILLWAY_BUGDET", "4GiB"}, {"SPILLWAY_FOO", "1"}};

TEST(LoadSettings, RefusesAsItsFileShows) {
  GoldenText golden(golden_file("refused_settings.txt"));
  std::string text;
  for (const auto& [key, values] : kRefusedOptions)
    for (const std::string& value : values)
      text += message("--{} '{}' > {}\n", key, value, refusal_of_option(key, value));
  golden.add("options", text);
  text.clear();
  for (const auto& [name, value] : kRefusedVariables)
    text += message("{}={} > {}\n", name, value, refusal_of([&, &name = name, &value = value] {
                      load_settings({{}, {{name, value}}});
                    }));
  golden.add("variables", text);
  // Also of programs that link Spillway, before they use a GPU.
  golden.add("checksums of what GPUs move themselves", refusal_of([] {
               load_settings({{{"verify", "on"}, {"gds", "on"}}, {}});
             }));
  golden.add("as another source names options", refusal_of([] {
               load_settings({{{"budget", "4"}}, {}, "start(): "});
             }));
}

TEST(ReadConfigFile, RefusesAsItsFileShows) {
  GoldenText golden(golden_file("refused_config_files.txt"));
  for (const char* lines :
       {"budget = 4GiB\nbugdet = 1GiB\n", "just words\n", "quiet = on\nquiet = off\n",
        "nvme = \"/open\n", "config = other.conf\n", "# mine\nqueue-depth = many\n"}) {
    const std::string path = config_file(lines);
    std::string refusal = refusal_of([&] { load_settings({{{"config", path}}, {}}); });
    for (std::size_t at = 0; (at = refusal.find(path, at)) != std::string::npos;)
      refusal.replace(at, path.size(), "FILE");
    golden.add(lines, refusal);
  }
  for (const char* path : {"/no/such/file.conf", "/"})
    golden.add(path, refusal_of([&] { read_config_file(path); }));
}

const SettingInfo& setting(std::string_view key) {
  for (const SettingInfo& info : setting_catalogue())
    if (info.key == key) return info;
  throw std::out_of_range("no such setting");
}

TEST(SettingCatalogue, ListsTheNamesThatAreAccepted) {
  EXPECT_EQ(setting("store").value, alternatives(swap::store_kinds()));
  for (const auto& store : swap::store_kinds())
    EXPECT_EQ(with_option("store", std::string(store.name)).store, store.value);
  EXPECT_EQ(setting("mapper").value, "auto|" + alternatives(memory::mapper_kinds()));
  for (const auto& mapper : memory::mapper_kinds())
    EXPECT_EQ(with_option("mapper", std::string(mapper.name)).mapper, mapper.name);
  EXPECT_EQ(setting("log-level").value, "debug|info|warning|error|off");
}

TEST(AbsolutePaths, AreSeenFromTheFolder) {
  EXPECT_EQ(absolute_paths(setting("stats"), "run.json", "/here"), "/here/run.json");
  EXPECT_EQ(absolute_paths(setting("stats"), "/there/run.json", "/here"), "/there/run.json");
  EXPECT_EQ(absolute_paths(setting("nvme"), "a:1GiB,/b,./c,.", "/here"),
            "/here/a:1GiB,/b,/here/c,/here");
  EXPECT_EQ(absolute_paths(setting("rates"), "disks.json", "/"), "/disks.json");
  EXPECT_EQ(absolute_paths(setting("budget"), "4GiB", "/here"), "4GiB");
}

TEST(AbsolutePaths, DoNotGuessWhatLiesBehindALink) {
  EXPECT_EQ(absolute_paths(setting("stats"), "link/../run.json", "/here"),
            "/here/link/../run.json");
}

TEST(AbsolutePaths, KeepTheNameOfTheFolderAsItIs) {
  GoldenPart golden;
  for (const char* key : {"stats", "trace", "profile-out"})
    EXPECT_EQ(expand_stats_path(absolute_paths(setting(key), "%p.json", "/50%p"), 42, ""),
              "/50%p/42.json")
        << key;
  Settings settings;
  assign_setting(settings, "nvme", absolute_paths(setting("nvme"), "a,b:2GiB", "/job:12"), "test");
  ASSERT_EQ(settings.nvme.size(), 2u);
  EXPECT_EQ(settings.nvme[0].path, "/job:12/a");
  EXPECT_EQ(settings.nvme[1].limit, 2_GiB);
  golden.add(refusal_of([] { absolute_paths(setting("nvme"), "a", "/here,there"); }));
  EXPECT_EQ(absolute_paths(setting("nvme"), "/a,/b", "/here,there"), "/a,/b");
  EXPECT_EQ(absolute_paths(setting("nvme"), "ram:64MiB,a,ramp", "/here"),
            "ram:64MiB,/here/a,/here/ramp");
  EXPECT_EQ(absolute_paths(setting("nvme"), "ram:64MiB,/a", "/here,there"), "ram:64MiB,/a");
  golden.add(refusal_of([] { absolute_paths(setting("stats"), "run.json", ""); }));
}

/// The process in another folder for a while.
class Elsewhere {
 public:
  explicit Elsewhere(const std::string& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~Elsewhere() { std::filesystem::current_path(before_); }
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;

 private:
  std::filesystem::path before_;
};

// A trainer that changed its folder used to write its statistics there, and to spill there.
TEST(LoadSettings, MakesPathsAbsoluteWhereverTheyWereGiven) {
  const std::string file = config_file("rates = disks.json\n");
  const Elsewhere elsewhere("/usr");
  const Settings settings =
      load_settings({{{"config", file}, {"nvme", "lib,/bin"}}, {{"SPILLWAY_STATS", "run.json"}}});
  EXPECT_EQ(settings.rates, "/usr/disks.json");
  EXPECT_EQ(settings.stats, "/usr/run.json");
  ASSERT_EQ(settings.nvme.size(), 2u);
  EXPECT_EQ(settings.nvme[0].path, "/usr/lib");
  EXPECT_EQ(settings.nvme[1].path, "/bin");
}

TEST(AbsolutePathSettings, AreThoseThatWin) {
  const std::string file = config_file("rates = disks.json\nnvme = a\nbudget = 1GiB\n");
  const Elsewhere elsewhere("/usr");
  NamedTexts expected = {{"nvme", "/usr/c"},
                         {"stats", "/usr/run.json"},
                         {"rates", "/usr/disks.json"},
                         {"config", file}};
  EXPECT_EQ(absolute_path_settings(
                {{{"config", file}, {"nvme", "b"}, {"nvme", "c"}},
                 {{"SPILLWAY_STATS", "run.json"}, {"SPILLWAY_NVME", "d"}, {"SPILLWAY_RATES", ""}}}),
            expected);
  EXPECT_TRUE(absolute_path_settings({{{"budget", "1GiB"}}, {}}).empty());
}

TEST(ExpandStatsPath, FillsProcessAndRank) {
  EXPECT_EQ(expand_stats_path("run-%r-%p.json", 42, "3"), "run-3-42.json");
  EXPECT_EQ(expand_stats_path("run-%r.json", 42, ""), "run-0.json");
  EXPECT_EQ(expand_stats_path("100%%-%x-%", 42, ""), "100%-%x-%");
}

TEST(IsOfEachRank, TakesEscapedSignsForText) {
  for (const char* pattern : {"a%r.json", "a%p.json", "%%%r"})
    EXPECT_TRUE(is_of_each_rank(pattern));
  for (const char* pattern : {"a%%r.json", "100%%p", "a.json"})
    EXPECT_FALSE(is_of_each_rank(pattern));
}

TEST(OutputPath, TellsProgramsOfALauncherApart) {
  ASSERT_EQ(::setenv("RANK", "1", 1), 0);
  ASSERT_EQ(::setenv("WORLD_SIZE", "2", 1), 0);
  Settings settings;
  EXPECT_EQ(output_path(settings, "/there.d/run.json"), "/there.d/run.1.json");
  EXPECT_EQ(output_path(settings, "run"), "run.1");
  EXPECT_EQ(output_path(settings, "run-%r.json"), "run-1.json");
  EXPECT_EQ(output_path(settings, ""), "");
  settings.split = true;  // The first rank writes one for all.
  EXPECT_EQ(output_path(settings, "run.json"), "run.json");
  settings.split = false;
  ASSERT_EQ(::setenv("RANK", "0", 1), 0);
  EXPECT_EQ(output_path(settings, "run.json"), "run.json");
  ASSERT_EQ(::unsetenv("RANK"), 0);
  ASSERT_EQ(::unsetenv("WORLD_SIZE"), 0);
}

TEST(SettingsFromEnvironment, ReadsThisProcess) {
  ASSERT_EQ(::setenv("SPILLWAY_BUDGET", "3GiB", 1), 0);
  EXPECT_EQ(settings_from_environment().budget.size, 3_GiB);
  ASSERT_EQ(::unsetenv("SPILLWAY_BUDGET"), 0);
}

}  // namespace
}  // namespace spillway::runtime
