// Trains a residual network to restore what was hidden in full-resolution photographs.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <memory>

#include "photo_net/photo_album.h"
#include "photo_net/photo_loader.h"
#include "photo_net/residual_net.h"
#include "photo_net/task.h"
#include "trainer/bad_input.h"
#include "trainer/optimizer.h"
#include "trainer/options.h"
#include "trainer/program.h"
#include "trainer/training_loop.h"

namespace {

using namespace photo_net;

struct Options {
  std::string preset = "default";
  AlbumOptions album;
  Task task;
  ResidualNetOptions net;
  std::string crop = "2048x2048";
  std::string layout = "channels_last";
  int loaders = 2;
  trainer::OptimizerOptions optimizer;
  trainer::RunOptions run;
};

Options options_of_preset(const std::string& preset) {
  Options options;
  options.preset = preset;
  if (preset == "tiny") {
    options.crop = "512x512";
  } else if (preset == "full") {
    options.crop = "full";
    options.net.blocks = 4;
  }
  return options;
}

void declare(CLI::App& app, Options& options) {
  trainer::add_preset_option(app, options.preset, {"default", "tiny", "full"},
                             "Defaults for the flags of model and data. tiny: a test in seconds. "
                             "full: whole photographs of "
                             "up to 24 megapixels");
  const auto add = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str()->group(trainer::kModelGroup);
  };
  add("--photos", options.album.folder,
      "Folder with JPEG files (Debian packages lomiri-wallpapers-16.04 and -20.04)")
      ->check(CLI::ExistingDirectory);
  add("--min-megapixels", options.album.min_megapixels, "Leave out smaller photographs")
      ->check(trainer::at_least_zero);
  add("--task", options.task.name,
      "colourise: hide the colours, denoise: add noise, super_resolve: halve the resolution")
      ->check(CLI::IsMember({"colourise", "denoise", "super_resolve"}));
  add("--noise", options.task.noise, "Of denoise: standard deviation of the noise; white is 1")
      ->check(trainer::above_zero);
  add("--crop", options.crop,
      "What a step sees of each photograph: HxW pixels at a random place, or full");
  add("--batch", options.album.batch, "Photographs per step")->check(CLI::Range(1, 4096));
  add("--width", options.net.width, "Channels inside the network")->check(CLI::Range(1, 4096));
  add("--blocks", options.net.blocks, "Residual blocks, of two convolutions each")
      ->check(CLI::Range(0, 1000));
  add("--layout", options.layout, "Order of values in memory")
      ->check(CLI::IsMember({"contiguous", "channels_last"}));
  app.add_option("--loaders", options.loaders,
                 "Threads that decode the photographs of the next steps; any number gives the same "
                 "results")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(trainer::kRunGroup);
  trainer::add_optimizer_options(app, options.optimizer);
  trainer::add_run_options(app, options.run);
}

std::optional<Size> parse_crop(const std::string& text) {
  if (text == "full") return std::nullopt;
  Size size;
  const char* end = text.data() + text.size();
  const auto height = std::from_chars(text.data(), end, size.height);
  const bool separated = height.ec == std::errc{} && height.ptr != end && *height.ptr == 'x';
  const auto width = separated ? std::from_chars(height.ptr + 1, end, size.width) : height;
  if (!separated || width.ec != std::errc{} || width.ptr != end || size.height < 2 ||
      size.width < 2)
    throw trainer::BadInput("--crop is '" + text + "': give HxW, for instance 1024x1024, or full");
  return size;
}

void train_net(Options& options, const trainer::Configuration& configuration) {
  options.album.crop = parse_crop(options.crop);
  options.net.input_channels = options.task.input_channels();
  options.net.output_channels = options.task.target_channels();
  const torch::Device device = trainer::prepare(options.run);
  const auto layout = options.layout == "channels_last" ? torch::MemoryFormat::ChannelsLast
                                                        : torch::MemoryFormat::Contiguous;

  const PhotoAlbum album(options.album, options.run.seed);
  std::printf("%lld photographs\n", static_cast<long long>(album.photo_count()));
  ResidualNet net(options.net);
  net->to(device);
  const auto optimizer = trainer::make_optimizer(options.optimizer, net->parameters());
  std::unique_ptr<PhotoLoader> loader;  // made when the first step is known: a run may be resumed

  const auto step = [&](std::int64_t number) -> trainer::StepResult {
    optimizer->zero_grad();
    trainer::MicroBatches parts(options.run, number);
    while (parts.is_left()) {
      const std::int64_t batch = parts.next();
      if (!loader)
        loader = std::make_unique<PhotoLoader>(
            album,
            LoaderOptions{options.loaders, batch, options.run.steps * options.run.micro_batches});
      const torch::Tensor photos = loader->next().to(device).contiguous(layout);
      const Example example = options.task.hide(photos);
      const torch::Tensor restored = net->forward(example.input.contiguous(layout));
      const torch::Tensor loss = torch::l1_loss(restored, example.target);
      parts.backward(loss, photos.size(0) * photos.size(2) * photos.size(3));
    }
    optimizer->step();
    return parts.result();
  };
  trainer::train({*net, *optimizer, "pixels", step, {}, device}, options.run, configuration);
}

}  // namespace

int main(int argc, char** argv) {
  Options options = options_of_preset(trainer::preset_on_command_line(argc, argv, "default"));
  CLI::App app("Trains a residual network to restore what was hidden in large photographs.",
               "photo_net");
  declare(app, options);
  return trainer::run_program(app, argc, argv,
                              [&] { train_net(options, trainer::configuration_of(app)); });
}
