#include "piper_chain.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"

namespace spillway::quality {

using namespace partition;

ModelChain piper_chain(std::string_view text, const std::string& name) {
  ModelChain chain;
  const JsonText json(text, name, JsonText::kAnyFormat);
  JsonObject root = json.root();
  for (JsonObject& node : root.objects("nodes")) {
    std::vector<JsonObject> ways = node.object("TMPCs").objects("1");
    if (ways.size() != 2)
      throw ConfigError("{} has {} ways to run a layer; give two, plain and recomputed",
                        node.place("TMPCs"), ways.size());
    const auto figure = [&](std::size_t way, const char* key) {
      return ways[way].number(key, 0.0, 1e15);
    };
    const auto bytes = [&](std::size_t way, const char* key) {
      return Bytes(static_cast<std::uint64_t>(figure(way, key)));
    };
    ModelLayer layer;
    layer.name = node.text("name");
    layer.forward_seconds = figure(0, "timePerSample") / 3;
    layer.backward_seconds = figure(0, "timePerSample") - layer.forward_seconds;
    layer.parameters = bytes(0, "parameterSize");
    if (layer.parameters > Bytes())
      layer.static_ratio = std::max(1.0, figure(0, "memoryUsageB") / figure(0, "parameterSize"));
    layer.stash = bytes(0, "memoryUsageA");
    layer.recompute = {
        {figure(1, "timePerSample") - figure(0, "timePerSample"), bytes(1, "memoryUsageA")}};
    layer.working_peak = bytes(1, "memoryUsageB") - bytes(0, "memoryUsageB");
    chain.layers.push_back(std::move(layer));
  }
  check(chain);
  return chain;
}

}  // namespace spillway::quality
