#include "spillway/runtime/settings/device_budget.h"

#include <algorithm>
#include <bit>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::runtime {
namespace {

constexpr Bytes kMostReserve = 1_GiB;

// As the host has in its 1 TiB, so that tables of pages take as much memory.
constexpr std::uint64_t kPagesOfAddresses = std::uint64_t{1} << 19;

// As pages of 4 MiB have: a process has 128 TiB for all its GPUs.
constexpr Bytes kMostAddresses = 2_TiB;

// One for what stays there, one for those on their way to the disks.
constexpr std::uint64_t kLeastPagesOnHost = 2;

constexpr std::uint64_t kLeastPages = 2;

constexpr Bytes kLargestPage = 32_MiB;

/// Whose budget it is, and how much.
struct Request {
  std::string device;  ///< Empty: it is for all devices.
  BudgetRequest budget;
};

Request request_for(const Settings& settings, device::DeviceId id) {
  if (settings.device_budgets.empty()) return {{}, settings.budget};
  for (const std::string& name : {device::to_string(id), std::string(device::name_of(id.kind))})
    for (const DeviceBudget& each : settings.device_budgets)
      if (each.device == name) return {name, each.request};
  return {};
}

/// "2 ranks (8 on 4 GPUs)"
std::string text_of(const CardSharing& sharing) {
  return message("{} ranks{}", sharing.ranks,
                 sharing.assumption.empty() ? "" : message(" ({})", sharing.assumption));
}

ResolvedBudget budget_of_card(const BudgetRequest& request, const DeviceFacts& facts) {
  const unsigned ranks = facts.sharing.ranks;
  const Bytes free = facts.memory.free / ranks;
  const Bytes reserve = default_device_reserve(facts.memory.total / ranks);
  const bool is_percent = request.kind == BudgetRequest::Kind::kPercent;
  const std::string history =
      message("{} free of {}{}, less {} reserve{}", facts.memory.free, facts.memory.total,
              ranks > 1 ? " for " + text_of(facts.sharing) : "", reserve, ranks > 1 ? " each" : "");
  if (free < reserve + 2 * facts.page_size)
    throw ConfigError("no budget is left on {} ({}): {} (end what else holds its memory, or give "
                      "the budget as a size)",
                      facts.id, facts.name, history);
  const double share = is_percent ? request.percent / 100.0 : 1.0;
  ResolvedBudget result;
  result.is_auto = !is_percent;
  result.budget =
      Bytes(static_cast<std::uint64_t>(static_cast<double>((free - reserve).count()) * share));
  result.origin = message(
      "{}: {}", is_percent ? message("{} %", request.percent) : std::string("auto"), history);
  return result;
}

/// `least`: what any GPU needs, as pages may be larger on one with coarser memory.
std::string why_too_small(const Settings& settings, const BudgetRequest& request,
                          const std::string& device, Bytes page_size, const char* least) {
  const bool has_large_pages = page_size > device_page_size({});
  return message("a budget of {} is too small for {}: tensors move in pages of {}, so {} is the "
                 "least{}, and a trainer needs what its largest operator holds (give more with "
                 "--budget {}=SIZE{})",
                 request.size, device, page_size, kLeastPages * page_size, least, device,
                 has_large_pages
                     ? message(", or a smaller --min-storage than {}, which makes pages "
                               "smaller",
                               settings.device_min_storage)
                     : std::string());
}

}  // namespace

Bytes device_page_size(const Settings& settings) {
  return std::min(Bytes(std::bit_floor(2 * settings.device_min_storage.count())), kLargestPage);
}

void check_device_budgets(const Settings& settings) {
  const Bytes page_size = device_page_size(settings);
  for (const DeviceBudget& each : settings.device_budgets)
    if (each.device != "cpu" && each.request.kind == BudgetRequest::Kind::kSize &&
        each.request.size < kLeastPages * page_size)
      throw ConfigError("{}",
                        why_too_small(settings, each.request, each.device, page_size, " of any"));
}

void check_named_gpus(const Settings& settings, std::size_t gpus) {
  std::vector<device::DeviceId> there;
  for (std::size_t i = 0; i < gpus; ++i)
    there.push_back({device::DeviceKind::kCuda, static_cast<std::uint16_t>(i)});
  if (const auto needless = needless_budgets(settings, there); !needless.empty())
    throw ConfigError("there is a budget for {}, and the program sees {}, from {}:0 on (name one "
                      "of these with --budget, or see CUDA_VISIBLE_DEVICES)",
                      needless.front(), counted(gpus, "GPU"),
                      device::name_of(device::DeviceKind::kCuda));
}

CardSharing sharing_of_card(unsigned counted, unsigned ranks_here, unsigned visible,
                            bool sees_as_others) {
  if (counted > 0) return {.ranks = counted};
  if (visible == 0 || ranks_here <= visible) return {};
  if (!sees_as_others) return {.may_be_shared = true};
  return {.ranks = (ranks_here + visible - 1) / visible,
          .assumption = message("{} on {}", ranks_here, spillway::counted(visible, "GPU"))};
}

