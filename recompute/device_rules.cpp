#include "device_rules.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>

namespace spillway::recompute {
namespace {

constexpr std::string_view kNamespace = "aten::";

/// "scatter_add" of "aten::scatter_add_".
std::string_view stem_of(std::string_view name) {
  if (name.starts_with(kNamespace)) name.remove_prefix(kNamespace.size());
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

template <std::size_t N>
bool holds(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_convolution(std::string_view stem) { return stem.find("conv") != std::string_view::npos; }

bool is_transposed(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  if (schema.name().find("transpose") != std::string::npos) return true;
  const std::size_t count = std::min(schema.arguments().size(), arguments.size());
  for (std::size_t i = 0; i < count; ++i)
    if (schema.arguments()[i].name() == "transposed" && arguments[i].isBool())
      return arguments[i].toBool();
  return false;
}

}  // namespace

const char* known_objection_on_cuda(std::string_view name) {
  const std::string_view stem = stem_of(name);
  // Its dropout goes on in a state of its own in the memory of the device.
  if (stem.starts_with("_cudnn_rnn") || stem.starts_with("_cudnn_init_dropout_state"))
    return "keeps a state of its own";
  if (stem == "_cudnn_ctc_loss") return "adds up in an order that differs each time";
  return nullptr;
}

bool is_unordered_on_cuda(std::string_view name) {
  const std::string_view stem = stem_of(name);
  if (stem.ends_with("_backward") || stem.find("_backward_") != std::string_view::npos) {
    constexpr std::array<std::string_view, 9> kParts{
        "pool",         "upsample",        "pad",
        "grid_sampler", "embedding_bag",   "ctc_loss",
        "attention",    "embedding_dense", "segment_reduce"};
    return std::any_of(kParts.begin(), kParts.end(), [stem](std::string_view part) {
      return stem.find(part) != std::string_view::npos;
    });
  }
  constexpr std::array<std::string_view, 25> kNames{"index_add",
                                                    "index_copy",
                                                    "index_put",
                                                    "_index_put_impl",
                                                    "_unsafe_index_put",
                                                    "index_reduce",
                                                    "put",
                                                    "scatter",
                                                    "scatter_add",
                                                    "scatter_reduce",
                                                    "segment_reduce",
                                                    "bincount",
                                                    "histc",
                                                    "kthvalue",
                                                    "median",
                                                    "nanmedian",
                                                    "cumsum",
                                                    "cumprod",
                                                    "logcumsumexp",
                                                    "nll_loss2d_forward",
                                                    "max_unpool2d",
                                                    "max_unpool3d",
                                                    "_embedding_bag",
                                                    "_embedding_bag_forward_only",
                                                    "_unsafe_masked_index_put_accumulate"};
  return holds(kNames, stem);
}

const char* objection_on_device(const c10::OperatorHandle& op, const OperatorRules& rules,
                                c10::ArrayRef<c10::IValue> arguments) {
  const at::Context& context = at::globalContext();
  const bool is_told =
      context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
  if (rules.is_unordered_on_cuda && !is_told)
    return "it adds up in an order that differs each time";
  if (!is_convolution(stem_of(op.schema().name())) || !context.userEnabledCuDNN()) return nullptr;
  // Each thread measures for itself which is the fastest.
  if (context.benchmarkCuDNN()) return "cuDNN may choose another algorithm when it runs again";
  const bool is_backward = op.schema().name().find("backward") != std::string::npos;
  const bool is_ordered = is_told || context.deterministicCuDNN();
  if (!is_ordered && (is_backward || is_transposed(op.schema(), arguments)))
    return "cuDNN may add up in an order that differs each time";
  return nullptr;
}

}  // namespace spillway::recompute
