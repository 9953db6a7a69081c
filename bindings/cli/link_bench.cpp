#include "link_bench.h"

#include <dlfcn.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

#include "bench_command.h"
#include "exit_codes.h"
#include "installed_torches.h"
#include "progress_line.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/topology/disk_rates.h"

namespace spillway::cli {
namespace {

device::DeviceId gpu_named(const std::string& text) {
  constexpr std::string_view kNumbered = "cuda:";
  device::DeviceId id{device::DeviceKind::kCuda, 0};
  if (text.starts_with(kNumbered))
    std::from_chars(text.data() + kNumbered.size(), text.data() + text.size(), id.index);
  if (text != device::to_string(id))
    throw ConfigError("--device: '{}' is no GPU (write cuda:0, cuda:1 and so on; rates of a disk: "
                      "spillway bench-io DIR)",
                      shown_text(text));
  return id;
}

/// The runtime of CUDA that trainers here would use; what cannot be loaded is told by who looks for
/// it next.
void load_runtime() {
  for (const FoundTorch& torch : find_installed_torches()) {
    if (torch.cuda_runtime.empty()) continue;
    ::dlopen(torch.cuda_runtime.c_str(), RTLD_NOW | RTLD_GLOBAL);
    return;
  }
}

const char* word_for(device::Beside beside) {
  switch (beside) {
    case device::Beside::kNothing: return "nothing";
    case device::Beside::kWork: return "work";
    case device::Beside::kCopies: break;
  }
  return "copies";
}

void add_row(std::ostringstream& out, const std::array<std::string, 5>& cells, const char* remark) {
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(), "%8s %6s  %-22s  %-22s  %-22s%s", cells[0].c_str(),
                cells[1].c_str(), cells[2].c_str(), cells[3].c_str(), cells[4].c_str(), remark);
  const std::string_view text = line.data();
  out << text.substr(0, text.find_last_not_of(' ') + 1) << '\n';
}

void add_link(std::ostringstream& out, const device::LinkPoint& point, const char* remark) {
  add_row(out,
          {to_string(point.block), std::to_string(point.depth), rate_cell(point.out),
           rate_cell(point.in), rate_cell(point.both)},
          remark);
}

std::string span_text(const Spread& time) {
  return message("{} [{}-{}]", seconds_text(time.median), seconds_text(time.least),
                 seconds_text(time.most));
}

void add_mapping(std::ostringstream& out, const std::vector<device::MappingTime>& mapping) {
  if (mapping.empty()) {
    out << "no virtual memory: nothing is mapped\n";
    return;
  }
  out << "a chunk is mapped, with access, and unmapped in (beside: nothing; work, copies within\n"
         "the GPU's memory; copies to and from the host)\n";
  for (const device::MappingTime& time : mapping)
    out << message("{} beside {}: {}, {}\n", time.chunk, word_for(time.beside), span_text(time.map),
                   span_text(time.unmap));
}

}  // namespace

std::string link_tables(const device::LinkProbe& probe,
                        const std::vector<device::MappingTime>& mapping) {
  std::ostringstream out;
  add_row(out, {"block", "depth", "out GB/s", "in GB/s", "both at once GB/s"}, "");
  for (const device::LinkPoint& point : probe.points)
    add_link(out, point, &point == probe.best() ? "  plans" : "");
  if (probe.beside) {
    const device::LinkBesideWork& beside = *probe.beside;
    add_link(out, beside.link, "  beside work");
    out << message("work is copies within the GPU's memory, the most that work can take of it: {} "
                   "alone,\n{} beside copies both ways\n",
                   TransferRate(beside.work_alone), TransferRate(beside.work_beside));
  }
  add_mapping(out, mapping);
  for (const device::PinningTime& time : probe.pinning)
    out << message("pinning {}: {}{}\n", time.size, seconds_text(time.seconds),
                   time.refusal.empty() ? "" : "; refused, it is pageable: " + time.refusal);
  return out.str();
}

topology::LinkRate to_link_rate(const device::LinkProbe& probe,
                                const std::vector<device::MappingTime>& mapping) {
  topology::LinkRate rate;
  const auto add = [&](const device::LinkPoint& point, bool beside_work) {
    rate.samples.push_back({point.block, point.depth, beside_work, TransferRate(point.out.median),
                            TransferRate(point.in.median), TransferRate(point.both.median)});
  };
  if (const device::LinkPoint* best = probe.best()) {
    rate.out = TransferRate(best->out.median);
    rate.in = TransferRate(best->in.median);
    rate.both = TransferRate(best->both.median);
  }
  rate.out_fixed_seconds = probe.fixed_seconds(&device::LinkPoint::out);
  rate.in_fixed_seconds = probe.fixed_seconds(&device::LinkPoint::in);
  for (const device::LinkPoint& point : probe.points) add(point, false);
  if (probe.beside) {
    add(probe.beside->link, true);
    rate.interference_seconds_per_byte = probe.beside->lost_seconds_per_byte;
  }
  for (const device::MappingTime& time : mapping)
    rate.mapping.push_back({time.chunk, word_for(time.beside), time.map.median, time.unmap.median});
  for (const device::PinningTime& time : probe.pinning)
    if (time.refusal.empty()) rate.pinning.push_back({time.size, time.seconds});
  return rate;
}

int measure_link_of(const LinkBenchOptions& options) {
  const device::DeviceId id = gpu_named(options.device);
  check_rates_path(options.rates_path);
  topology::DiskRates rates;
  if (!options.rates_path.empty()) rates = topology::DiskRates::load_if_there(options.rates_path);
  load_runtime();
  const std::array backends{device::cuda_backend()};
  const auto gpu = device::open_device(id, backends);
  device::LinkProbeOptions probing = options.probe;
  const SteadyClock clock;
  ProgressLine line(clock);
  probing.progress = [&](const std::string& what) { line.show(what); };
  line.show("mapping of the GPU's memory");  // First, as it may refuse the chunks.
  const auto mapping = device::measure_mapping(*gpu, options.chunks);
  const device::LinkProbe probe = device::measure_link(*gpu, probing);
  line.clear();
  if (!probe.why_pageable.empty())
    log_warning("host memory stays pageable, and copies take a detour: {}", probe.why_pageable);
  topology::LinkRate rate = to_link_rate(probe, mapping);
  if (const auto facts = device::cuda_facts_of(id)) rate.name = facts->name;
  rate.device = options.device;
  rate.measured_at = utc_now();
  std::cout << message("{}, {}, {}; median [lowest-highest]\n", rate.device, rate.name,
                       rate.measured_at)
            << link_tables(probe, mapping);
  rates.record(std::move(rate));
  return save_rates(rates, options.rates_path);
}

}  // namespace spillway::cli
