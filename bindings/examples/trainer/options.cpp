#include "trainer/options.h"

#include <array>
#include <charconv>
#include <optional>

namespace trainer {
namespace {

std::optional<double> number_in(const std::string& text) {
  double number = 0.0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return number;
}

std::string canonical(const std::string& text) {
  const auto number = number_in(text);
  if (!number) return text;
  std::array<char, 32> buffer{};
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), *number);
  return {buffer.data(), written.ptr};
}

// Said before hours of training, not after them.
std::string require_folder(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  if (std::filesystem::is_directory(folder)) return "";
  return "there is no folder '" + folder.string() + "' to write it to";
}

std::string value_of(const CLI::Option& option) {
  if (option.count() == 0) return canonical(option.get_default_str());
  std::string joined;
  for (const std::string& value : option.results()) {
    if (!joined.empty()) joined += ' ';
    joined += canonical(value);
  }
  return joined;
}

}  // namespace

std::string at_least_one(const std::string& text) {
  const auto number = number_in(text);
  return number && *number < 1.0 ? "must be 1 or more, not " + text : "";
}

std::string at_least_zero(const std::string& text) {
  const auto number = number_in(text);
  return number && *number < 0.0 ? "must be 0 or more, not " + text : "";
}

std::string above_zero(const std::string& text) {
  const auto number = number_in(text);
  return number && *number <= 0.0 ? "must be above 0, not " + text : "";
}

void add_run_options(CLI::App& app, RunOptions& options) {
  const auto add = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str()->group(kRunGroup);
  };
  const auto add_output = [&app](const char* name, std::filesystem::path& file, const char* text) {
    return app.add_option(name, file, text)->check(require_folder)->group(kRunGroup);
  };
  add("--steps", options.steps, "Number of the last training step")->check(at_least_one);
  add("--micro-batches", options.micro_batches,
      "Batches per step, one after the other; their gradients add up, and the loss is their mean")
      ->check(at_least_one)
      ->group(kTrainingGroup);
  add("--seed", options.seed,
      "Decides the initial weights, the order of the data and all random numbers")
      ->group(kTrainingGroup);
  add("--threads", options.threads,
      "Threads of LibTorch's operators, 0: one per core. The same number of threads gives the same "
      "bits")
      ->check(at_least_zero);
  add("--device", options.device,
      "Where model and batches lie: cpu, cuda, or cuda:1 for the second GPU")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const bool is_number =
                text.size() == 6 && text.starts_with("cuda:") && text[5] >= '0' && text[5] <= '9';
            return text == "cpu" || text == "cuda" || is_number
                       ? ""
                       : "give cpu, cuda or cuda:NUMBER, not " + text;
          },
          "DEVICE"));
  app.add_flag("--autocast", options.autocast,
               "Compute matrix products and convolutions of the forward in bfloat16")
      ->group(kTrainingGroup);
  add_output("--losses", options.losses,
             "Write 'step loss' per line; reading a loss back gives the same bits");
  CLI::Option* checkpoint =
      add_output("--checkpoint", options.checkpoint,
                 "Write model, optimizer, random numbers and step here after the last step");
  add("--checkpoint-every", options.checkpoint_every,
      "Also write the checkpoint after every N-th step, 0: only after the last")
      ->check(at_least_zero)
      ->needs(checkpoint);
  app.add_option("--resume", options.resume,
                 "Continue from a checkpoint, exactly as if the run had never stopped")
      ->check(CLI::ExistingFile)
      ->group(kRunGroup);
  add_output("--save-model", options.save_model,
             "Write parameters and buffers here after the last step");
}

std::string preset_on_command_line(int argc, char** argv, const std::string& fallback) {
  std::string preset = fallback;
  CLI::App scout;
  scout.set_help_flag();
  scout.allow_extras();
  scout.add_option("--preset", preset);
  try {
    scout.parse(argc, argv);
  } catch (const CLI::ParseError&) {
    // The real parser meets the same mistake and explains it.
  }
  return preset;
}

void add_preset_option(CLI::App& app, std::string& preset, const std::vector<std::string>& names,
                       const std::string& description) {
  app.add_option("--preset", preset, description)
      ->check(CLI::IsMember(names))
      ->capture_default_str()
      ->group(kRunGroup);
}

Configuration configuration_of(const CLI::App& app) {
  Configuration configuration;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (group != kModelGroup && group != kTrainingGroup) continue;
    configuration[option->get_name()] = value_of(*option);
  }
  return configuration;
}

}  // namespace trainer
