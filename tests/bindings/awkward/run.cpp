#include "run.h"

#include <dlfcn.h>
#include <xxhash.h>

#include <cstdio>
#include <iomanip>
#include <sstream>
#include <utility>

#include "case.h"

namespace awkward {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

namespace {

// Of the only run of the process; models have no other way to know.
StepStyle style_of_all = StepStyle::kAsTheyAre;
at::Device device_of_all = at::kCPU;

constexpr std::int64_t kChain = 6;

/// So many activations, each made of the one before, which autograd keeps. `factor`: one element.
at::Tensor mean_of_chain(const at::Tensor& factor, std::int64_t mib_each) {
  at::Tensor x = here::arange(mib_each * (1 << 18), torch::kFloat) * factor;
  for (std::int64_t i = 0; i < kChain; ++i) x = torch::sin(x);
  return x.mean();
}

/// What ends the steps of trainers.
void update(const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  parameter.sub_(parameter.grad(), 1e-3);
  parameter.mutable_grad().reset();
}

}  // namespace

int Steps::Iterator::operator*() const {
  steps_->begin_step(step_ == 0);
  return step_;
}

Steps::Iterator& Steps::Iterator::operator++() {
  steps_->end_step();
  ++step_;
  return *this;
}

void Steps::begin_step(bool is_first) {
  if (style_ == StepStyle::kAsTheyAre) return;
  const at::AutoGradMode with_gradients(true);
  if (is_first || style_ == StepStyle::kAnnounced) {
    const at::Tensor parameter = here::ones({1}).requires_grad_();
    (parameter * 2).backward();
    update(parameter);
    parameter.add(1);  // The first operator of the step, whether or not the others need gradients.
  }
  if (style_ != StepStyle::kMoreToDrop) return;
  if (is_first) scale_ = here::ones({1}).requires_grad_();
  loss_ = mean_of_chain(scale_, /*mib_each=*/4);
}

void Steps::end_step() {
  if (style_ != StepStyle::kMoreToDrop) return;
  const at::AutoGradMode with_gradients(true);
  loss_.backward();
  run_.number("loss around the step", loss_);
  loss_.reset();
  update(scale_);
}

Run::Run(std::uint64_t seed, int threads, std::filesystem::path scratch, StepStyle style,
         at::Device device)
    : seed_(seed), threads_(threads), scratch_(std::move(scratch)), style_(style) {
  style_of_all = style;
  device_of_all = device;
}

at::Device device() { return device_of_all; }

at::Generator new_generator(std::uint64_t seed) {
  if (device().is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator made = at::globalContext()
                           .getAcceleratorHooksInterface(device().type())
                           .getNewGenerator(device().index());
  made.set_current_seed(seed);
  return made;
}

at::Generator default_generator() { return at::globalContext().defaultGenerator(device()); }

void Run::tensor(std::string_view name, const at::Tensor& value) { text(name, fingerprint(value)); }

void Run::tensors(std::string_view name, const std::vector<at::Tensor>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    tensor(std::string(name) + "." + std::to_string(i), values[i]);
  }
}

void Run::number(std::string_view name, double value) {
  char digits[64];
  std::snprintf(digits, sizeof digits, "%a", value);
  text(name, digits);
}

void Run::number(std::string_view name, const at::Tensor& scalar) {
  number(name, scalar.item<double>());
}

void Run::text(std::string_view name, std::string_view value) {
  report_.append(name).append(" ").append(value).append("\n");
}

void Run::bytes(std::string_view name, const void* data, std::size_t size) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(hash_of(data, size)));
  text(name, digits);
}

std::uint64_t hash_of(const void* data, std::size_t size) { return XXH3_64bits(data, size); }

std::string fingerprint(const at::Tensor& value) {
  if (!value.defined()) {
    return "undefined";
  }
  const at::NoGradGuard no_grad;
  if (value.is_sparse()) {
    return "sparse " + fingerprint(value._indices()) + " " + fingerprint(value._values());
  }
  if (value.is_quantized()) {
    return "quantized " + fingerprint(value.int_repr());
  }
  const at::Tensor plain = value.detach().resolve_conj().resolve_neg().contiguous().cpu();
  // A pointer with a type, for where somebody listens.
  const auto* const bytes = plain.flatten().view(at::kByte).const_data_ptr<std::uint8_t>();
  std::ostringstream line;
  line << plain.scalar_type() << plain.sizes() << ' ' << std::hex << std::setfill('0')
       << std::setw(16) << hash_of(bytes, plain.nbytes());
  return line.str();
}

at::Tensor normal_mib(std::int64_t mib) { return here::randn({mib * (1 << 18)}); }

Ballast::Ballast(int count, std::int64_t mib_each) {
  for (int i = 0; i < count; ++i) {
    tensors_.push_back(normal_mib(mib_each));
  }
}

void Ballast::sweep() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].mul_(0.5).add_(tensors_[(i + 1) % tensors_.size()], 0.25);
  }
}

at::Tensor more_to_drop(const at::Tensor& activation) {
  if (style_of_all != StepStyle::kMoreToDrop) return activation;
  return activation + mean_of_chain(activation.mean(), /*mib_each=*/2) * 1e-3;
}

MlpImpl::MlpImpl(std::int64_t layer_count, std::int64_t width)
    : layer_count_(layer_count), width_(width) {
  MlpImpl::reset();
}

void MlpImpl::reset() {
  layers.clear();
  for (std::int64_t i = 0; i < layer_count_; ++i) {
    layers.push_back(
        register_module("layer" + std::to_string(i), torch::nn::Linear(width_, width_)));
  }
}

at::Tensor MlpImpl::forward(at::Tensor x) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = layers[i]->forward(x);
    if (i + 1 < layers.size()) {
      x = more_to_drop(torch::relu(x));
    }
  }
  return x;
}

Mlp make_mlp(std::int64_t layer_count) { return placed(Mlp(layer_count, kMlpWidth)); }

at::Tensor mlp_batch() { return here::randn({kMlpBatch, kMlpWidth}); }

at::Tensor train_step(Mlp& model, torch::optim::Optimizer& optimizer, const at::Tensor& x,
                      const at::Tensor& target) {
  optimizer.zero_grad();
  at::Tensor loss = torch::mse_loss(model->forward(x), target);
  loss.backward();
  optimizer.step();
  return loss.detach();
}

void note_module(Run& run, const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    run.tensor(parameter.key(), parameter.value());
    run.tensor(parameter.key() + ".grad", parameter.value().grad());
  }
  for (const auto& buffer : module.named_buffers()) {
    run.tensor(buffer.key(), buffer.value());
  }
}

void set_openmp_threads(int count) {
  // Looked up at run time: linking OpenMP could bring a second copy beside the one of LibTorch.
  using Setter = void (*)(int);
  static const auto setter = reinterpret_cast<Setter>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (setter != nullptr) {
    setter(count);
  }
}

}  // namespace awkward