bool has_share_of(const Settings& settings, device::DeviceId id) {
  return request_for(settings, id).budget.kind != BudgetRequest::Kind::kSize;
}

Bytes default_device_reserve(Bytes total) { return std::min(kMostReserve, total / 8); }

Bytes least_paged(const Settings& settings, Bytes page_size) {
  return std::max(settings.device_min_storage, page_size / 2);
}

ResolvedBudget resolve_device_budget(const Settings& settings, const DeviceFacts& facts) {
  const auto [device, request] = request_for(settings, facts.id);
  ResolvedBudget result;
  if (request.kind != BudgetRequest::Kind::kSize) {
    result = budget_of_card(request, facts);
  } else if (request.size > facts.memory.total && !device.empty()) {
    throw ConfigError("the budget {}={} is larger than the memory of {} ({}), {} (give less, or "
                      "{}=auto; a size without a device is lowered on a GPU that has less)",
                      device, request.size, facts.id, facts.name, facts.memory.total, device);
  } else if (request.size > facts.memory.total) {
    result = budget_of_card({}, facts);
    result.warnings.push_back(message("the budget of {} is larger than the memory of {} ({}), {}: "
                                      "it is lowered there to {}",
                                      request.size, facts.id, facts.name, facts.memory.total,
                                      result.budget));
    result.origin += message(", as the card is smaller than {}", request.size);
  } else {
    result.budget = request.size;
    result.origin = "given";
    if (request.size > facts.memory.free)
      result.warnings.push_back(
          message("the budget of {} is larger than what is free on {} ({}) now, {} of {}: the "
                  "program ends when it needs more than that",
                  request.size, facts.id, facts.name, facts.memory.free, facts.memory.total));
    else if (request.size * facts.sharing.ranks > facts.memory.total)
      result.warnings.push_back(
          message("{} share {} ({}), whose {} are less than a budget of {} for each: the "
                  "program ends when they need more than that (give less, or auto, which shares it "
                  "out)",
                  text_of(facts.sharing), facts.id, facts.name, facts.memory.total, request.size));
  }
  if (request.kind != BudgetRequest::Kind::kSize && facts.sharing.may_be_shared)
    result.warnings.push_back(message(
        "more ranks run on this host than the GPUs that this one sees: where some share {}, "
        "each takes {} of it for its own (give each its part with --budget {}=SIZE)",
        facts.id, result.budget, facts.id));
  if (result.budget < kLeastPages * facts.page_size)
    throw ConfigError(
        "{}", why_too_small(settings, {.kind = BudgetRequest::Kind::kSize, .size = result.budget},
                            to_string(facts.id), facts.page_size, ""));
  result.arena = std::min(kPagesOfAddresses * facts.page_size, kMostAddresses);
  return result;
}

std::vector<std::string> needless_budgets(const Settings& settings,
                                          std::span<const device::DeviceId> used) {
  std::vector<std::string> names;
  for (const DeviceBudget& each : settings.device_budgets) {
    if (each.device == device::name_of(device::DeviceKind::kCpu)) continue;
    const auto is_for = [&](device::DeviceId id) {
      return each.device == device::to_string(id) || each.device == device::name_of(id.kind);
    };
    if (std::none_of(used.begin(), used.end(), is_for)) names.push_back(each.device);
  }
  return names;
}

HostMemory host_memory_behind(const DeviceFacts& facts, const Settings& settings,
                              const topology::Machine& machine, Bytes budget, Bytes pinned,
                              unsigned sharers) {
  const auto usable = topology::usable_memory(machine.memory);
  const bool is_given = settings.host_tier > Bytes();
  if (!usable && !is_given)
    throw ConfigError("cannot tell how much host memory there is for what leaves {}: neither "
                      "/proc/meminfo nor a cgroup limit is readable (give its size, for example "
                      "--nvme ram:8GiB,DIR)",
                      facts.id);
  Bytes left;
  std::string history;
  if (usable) {
    const Bytes share = usable->bytes / sharers;
    left = share - std::min(share, pinned);
    history = message(
        "{} usable ({}){}{}", usable->bytes, usable->limited_by,
        sharers > 1 ? message(" for {} ranks", sharers) : std::string(),
        pinned > Bytes() ? message(", {} pinned for other devices", pinned) : std::string());
  }
  if (is_given && usable && settings.host_tier > left)
    throw ConfigError("{} of host memory for what leaves {} are more than there is: {} (lower ram: "
                      "of --nvme, which is for each device)",
                      settings.host_tier, facts.id, history);
  Bytes size = is_given ? settings.host_tier : std::min(left / 2, budget);
  size = facts.page_size * (size / facts.page_size);
  const Bytes least = kLeastPagesOnHost * facts.page_size;
  if (size < least)
    throw ConfigError("{} of host memory for what leaves {} are too little, {} is the least{}{} "
                      "(give --nvme ram:SIZE,DIR)",
                      size, facts.id, least, is_given ? "" : ": ",
                      is_given ? std::string() : history);
  return {size, is_given ? std::string("given") : message("auto: {}", history)};
}

}  // namespace spillway::runtime
