#pragma once

#include <cstdint>
#include <memory>

#include "paging_simulation.h"

namespace spillway::testing {

/// A scripted trainer: one call is one step of some model, as a stream of operators, births and
/// deaths like that of a real one. Numbers are pages and seconds.
class SyntheticTrainer {
 public:
  virtual ~SyntheticTrainer() = default;
  virtual void run_step(PagingSimulation& run, std::uint32_t step) = 0;
};

/// Encoder, bottom and decoder with skip connections; small parameters (never paged).
struct UNetSizes {
  std::uint32_t levels = 4;
  std::uint32_t blocks = 2;      ///< Convolution and in-place activation each.
  std::uint32_t top_pages = 32;  ///< Activation of the first level; halves per level.
  double op_seconds = 0.02;
};
std::unique_ptr<SyntheticTrainer> make_unet(const UNetSizes& sizes);

/// Layers with attention and feed-forward, tied to their parameters and Adam's moments.
struct TransformerSizes {
  std::uint32_t layers = 12;
  std::uint32_t parameter_pages = 4;  ///< Per weight matrix, of which a layer has four.
  std::uint32_t activation_pages = 6;
  std::uint32_t micro_batches = 1;  ///< Backward passes per optimizer step.
  double op_seconds = 0.004;
};
std::unique_ptr<SyntheticTrainer> make_transformer(const TransformerSizes& sizes);

/// Large layers, small activations: almost all memory is parameters, gradients and two moments.
struct MlpSizes {
  std::uint32_t layers = 8;
  std::uint32_t parameter_pages = 24;
  std::uint32_t activation_pages = 1;
  double op_seconds = 0.02;
  bool keeps_gradients = false;  ///< zero_grad fills with zeros instead of freeing.
};
std::unique_ptr<SyntheticTrainer> make_mlp(const MlpSizes& sizes);

/// Every `period`-th step also evaluates: forward passes that keep nothing.
std::unique_ptr<SyntheticTrainer> make_evaluating(std::uint32_t period, std::uint32_t passes);

/// Every `period`-th step works on a batch of half the size.
std::unique_ptr<SyntheticTrainer> make_uneven(std::uint32_t period);

/// Two networks with an optimizer each, trained in turn; both turns are steps.
std::unique_ptr<SyntheticTrainer> make_gan();

/// Generates: forward passes whose number and sizes change from step to step.
std::unique_ptr<SyntheticTrainer> make_sampler();

}  // namespace spillway::testing
