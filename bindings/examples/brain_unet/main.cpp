// Trains a 3-D U-Net to find the regions of the brain in an MRI scan of a head.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>

#include "brain_unet/brain.h"
#include "brain_unet/label_groups.h"
#include "brain_unet/unet.h"
#include "trainer/bad_input.h"
#include "trainer/optimizer.h"
#include "trainer/options.h"
#include "trainer/program.h"
#include "trainer/training_loop.h"

namespace {

using namespace brain_unet;

struct Options {
  std::string preset = "default";
  BrainOptions brain;
  UnetOptions unet;
  std::string voxel = "1mm";
  std::string patch = "96x96x96";
  trainer::OptimizerOptions optimizer;
  trainer::RunOptions run;
};

Options options_of_preset(const std::string& preset) {
  Options options;
  options.preset = preset;
  if (preset == "tiny") {
    options.patch = "64x64x64";
    options.unet.convs = 2;
    options.unet.kernel = "full";
    options.unet.activation = "relu";
  } else if (preset == "whole") {
    options.patch = "whole";
    options.unet.width = 8;
    options.unet.convs = 1;
    options.unet.activation = "relu";
  } else if (preset == "fine") {
    options.voxel = "0.5mm";
    options.patch = "whole";
    options.unet.stem = 2;
    options.unet.convs = 6;
  }
  return options;
}

void declare(CLI::App& app, Options& options) {
  trainer::add_preset_option(app, options.preset, {"default", "tiny", "whole", "fine"},
                             "Defaults for the flags of model and data. tiny: a test in seconds. "
                             "whole: the whole head per "
                             "step. fine: the whole head at 0.5 mm, more than 40 GB");
  const auto add = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str()->group(trainer::kModelGroup);
  };
  add("--data", options.brain.data,
      "Folder with ch2.nii.gz, aal.nii.gz and aal.nii.txt (Debian package mricron-data)")
      ->check(CLI::ExistingDirectory);
  add("--voxel", options.voxel, "Edge of a voxel; finer than the scan means resampling")
      ->check(CLI::IsMember({"1mm", "0.5mm"}));
  add("--patch", options.patch, "What one step sees: DxHxW voxels at a random place, or whole");
  add("--classes", options.brain.classes,
      "Regions to tell apart: 2 (brain), 4 (hemispheres), 9 (lobes) or 117 classes (all)")
      ->check(CLI::IsMember(grouping_names()));
  add("--width", options.unet.width, "Channels of the first level, doubled with every level")
      ->check(CLI::Range(1, 4096));
  add("--depth", options.unet.depth, "Levels, each with half the resolution of the one above")
      ->check(CLI::Range(1, 8));
  add("--convs", options.unet.convs, "Convolutions per level, down and again up")
      ->check(CLI::Range(1, 1000));
  add("--stem", options.unet.stem,
      "1: the first level works on voxels, 2: on blocks of 2x2x2 voxels, with an eighth of the "
      "memory")
      ->check(CLI::IsMember({1, 2}));
  add("--kernel", options.unet.kernel,
      "full: 3x3x3, factored: 1x3x3 then 3x1x1, several times faster")
      ->check(CLI::IsMember({"full", "factored"}));
  add("--norm", options.unet.norm, "Normalisation after each convolution")
      ->check(CLI::IsMember({"batch", "instance", "group"}));
  add("--activation", options.unet.activation,
      "relu works in place; leaky_relu keeps its input for backward, half as much memory again")
      ->check(CLI::IsMember({"relu", "leaky_relu"}));
  add("--layout", options.unet.layout,
      "Order of values in memory; channels_last is faster on most CPUs")
      ->check(CLI::IsMember({"contiguous", "channels_last"}));
  trainer::add_optimizer_options(app, options.optimizer);
  trainer::add_run_options(app, options.run);
}

std::optional<Box> parse_patch(const std::string& text, std::int64_t edge_multiple) {
  if (text == "whole") return std::nullopt;
  Box box{};
  const char* next = text.data();
  const char* end = next + text.size();
  for (std::size_t axis = 0; axis < box.size(); ++axis) {
    const auto parsed = std::from_chars(next, end, box[axis]);
    const bool last = axis + 1 == box.size();
    if (parsed.ec != std::errc{} ||
        (last ? parsed.ptr != end : parsed.ptr == end || *parsed.ptr != 'x'))
      throw trainer::BadInput("--patch is '" + text +
                              "': give DxHxW, for instance 96x96x96, or whole");
    next = parsed.ptr + 1;
    if (box[axis] < 1 || box[axis] % edge_multiple != 0)
      throw trainer::BadInput("--patch is '" + text + "': with these levels every edge must be a " +
                              "multiple of " + std::to_string(edge_multiple));
  }
  return box;
}

void train_unet(Options& options, const trainer::Configuration& configuration) {
  options.brain.voxel_mm = options.voxel == "1mm" ? 1.0 : 0.5;
  options.brain.edge_multiple = options.unet.edge_multiple();
  options.brain.patch = parse_patch(options.patch, options.unet.edge_multiple());
  const torch::Device device = trainer::prepare(options.run);

  const Brain brain(options.brain);
  options.unet.classes = brain.class_count();
  const Box shape = brain.shape();
  std::printf("volume of %lld x %lld x %lld voxels, %lld classes\n", (long long)shape[0],
              (long long)shape[1], (long long)shape[2], (long long)brain.class_count());

  Unet unet(options.unet);
  unet->to(device);
  const auto optimizer = trainer::make_optimizer(options.optimizer, unet->parameters());
  const auto step = [&](std::int64_t number) -> trainer::StepResult {
    optimizer->zero_grad();
    trainer::MicroBatches parts(options.run, number);
    while (parts.is_left()) {
      const Sample sample = brain.sample(options.run.seed, parts.next());
      const torch::Tensor logits = unet->forward(sample.image.to(device));
      const torch::Tensor loss = torch::cross_entropy_loss(logits, sample.labels.to(device));
      parts.backward(loss, sample.image.numel());
    }
    optimizer->step();
    return parts.result();
  };
  trainer::train({*unet, *optimizer, "voxels", step, {}, device}, options.run, configuration);
}

}  // namespace

int main(int argc, char** argv) {
  Options options = options_of_preset(trainer::preset_on_command_line(argc, argv, "default"));
  CLI::App app("Trains a 3-D U-Net to find the regions of the brain in an MRI scan of a head.",
               "brain_unet");
  declare(app, options);
  return trainer::run_program(app, argc, argv,
                              [&] { train_unet(options, trainer::configuration_of(app)); });
}
