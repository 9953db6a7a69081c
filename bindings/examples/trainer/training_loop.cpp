#include "trainer/training_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "trainer/bad_input.h"
#include "trainer/checkpoint.h"
#include "trainer/loss_file.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void print_model_size(const torch::nn::Module& model) {
  std::int64_t parameters = 0;
  for (const torch::Tensor& parameter : model.parameters()) parameters += parameter.numel();
  std::printf("%.2f million parameters, %d threads\n", static_cast<double>(parameters) * 1e-6,
              at::get_num_threads());
}

void require_finite(std::int64_t step, float loss) {
  if (std::isfinite(loss)) return;
  throw std::runtime_error("the loss of step " + std::to_string(step) + " is " +
                           std::to_string(loss) + ": training diverged, try a smaller --lr");
}

}  // namespace

MicroBatches::MicroBatches(const RunOptions& options, std::int64_t step)
    : count_(options.micro_batches),
      first_((step - 1) * options.micro_batches + 1),
      casts_on_(options.autocast ? std::optional(torch::Device(options.device).type())
                                 : std::nullopt) {}

std::int64_t MicroBatches::next() {
  if (casts_on_) autocast_.emplace(*casts_on_);
  return first_ + begun_++;
}

void MicroBatches::backward(const torch::Tensor& loss, std::int64_t items) {
  autocast_.reset();
  const torch::Tensor part = count_ > 1 ? loss / count_ : loss;
  part.backward();
  loss_ = loss_.defined() ? loss_ + part.detach() : part.detach();
  items_ += items;
}

torch::Device prepare(const RunOptions& options) {
  // A log that is piped into a file shall show each step when it is done.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (options.threads > 0) at::set_num_threads(options.threads);
  torch::manual_seed(options.seed);
  const torch::Device device(options.device);
  const std::size_t gpus = device.is_cuda() ? torch::cuda::device_count() : 0;
  if (device.is_cuda() && static_cast<std::size_t>(std::max<int>(device.index(), 0)) >= gpus)
    throw BadInput("--device is '" + options.device + "', and this LibTorch sees " +
                   std::to_string(gpus) + " GPUs: give --device cpu" +
                   (gpus > 0 ? ", or a smaller number" : ", or a LibTorch with CUDA and a driver"));
  return device;
}

void train(const TrainingRun& run, const RunOptions& options, const Configuration& configuration) {
  print_model_size(run.model);
  TrainingState state{run.model, run.optimizer, run.device};
  if (!options.resume.empty()) {
    load_checkpoint(options.resume, state, configuration);
    std::printf("resumed after step %lld\n", static_cast<long long>(state.step));
  }
  LossFile losses(options.losses, state.step + 1);
  const auto write_checkpoint = [&] {
    if (!options.checkpoint.empty()) save_checkpoint(options.checkpoint, state, configuration);
  };

  while (state.step < options.steps) {
    const std::int64_t step = state.step + 1;
    const Clock::time_point start = Clock::now();
    const StepResult result = run.step(step);
    const double seconds = seconds_since(start);
    losses.append(step, result.loss);
    std::printf("step %lld  loss %.6f  %.3f s/step  %.4g %s/s\n", static_cast<long long>(step),
                result.loss, seconds, static_cast<double>(result.items) / seconds,
                run.item_name.c_str());
    require_finite(step, result.loss);
    state.step = step;
    if (run.after_step) run.after_step(step);
    if (options.checkpoint_every > 0 && step % options.checkpoint_every == 0 &&
        step < options.steps)
      write_checkpoint();
  }
  write_checkpoint();
  if (!options.save_model.empty()) save_model(options.save_model, run.model);
}

}  // namespace trainer
