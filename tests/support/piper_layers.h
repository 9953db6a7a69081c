#pragma once

#include <string>

namespace spillway {

/// Costs as Piper publishes them, of three equal layers: 0.25 s, of which 0.1 s are forward, 8 MiB
/// of parameters with as much of gradients, and 16 MiB kept, 4 MiB of them the layer's input.
inline std::string three_piper_layers() {
  const std::string costs =
      R"("TMPCs": {"1": [
        {"id": "vanilla", "timePerSample": 0.25, "parameterSize": 8388608,
         "memoryUsageA": 16777216, "memoryUsageB": 16777216},
        {"id": "recomp", "timePerSample": 0.35, "parameterSize": 8388608,
         "memoryUsageA": 4194304, "memoryUsageB": 16777216}]})";
  return R"({"nodes": [{"id": 0, "name": "one", )" + costs + R"(}, {"id": 1, "name": "two", )" +
         costs + R"(}, {"id": 2, "name": "three", )" + costs +
         R"(}], "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 4194304},
                          {"sourceId": 1, "destId": 2, "communicationCost": 4194304}]})";
}

}  // namespace spillway
