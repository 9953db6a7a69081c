#include "trial_run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "draws.h"
#include "spillway/base/shown_text.h"
#include "spillway/phantoms/plain_tensor.h"
#include "spillway/phantoms/trial_memory.h"
#include "spillway/recompute/generators.h"

namespace spillway::phantoms {
namespace {

/// Pages that nobody has written: reads see zeros and take no memory.
struct Zeros {
  void* address;
  std::size_t bytes;

  static void release(void* zeros) {
    const std::unique_ptr<Zeros> owned(static_cast<Zeros*>(zeros));
    ::munmap(owned->address, owned->bytes);
  }
};

c10::DataPtr zeros_on_host(std::size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, cpu};
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return {address, new Zeros{address, bytes}, &Zeros::release, cpu};
}

/// Memory of a GPU holds what it held before, which kernels may take for indices.
void fill_with_zeros(const c10::Storage& storage) {
  PlainTensor::bytes(0, storage.nbytes()).over(storage).zero_();
}

at::Tensor like(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const std::size_t bytes = impl.unsafe_storage().nbytes();
  c10::Allocator* const allocator = c10::GetAllocator(impl.device_type());
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      impl.is_cpu() ? zeros_on_host(bytes) : allocator->allocate(bytes), allocator,
      /*resizable=*/true));
  if (!impl.is_cpu() && bytes > 0) fill_with_zeros(storage);
  return PlainTensor::of(impl).over(std::move(storage));
}

at::CPUGeneratorImpl* cpu_generator(const at::Generator& generator) {
  return dynamic_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
}

/// What LibTorch keeps of a generator. The samples are those that a pair of normal numbers left.
struct GeneratorState {
  explicit GeneratorState(at::CPUGeneratorImpl& generator) {
    const std::lock_guard lock(generator.mutex_);
    engine = generator.engine();
    float_sample = generator.next_float_normal_sample();
    double_sample = generator.next_double_normal_sample();
  }
  void give_to(at::CPUGeneratorImpl& generator) const {
    const std::lock_guard lock(generator.mutex_);
    generator.set_engine(engine);
    generator.set_next_float_normal_sample(float_sample);
    generator.set_next_double_normal_sample(double_sample);
  }

  at::mt19937 engine;
  std::optional<float> float_sample;
  std::optional<double> double_sample;
};

/// The same of a generator of a GPU: Philox has no more than its place.
class PlaceGuard {
 public:
  explicit PlaceGuard(c10::GeneratorImpl& generator)
      : generator_(generator), before_(place_of(generator)) {}
  ~PlaceGuard() {
    const std::lock_guard lock(generator_.mutex_);
    generator_.set_offset(before_);
  }
  PlaceGuard(const PlaceGuard&) = delete;
  PlaceGuard& operator=(const PlaceGuard&) = delete;

  std::uint64_t moved() const { return place_of(generator_) - before_; }

 private:
  static std::uint64_t place_of(c10::GeneratorImpl& generator) {
    const std::lock_guard lock(generator.mutex_);
    return generator.get_offset();
  }

  c10::GeneratorImpl& generator_;
  const std::uint64_t before_;
};

/// Gives a generator its state back at the end.
class GeneratorGuard {
 public:
  explicit GeneratorGuard(at::CPUGeneratorImpl& generator)
      : generator_(generator), before_(generator) {}
  ~GeneratorGuard() { before_.give_to(generator_); }
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

  const GeneratorState& before() const { return before_; }

 private:
  at::CPUGeneratorImpl& generator_;
  const GeneratorState before_;
};

/// Samples that a kernel which uses any would take first.
constexpr float kFloatSample = 1.25F;
constexpr double kDoubleSample = 1.25;

