#include "trainer/checkpoint.h"

#include <mutex>
#include <sstream>

#include "trainer/bad_input.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// Under its final name a file is always complete.
void write_archive(torch::serialize::OutputArchive& archive, const fs::path& path) {
  const fs::path partial = path.string() + ".partial";
  try {
    archive.save_to(partial.string());
    fs::rename(partial, path);
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw std::runtime_error("cannot write '" + path.string() +
                             "': is the folder there, and is there room on the disk?");
  }
}

torch::Tensor random_state(torch::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(torch::Device device, const torch::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

std::string as_text(const Configuration& configuration) {
  std::string text;
  for (const auto& [name, value] : configuration) text += name + '=' + value + '\n';
  return text;
}

Configuration from_text(const std::string& text) {
  Configuration configuration;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find('=');
    configuration[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return configuration;
}

void require_same(const fs::path& path, const Configuration& then, const Configuration& now) {
  std::string differences;
  for (const auto& [name, value] : now) {
    const auto found = then.find(name);
    const std::string before = found == then.end() ? "(unknown)" : found->second;
    if (before != value) differences += "\n  " + name + ": " + before + " then, " + value + " now";
  }
  if (differences.empty()) return;
  throw BadInput("'" + path.string() +
                 "' was made with other flags; give the same ones:" + differences);
}

}  // namespace

void save_checkpoint(const fs::path& path, const TrainingState& state,
                     const Configuration& configuration) {
  torch::serialize::OutputArchive archive;
  torch::serialize::OutputArchive model(archive.compilation_unit());
  torch::serialize::OutputArchive optimizer(archive.compilation_unit());
  state.model.save(model);
  state.optimizer.save(optimizer);
  archive.write("configuration", c10::IValue(as_text(configuration)));
  archive.write("step", c10::IValue(state.step));
  archive.write("random_state", random_state(torch::kCPU), /*is_buffer=*/true);
  if (!state.device.is_cpu())
    archive.write("device_random_state", random_state(state.device), /*is_buffer=*/true);
  archive.write("model", model);
  archive.write("optimizer", optimizer);
  write_archive(archive, path);
}

void load_checkpoint(const fs::path& path, TrainingState& state,
                     const Configuration& configuration) {
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path.string());
    c10::IValue value;
    archive.read("configuration", value);
    require_same(path, from_text(value.toStringRef()), configuration);
    archive.read("step", value);
    state.step = value.toInt();

    torch::serialize::InputArchive part;
    archive.read("model", part);
    state.model.load(part);
    archive.read("optimizer", part);
    state.optimizer.load(part);

    torch::Tensor random_numbers;
    archive.read("random_state", random_numbers, /*is_buffer=*/true);
    set_random_state(torch::kCPU, random_numbers);
    // A checkpoint of the CPU has none.
    if (archive.try_read("device_random_state", random_numbers, /*is_buffer=*/true) &&
        !state.device.is_cpu())
      set_random_state(state.device, random_numbers);
  } catch (const c10::Error& error) {
    throw BadInput("'" + path.string() +
                   "' is not a complete checkpoint: " + error.what_without_backtrace());
  }
}

void save_model(const fs::path& path, const torch::nn::Module& model) {
  torch::serialize::OutputArchive archive;
  model.save(archive);
  write_archive(archive, path);
}

}  // namespace trainer
