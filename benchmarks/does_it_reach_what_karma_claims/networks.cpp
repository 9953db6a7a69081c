#include "networks.h"

#include <functional>
#include <map>

#include "trainer/bad_input.h"

namespace karma_networks {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Sequential;

// Padded so that only the stride changes the size; batch-norm makes a bias useless.
Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                   std::int64_t stride = 1) {
  return Conv2d(Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

torch::nn::ReLU relu() { return torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)); }

torch::nn::AdaptiveAvgPool2d average_of_image() { return torch::nn::AdaptiveAvgPool2d(1); }

/// What adds its input to what its layers make of it. With `before`, normalisation and activation
/// come first; layers and a shortcut that is not the input itself start behind them.
class ResidualImpl : public torch::nn::Module {
 public:
  ResidualImpl(Sequential before, Sequential layers, Sequential shortcut, bool activates)
      : activates_(activates) {
    before_ = register_module("before", before);
    layers_ = register_module("layers", layers);
    shortcut_ = register_module("shortcut", shortcut);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor begin = before_->is_empty() ? x : before_->forward(x);
    torch::Tensor y = layers_->forward(begin);
    y += shortcut_->is_empty() ? x : shortcut_->forward(begin);
    return activates_ ? y.relu_() : y;
  }

 private:
  Sequential before_{nullptr};
  Sequential layers_{nullptr};
  Sequential shortcut_{nullptr};
  bool activates_;
};
TORCH_MODULE(Residual);

struct Shape {
  std::int64_t in;
  std::int64_t out;
  std::int64_t stride;
  bool changes() const { return in != out || stride != 1; }
};

Residual bottleneck(const Shape& shape) {
  const std::int64_t inner = shape.out / 4;
  Sequential layers(convolution(shape.in, inner, 1), BatchNorm2d(inner), relu(),
                    convolution(inner, inner, 3, shape.stride), BatchNorm2d(inner), relu(),
                    convolution(inner, shape.out, 1), BatchNorm2d(shape.out));
  Sequential shortcut;
  if (shape.changes())
    shortcut =
        Sequential(convolution(shape.in, shape.out, 1, shape.stride), BatchNorm2d(shape.out));
  return Residual(Sequential(), layers, shortcut, true);
}

Sequential shortcut_of(const Shape& shape) {
  return shape.changes() ? Sequential(convolution(shape.in, shape.out, 1, shape.stride))
                         : Sequential();
}

Residual pre_activated_bottleneck(const Shape& shape) {
  const std::int64_t inner = shape.out / 4;
  return Residual(Sequential(BatchNorm2d(shape.in), relu()),
                  Sequential(convolution(shape.in, inner, 1), BatchNorm2d(inner), relu(),
                             convolution(inner, inner, 3, shape.stride), BatchNorm2d(inner), relu(),
                             convolution(inner, shape.out, 1)),
                  shortcut_of(shape), false);
}

Residual wide_block(const Shape& shape) {
  return Residual(Sequential(BatchNorm2d(shape.in), relu()),
                  Sequential(convolution(shape.in, shape.out, 3, shape.stride),
                             BatchNorm2d(shape.out), relu(), convolution(shape.out, shape.out, 3)),
                  shortcut_of(shape), false);
}

/// Stages of equal blocks, whose widths double; all but the first one halve the resolution.
std::int64_t add_stages(Sequential& net, Residual (*block)(const Shape&), std::int64_t in,
                        std::int64_t width, const std::vector<int>& blocks) {
  for (std::size_t stage = 0; stage < blocks.size(); ++stage, width *= 2)
    for (int i = 0; i < blocks[stage]; ++i) {
      net->push_back(block({in, width, stage > 0 && i == 0 ? 2 : 1}));
      in = width;
    }
  return in;
}

Network imagenet_resnet(const std::vector<int>& blocks) {
  Sequential net(convolution(3, 64, 7, 2), BatchNorm2d(64), relu(),
                 torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
  const std::int64_t features = add_stages(net, bottleneck, 64, 256, blocks);
  net->push_back(average_of_image());
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(features, 1000));
  return {net, {3, 224, 224}, {}, 1000};
}

Network cifar_resnet(Residual (*block)(const Shape&), std::int64_t width, int blocks) {
  Sequential net(convolution(3, 16, 3));
  const std::int64_t features = add_stages(net, block, 16, width, {blocks, blocks, blocks});
  net->push_back(BatchNorm2d(features));
  net->push_back(relu());
  net->push_back(average_of_image());
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(features, 10));
  return {net, {3, 32, 32}, {}, 10};
}

Network vgg16() {
  Sequential net;
  std::int64_t in = 3;
  for (const auto& [width, convolutions] : {std::pair(64, 2), std::pair(128, 2), std::pair(256, 3),
                                            std::pair(512, 3), std::pair(512, 3)}) {
    for (int i = 0; i < convolutions; ++i, in = width) {
      net->push_back(Conv2d(Conv2dOptions(in, width, 3).padding(1)));
      net->push_back(relu());
    }
    net->push_back(torch::nn::MaxPool2d(2));
  }
  net->push_back(torch::nn::Flatten());
  for (const std::int64_t features : {in * 7 * 7, std::int64_t{4096}}) {
    net->push_back(torch::nn::Linear(features, 4096));
    net->push_back(relu());
    net->push_back(torch::nn::Dropout());
  }
  net->push_back(torch::nn::Linear(4096, 1000));
  return {net, {3, 224, 224}, {}, 1000};
}

const std::map<std::string, std::function<Network()>>& makers() {
  static const std::map<std::string, std::function<Network()>> all{
      {"resnet-50",
       [] {
         return imagenet_resnet({3, 4, 6, 3});
       }},
      {"resnet-200",
       [] {
         return imagenet_resnet({3, 24, 36, 3});
       }},
      {"resnet-1001", [] { return cifar_resnet(pre_activated_bottleneck, 64, 111); }},
      {"wrn-28-10", [] { return cifar_resnet(wide_block, 160, 4); }},
      {"vgg-16", vgg16},
      {"u-net", [] {
         return Network{Sequential(UNet()), {1, 572, 572}, {388, 388}, 2};
       }}};
  return all;
}

}  // namespace

const std::vector<std::string>& network_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, maker] : makers()) all.push_back(name);
    return all;
  }();
  return names;
}

Network make_network(const std::string& name) {
  const auto found = makers().find(name);
  if (found == makers().end())
    throw trainer::BadInput("there is no network '" + name + "': --help lists them");
  return found->second();
}

}  // namespace karma_networks