std::size_t elements_of_convolution(const torch::jit::Stack& arguments) {
  const auto input = arguments[0].toTensor().sizes();
  const auto weight = arguments[1].toTensor().sizes();
  if (input.size() < 3 || weight.size() != input.size()) return 0;
  const auto number = [&](std::size_t argument, std::size_t dimension) {
    const std::vector<std::int64_t> list = arguments[argument].toIntVector();
    if (list.size() == 1) return list[0];
    return dimension - 2 < list.size() ? list[dimension - 2] : 0;
  };
  const bool is_transposed = arguments[6].toBool();
  std::int64_t elements = input[0] * (is_transposed ? weight[1] * arguments[8].toInt() : weight[0]);
  for (std::size_t i = 2; i < input.size(); ++i) {
    const std::int64_t stride = number(3, i), padding = number(4, i);
    if (stride <= 0) return 0;
    const std::int64_t reach = number(5, i) * (weight[i] - 1) + 1;
    elements *= is_transposed ? (input[i] - 1) * stride - 2 * padding + reach + number(7, i)
                              : (input[i] + 2 * padding - reach) / stride + 1;
  }
  return elements > 0 ? static_cast<std::size_t>(elements) : 0;
}

/// Of products and convolutions, whose results are like none of their arguments. 0: of others, and
/// of calls that will throw.
std::size_t elements_made(std::string_view name, const torch::jit::Stack& arguments) {
  const auto of_product = [&](std::size_t first, std::size_t dimensions) {
    const auto a = arguments[first].toTensor().sizes();
    const auto b = arguments[first + 1].toTensor().sizes();
    if (a.size() != dimensions || b.size() != dimensions) return std::size_t{0};
    const std::int64_t matrix = a[dimensions - 2] * b[dimensions - 1];
    return static_cast<std::size_t>(dimensions == 3 ? a[0] * matrix : matrix);
  };
  if (name == "aten::mm") return of_product(0, 2);
  if (name == "aten::addmm") return of_product(1, 2);
  if (name == "aten::bmm") return of_product(0, 3);
  if (name == "aten::baddbmm") return of_product(1, 3);
  if (name == "aten::convolution") return elements_of_convolution(arguments);
  return 0;
}

CallOutputs refusal(std::string reason) {
  CallOutputs outputs;
  outputs.making = Making::kValues;
  outputs.reason = std::move(reason);
  return outputs;
}

}  // namespace

TrialRun::TrialRun(const c10::OperatorHandle& op, const ResultRules& rules,
                   c10::ArrayRef<c10::IValue> arguments, c10::DispatchKeySet hidden_keys)
    : op_(op),
      rules_(rules),
      hidden_keys_(hidden_keys),
      generator_(recompute::generator_of(arguments, rules.generator_argument())) {
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(keys_above());
  const auto add = [this](const c10::IValue& value) {
    Argument argument;
    argument.tensor = like(value.toTensor());
    if (argument.tensor.defined()) {
      argument.bytes = argument.tensor.storage().nbytes();
      argument.sizes = argument.tensor.sizes().vec();
    }
    arguments_.push_back(argument);
    return argument.tensor;
  };
  for (const c10::IValue& value : arguments) {
    stack_.push_back(value);
    if (value.isTensor()) stack_.back() = add(value);
    if (!value.isList() || value.isIntList()) continue;
    // Not the trainer's own list.
    c10::List<c10::IValue> list = value.toList().copy();
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const c10::IValue one = list.get(i); one.isTensor()) list.set(i, add(one));
    stack_.back() = std::move(list);
  }
}

/// In bytes, of what a kernel that ignores values makes: like one of its tensors, or as
/// `elements_made` says. None of other kernels.
std::vector<std::size_t> TrialRun::result_sizes() const {
  std::vector<std::size_t> sizes;
  if (!rules_.ignores_values()) return sizes;
  std::size_t item = 0;
  for (const Argument& argument : arguments_) {
    if (!argument.tensor.defined()) continue;
    sizes.push_back(argument.tensor.nbytes());
    item = std::max(item, argument.tensor.itemsize());
  }
  sizes.push_back(item * elements_made(op_.schema().name(), stack_));
  return sizes;
}

c10::DispatchKeySet TrialRun::keys_above() const {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
         hidden_keys_;
}

void TrialRun::run() {
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(keys_above());
  struct OnTrial {
    explicit OnTrial(std::vector<std::size_t> sizes) {
      TrialMemory::instance().begin_trial(std::move(sizes));
    }
    ~OnTrial() { TrialMemory::instance().end_trial(); }
  } marked(result_sizes());
  op_.callBoxed(&stack_);
}

