// Trains a small GPT to write text byte by byte.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "text_gpt/gpt.h"
#include "text_gpt/learning_rate.h"
#include "text_gpt/sampling.h"
#include "text_gpt/text.h"
#include "trainer/bad_input.h"
#include "trainer/options.h"
#include "trainer/program.h"
#include "trainer/training_loop.h"

namespace {

using namespace text_gpt;

struct Options {
  std::string preset = "activations";
  std::vector<std::filesystem::path> files;
  std::int64_t batch = 16;
  GptOptions gpt;
  ScheduleOptions schedule;
  double weight_decay = 0.1;
  double clip = 1.0;
  std::int64_t evaluate_every = 0;
  std::int64_t evaluate_batches = 4;
  std::int64_t sample_every = 0;
  SamplingOptions sampling;
  trainer::RunOptions run;
};

Options options_of_preset(const std::string& preset) {
  Options options;
  options.preset = preset;
  if (preset == "parameters") {
    options.batch = 1;
    options.gpt = {.layers = 16, .width = 1024, .heads = 16, .context = 128};
  } else if (preset == "tiny") {
    options.batch = 4;
    options.gpt = {.layers = 4, .width = 384, .heads = 6, .context = 256};
  }
  return options;
}

void declare_model(CLI::App& app, Options& options) {
  const auto add = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str()->group(trainer::kModelGroup);
  };
  add("--text", options.files,
      "Files to learn from, joined (default: the licences in /usr/share/common-licenses)")
      ->check(CLI::ExistingFile);
  add("--layers", options.gpt.layers, "Transformer blocks")->check(CLI::Range(0, 10000));
  add("--width", options.gpt.width, "Values per token; parameters grow with its square")
      ->check(CLI::Range(1, 1 << 20));
  add("--heads", options.gpt.heads, "Attention heads; must divide the width")
      ->check(CLI::Range(1, 1 << 20));
  add("--context", options.gpt.context, "Bytes that the model sees at once")
      ->check(CLI::Range(1, 1 << 20));
  add("--batch", options.batch, "Stretches of text per step; activations grow with batch x context")
      ->check(CLI::Range(1, 1 << 20));
  add("--dropout", options.gpt.dropout, "Share of values dropped while training")
      ->check(CLI::Range(0.0, 0.99));
  add("--attention", options.gpt.attention,
      "fused: scaled_dot_product_attention; explicit: softmax over a context x context matrix")
      ->check(CLI::IsMember({"fused", "explicit"}));
}

void declare_training(CLI::App& app, Options& options) {
  const auto add = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)
        ->check(trainer::at_least_zero)
        ->capture_default_str()
        ->group(trainer::kTrainingGroup);
  };
  add("--lr", options.schedule.peak, "Highest learning rate of AdamW");
  add("--warmup-steps", options.schedule.warmup_steps, "Steps until the highest learning rate");
  add("--decay-steps", options.schedule.decay_steps,
      "Steps from the highest learning rate down to a tenth of it, along a cosine")
      ->check(trainer::at_least_one);
  add("--weight-decay", options.weight_decay, "Weight decay of matrices");
  add("--clip", options.clip, "Largest norm of all gradients together, 0: any");
}

void declare_run(CLI::App& app, Options& options) {
  const auto add = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str()->group(trainer::kRunGroup);
  };
  add("--evaluate-every", options.evaluate_every, "Steps between evaluations, 0: never")
      ->check(trainer::at_least_zero);
  add("--evaluate-batches", options.evaluate_batches, "Batches of held-out text per evaluation")
      ->check(trainer::at_least_one);
  add("--sample-every", options.sample_every, "Steps between samples of text, 0: never")
      ->check(trainer::at_least_zero);
  add("--sample-length", options.sampling.length, "Bytes per sample")->check(trainer::at_least_one);
  add("--prompt", options.sampling.prompt, "How a sample begins");
  add("--temperature", options.sampling.temperature, "Lower makes samples more predictable")
      ->check(trainer::above_zero);
  trainer::add_run_options(app, options.run);
}

void declare(CLI::App& app, Options& options) {
  trainer::add_preset_option(app, options.preset, {"activations", "parameters", "tiny"},
                             "Defaults for the sizes. activations: many tokens, few parameters. "
                             "parameters: few tokens, 200 "
                             "million parameters. tiny: a test in seconds");
  declare_model(app, options);
  declare_training(app, options);
  declare_run(app, options);
}

// Biases and norms are few and have a scale of their own, so only matrices decay.
torch::optim::AdamW make_optimizer(const Gpt& gpt, const Options& options) {
  std::vector<torch::Tensor> matrices;
  std::vector<torch::Tensor> vectors;
  for (const torch::Tensor& parameter : gpt->parameters())
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  const auto with_decay = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(options.schedule.peak).betas({0.9, 0.95}).weight_decay(decay));
  };
  return torch::optim::AdamW(std::vector<torch::optim::OptimizerParamGroup>{
      {matrices, with_decay(options.weight_decay)}, {vectors, with_decay(0.0)}});
}

bool is_due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

void train_gpt(Options& options, const trainer::Configuration& configuration) {
  if (options.gpt.width % options.gpt.heads != 0)
    throw trainer::BadInput("--heads " + std::to_string(options.gpt.heads) +
                            " does not divide --width " + std::to_string(options.gpt.width));
  if (options.sampling.prompt.empty()) throw trainer::BadInput("--prompt is empty: give a word");
  const torch::Device device = trainer::prepare(options.run);
  const Text text(options.files.empty() ? default_files() : options.files, options.gpt.context,
                  device);
  std::printf("%lld bytes of text\n", static_cast<long long>(text.size()));
  Gpt gpt(options.gpt);
  gpt->to(device);
  torch::optim::AdamW optimizer = make_optimizer(gpt, options);

  const auto step = [&](std::int64_t number) -> trainer::StepResult {
    for (auto& group : optimizer.param_groups())
      group.options().set_lr(learning_rate(options.schedule, number));
    optimizer.zero_grad();
    trainer::MicroBatches parts(options.run, number);
    while (parts.is_left()) {
      const Tokens tokens =
          text.batch(Part::kTraining, options.batch, options.run.seed, parts.next());
      const torch::Tensor logits = gpt->forward(tokens.input);
      const torch::Tensor loss =
          torch::cross_entropy_loss(logits.view({-1, kVocabulary}), tokens.target.view(-1));
      parts.backward(loss, tokens.input.numel());
    }
    if (options.clip > 0.0) torch::nn::utils::clip_grad_norm_(gpt->parameters(), options.clip);
    optimizer.step();
    return parts.result();
  };
  const auto after_step = [&](std::int64_t number) {
    if (is_due(number, options.evaluate_every))
      std::printf("  held-out loss %.6f per byte\n",
                  held_out_loss(gpt, text, options.evaluate_batches, options.batch));
    if (is_due(number, options.sample_every)) {
      const std::string sample =
          write_text(gpt, options.gpt.context, options.sampling, options.run.seed + number);
      std::printf("  sample: %s\n", sample.c_str());
    }
  };
  trainer::train({*gpt, optimizer, "tokens", step, after_step, device}, options.run, configuration);
}

}  // namespace

int main(int argc, char** argv) {
  Options options = options_of_preset(trainer::preset_on_command_line(argc, argv, "activations"));
  CLI::App app("Trains a small GPT to write text byte by byte.", "text_gpt");
  declare(app, options);
  return trainer::run_program(app, argc, argv,
                              [&] { train_gpt(options, trainer::configuration_of(app)); });
}
