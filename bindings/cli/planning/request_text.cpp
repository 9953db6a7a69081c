#include "planning/request_text.h"

#include <cmath>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

using planner::JobRequest;

namespace {

constexpr std::size_t kLabel = 10;

std::string work_text(const JobRequest& request) {
  if (request.micro_batches == 0)
    return message("the work of {}", counted(batch_of(request), "micro-batch"));
  const std::string text = counted(request.micro_batches, "micro-batch");
  const std::uint32_t share = batch_of(request) / request.micro_batches;
  return share == 1 ? text : message("{} of {} profiled ones each", text, share);
}

}  // namespace

std::string line(std::string label, const std::string& text) {
  label.resize(kLabel, ' ');
  return label + text + "\n";
}

std::string request_text(const JobRequest& request, const std::string& path,
                         const std::string& links) {
  std::string text = line("model", message("{}, {}, {} for a micro-batch", path,
                                           counted(request.chain.layers.size(), "layer"),
                                           seconds_text(work_of(request.chain))));
  if (request.guesses_forward)
    text += line("guessed", "where forward ends, and which layers backward operators belong to, as "
                            "this profile does not tell (spillway profile records it)");
  text += line("job", message("{}{}, {} per step", counted(request.ranks, "rank"),
                              request.device_memory == planner::kNoLimit
                                  ? std::string(" of any size (--device-memory limits it)")
                                  : message(" of {}", request.device_memory),
                              work_text(request)));
  return text + line("links", links);
}

std::string links_text(const JobRequest& request, const std::string& machine) {
  const bool is_free = std::isinf(request.link.bytes_per_second);
  const std::string peer = is_free
                               ? "messages between ranks take no time" +
                                     std::string(machine.empty() ? " (--link names a rate)" : "")
                               : gb_per_s(request.link.bytes_per_second) + " between ranks";
  const std::string host =
      request.swap_bytes_per_second > 0.0
          ? gb_per_s(request.swap_bytes_per_second) + " to each host, either way"
          : std::string("nothing is swapped (--link-out and --link-in name a link to the host)");
  return machine.empty() ? message("{}; {}", peer, host)
                         : message("{}; {}: what {} leaves a rank", peer, host, machine);
}

double work_of(const planner::ModelChain& chain) {
  double seconds = 0.0;
  for (const planner::ModelLayer& layer : chain.layers)
    seconds += layer.forward_seconds + layer.backward_seconds;
  return seconds;
}

}  // namespace spillway::cli