void TrialRun::draw() { run(); }

CallOutputs TrialRun::learn() {
  if (!generator_.device().is_cuda()) return learn_with(generator_);
  const PlaceGuard place(*generator_.unsafeGetGeneratorImpl());
  CallOutputs outputs = learn_with(at::detail::getDefaultCPUGenerator());
  if (outputs.draws > 0 || outputs.draws_by_state)
    return refusal("draws from the generator of the CPU");
  outputs.draws = place.moved();
  return outputs;
}

CallOutputs TrialRun::learn_with(const at::Generator& of) {
  at::CPUGeneratorImpl* const generator = cpu_generator(of);
  if (generator == nullptr) return refusal("draws from a generator of another kind");
  const GeneratorGuard guard(*generator);
  generator->set_next_float_normal_sample(kFloatSample);
  generator->set_next_double_normal_sample(kDoubleSample);
  try {
    run();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return refusal("throws on zeros: " + first_line(error.what()));
  }
  if (has_exchanged_arguments()) return refusal("exchanges the memory of its argument");
  CallOutputs outputs;
  note_results(outputs);
  const GeneratorState after(*generator);
  constexpr std::uint64_t kMostDraws = std::uint64_t{1} << 34;
  const auto draws = draws_between(guard.before().engine.data(), after.engine.data(), kMostDraws);
  outputs.draws = draws.value_or(0);
  outputs.draws_by_state =
      !draws || after.float_sample != kFloatSample || after.double_sample != kDoubleSample;
  return outputs;
}

bool TrialRun::has_exchanged_arguments() const {
  for (const Argument& argument : arguments_)
    if (argument.tensor.defined() && (argument.tensor.storage().nbytes() != argument.bytes ||
                                      argument.tensor.sizes() != argument.sizes))
      return true;
  return false;
}

void TrialRun::note_results(CallOutputs& outputs) const {
  std::vector<const c10::StorageImpl*> made;
  for (const c10::IValue& value : stack_) {
    const auto first = static_cast<std::uint32_t>(outputs.tensors.size());
    if (value.isTensor()) {
      note_tensor(value.toTensor(), made, outputs);
      outputs.results.push_back({ResultMade::Kind::kTensor, first, 1});
      continue;
    }
    for (const c10::IValue& one : value.toListRef()) note_tensor(one.toTensor(), made, outputs);
    const auto end = static_cast<std::uint32_t>(outputs.tensors.size());
    outputs.results.push_back({ResultMade::Kind::kList, first, end - first});
  }
}

void TrialRun::note_tensor(const at::Tensor& tensor, std::vector<const c10::StorageImpl*>& made,
                           CallOutputs& outputs) const {
  TensorMade& noted = outputs.tensors.emplace_back();
  if (!tensor.defined()) return;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!is_plain(impl)) {
    outputs.making = Making::kValues;
    outputs.reason = "returns a tensor that is not strided";
    return;
  }
  noted.dtype = c10::typeMetaToScalarType(impl.dtype());
  const TensorFlags flags = TensorFlags::of(impl);
  noted.conjugated = flags.conjugated;
  noted.negated = flags.negated;
  noted.wrapped_number = flags.wrapped_number;
  noted.sizes = impl.sizes();
  noted.strides = impl.strides();
  noted.offset = impl.storage_offset();
  const c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (!arguments_[i].tensor.defined()) continue;
    const c10::TensorImpl& argument = *arguments_[i].tensor.unsafeGetTensorImpl();
    if (argument.unsafe_storage().unsafeGetStorageImpl() != storage) continue;
    noted.from = &argument == &impl ? TensorMade::From::kArgument : TensorMade::From::kStorage;
    noted.number = static_cast<std::uint32_t>(i);
    noted.offset -= argument.storage_offset();
    return;
  }
  noted.from = TensorMade::From::kNewStorage;
  const auto found = std::find(made.begin(), made.end(), storage);
  noted.number = static_cast<std::uint32_t>(found - made.begin());
  if (found != made.end()) return;
  made.push_back(storage);
  outputs.storages.push_back(storage->nbytes());
  outputs.devices.push_back(storage->device());
}

}  // namespace spillway::phantoms
