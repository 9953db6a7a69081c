#include "rank_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/median.h"

template <>
struct nlohmann::adl_serializer<spillway::Bytes> {
  static void to_json(json& json, spillway::Bytes size) { json = size.count(); }
  static void from_json(const json& json, spillway::Bytes& size) {
    size = spillway::Bytes(json.get<std::uint64_t>());
  }
};

namespace spillway::cli {
namespace {

using transport::MeasuredLink;
using Ranks = std::vector<std::uint32_t>;

constexpr double kFarClock = 1.0;      // Seconds; logs and file times of hosts then contradict.
constexpr double kSlowLink = 0.5;      // Part of the median rate.
constexpr std::size_t kMostNames = 8;  // In a line.

/// The ranks of a host, hosts in order of their first ranks.
struct HostRanks {
  std::string name;
  Ranks ranks;
};

std::vector<HostRanks> hosts_of(const std::vector<RankFacts>& ranks) {
  std::vector<HostRanks> hosts;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const HostRanks& host) {
      return host.name == ranks[rank].host;
    });
    if (known == hosts.end())
      hosts.push_back({ranks[rank].host, {rank}});
    else
      known->ranks.push_back(rank);
  }
  return hosts;
}

/// "rank 3", "ranks 0 to 3, 6".
std::string ranks_text(const Ranks& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += message("{}{}", i == 0 ? "" : ", ", ranks[i]);
    if (last > i) text += message("{}{}", last == i + 1 ? ", " : " to ", ranks[last]);
    i = last + 1;
  }
  return text;
}

template <typename... Args>
void warn_once(Finding& finding, std::string_view pattern, const Args&... args) {
  if (finding.mend.empty()) finding.warn(pattern, args...);  // The first one of its kind is enough.
}

/// "2", "1 to 4": what is the same everywhere, or from the least to the most.
template <typename Value>
std::string range_text(const std::vector<Value>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *least == *most ? message("{}", *least) : message("{} to {}", *least, *most);
}

std::string threads_text(const std::vector<unsigned>& threads) {
  const std::string range = range_text(threads);
  return range + (range == "1" ? " thread" : " threads");
}

Finding check_mpi_of(const JobFacts& job) {
  return {"MPI", message("{}, {} (ABI of {})", job.mpi.version, job.mpi.library, job.mpi.abi)};
}

Finding check_ranks(const JobFacts& job, const std::vector<HostRanks>& hosts) {
  Finding finding{"ranks", counted(job.ranks.size(), "rank")};
  finding.value += message(" on {}: ", counted(hosts.size(), "host"));
  if (hosts.size() <= kMostNames) {
    for (const HostRanks& host : hosts)
      finding.value +=
          message("{}{} on {}", &host == hosts.data() ? "" : ", ", host.ranks.size(), host.name);
  } else {
    std::vector<std::size_t> counts;
    for (const HostRanks& host : hosts) counts.push_back(host.ranks.size());
    finding.value += range_text(counts) + " on each";
  }
  for (const HostRanks& host : hosts)
    for (const std::uint32_t rank : host.ranks)
      if (job.ranks[rank].ranks_here != host.ranks.size())
        warn_once(finding,
                  "the launcher tells rank {} of {} on {}, and {} are there: budgets and what is "
                  "known of disks are shared out by the wrong number; set MPI_LOCALNRANKS={} "
                  "for the ranks of that host",
                  rank, counted(job.ranks[rank].ranks_here, "rank"), host.name, host.ranks.size(),
                  host.ranks.size());
  for (const HostRanks& host : hosts) {
    unsigned gpus = 0;
    for (const std::uint32_t rank : host.ranks) gpus = std::max(gpus, job.ranks[rank].gpus);
    if (gpus > 0 && host.ranks.size() > gpus)
      warn_once(finding,
                "rank {} is number {} on {}, which has {}: a program on GPUs takes no more "
                "ranks there, unless they share one (CUDA_VISIBLE_DEVICES=0); to one on the CPU "
                "it does not matter",
                host.ranks[gpus], gpus + 1, host.name, counted(gpus, "GPU"));
  }
  return finding;
}

/// Ranks that were bound to a part of their host, and not each to its own.
std::string shared_cores(const JobFacts& job, const HostRanks& host) {
  std::map<unsigned, std::uint32_t> owners;
  for (const std::uint32_t rank : host.ranks) {
    const RankFacts& facts = job.ranks[rank];
    for (const unsigned core : facts.cores) {
      const auto [owner, is_new] = owners.emplace(core, rank);
      // Equal sets are one that nobody divides; whether it is enough is told by the threads.
      if (!is_new && job.ranks[owner->second].cores != facts.cores)
        return message("{} on {} share core {}: let the launcher bind each to cores of its own "
                       "(--bind-to core)",
                       ranks_text({owner->second, rank}), host.name, core);
    }
  }
  return {};
}

/// Threads of ranks that may use cores together are more than these.
std::string crowded_cores(const JobFacts& job, const HostRanks& host) {
  std::set<unsigned> cores;
  unsigned threads = 0;
  double quota = 0.0;
  std::map<std::vector<unsigned>, unsigned> threads_of;
  for (const std::uint32_t rank : host.ranks) {
    const RankFacts& facts = job.ranks[rank];
    cores.insert(facts.cores.begin(), facts.cores.end());
    threads += facts.threads;
    threads_of[facts.cores] += facts.threads;
    quota = std::max(quota, facts.quota);
  }
  const auto told = [&](unsigned count, const std::string& room, double fitting) {
    const double each = std::floor(fitting / static_cast<double>(host.ranks.size()));
    return message("{} of {} on {} are more than {}: {}", counted(count, "thread"),
                   counted(host.ranks.size(), "rank"), host.name, room,
                   each < 1.0 ? std::string("start fewer ranks there")
                              : message("give each rank fewer (OMP_NUM_THREADS={})", each));
  };
  if (!cores.empty() && threads > cores.size())
    return told(threads, counted(cores.size(), "core"), static_cast<double>(cores.size()));
  if (quota > 0.0 && threads > quota)
    return told(
        threads,
        message("the time of {} {} that the cgroups allow", quota, quota == 1.0 ? "core" : "cores"),
        quota);
  for (const auto& [own, count] : threads_of)
    if (!own.empty() && count > own.size())
      return message("ranks on {} are bound to {} and have {}: bind them to more, or give each "
                     "fewer threads (OMP_NUM_THREADS)",
                     host.name, counted(own.size(), "core"), counted(count, "thread"));
  return {};
}

Finding check_cores(const JobFacts& job, const std::vector<HostRanks>& hosts) {
  std::vector<std::size_t> cores;
  std::vector<unsigned> threads;
  for (const RankFacts& facts : job.ranks) {
    cores.push_back(facts.cores.size());
    threads.push_back(facts.threads);
  }
  Finding finding{"cores of ranks", message("each may use {} of its host's cores, with {}",
                                            range_text(cores), threads_text(threads))};
  if (*std::min_element(cores.begin(), cores.end()) == 0)
    finding.value = message("unknown, with {} each", threads_text(threads));
  if (*std::max_element(threads.begin(), threads.end()) !=
      *std::min_element(threads.begin(), threads.end()))
    warn_once(finding, "--split needs the same number of threads on all ranks: OMP_NUM_THREADS");
  for (const HostRanks& host : hosts) {
    if (const std::string crowd = crowded_cores(job, host); !crowd.empty())
      warn_once(finding, crowd);
    if (const std::string shared = shared_cores(job, host); !shared.empty())
      warn_once(finding, shared);
  }
  return finding;
}

bool is_between_hosts(const JobFacts& job, const MeasuredLink& link) {
  return job.ranks[link.from].host != job.ranks[link.to].host;
}

std::string offset_text(double seconds) {
  return message("{}{}", seconds < 0.0 ? "-" : "+", seconds_text(std::abs(seconds)));
}

/// Of each other host against the first rank's.
std::optional<Finding> check_clocks(const JobFacts& job) {
  Finding finding{"clocks", {}};
  std::size_t count = 0;
  const MeasuredLink* furthest = nullptr;
  for (const MeasuredLink& link : job.links) {
    if (link.from != 0 || !is_between_hosts(job, link)) continue;
    if (++count <= kMostNames)
      finding.value += message("{}{} {} ± {} µs", count == 1 ? "" : ", ", job.ranks[link.to].host,
                               offset_text(link.clock_offset_seconds),
                               std::ceil(link.clock_error_seconds * 1e6));
    if (furthest == nullptr ||
        std::abs(link.clock_offset_seconds) > std::abs(furthest->clock_offset_seconds))
      furthest = &link;
  }
  if (count == 0) return std::nullopt;
  const std::string& far = job.ranks[furthest->to].host;
  if (count > kMostNames)
    finding.value += message(", …; the furthest of {}: {} {}", counted(count, "host"), far,
                             offset_text(furthest->clock_offset_seconds));
  finding.value += message(" from {}", job.ranks[0].host);
  if (std::abs(furthest->clock_offset_seconds) > kFarClock)
    warn_once(finding, "the clock of {} is {} s off: let the hosts keep one time (chrony, ntpd)",
              far, std::round(std::abs(furthest->clock_offset_seconds)));
  return finding;
}

LinkCosts median_of(const std::vector<MeasuredLink>& links) {
  std::vector<double> latencies;
  std::vector<double> rates;
  for (const MeasuredLink& link : links) {
    latencies.push_back(link.latency_seconds);
    rates.push_back(link.rate.bytes_per_second());
  }
  return {median(latencies), TransferRate(median(rates))};
}

std::vector<MeasuredLink> links_of(const JobFacts& job, bool between_hosts) {
  std::vector<MeasuredLink> links;
  for (const MeasuredLink& link : job.links)
    if (is_between_hosts(job, link) == between_hosts) links.push_back(link);
  return links;
}

std::optional<Finding> check_links(const JobFacts& job, bool between_hosts) {
  const std::vector<MeasuredLink> links = links_of(job, between_hosts);
  if (links.empty()) return std::nullopt;
  const LinkCosts typical = median_of(links);
  Finding finding{between_hosts ? "links of hosts" : "links in a host",
                  message("latency {}, {}", seconds_text(typical.latency_seconds), typical.rate)};
  if (links.size() == 1) return finding;
  const auto by_rate = [](const MeasuredLink& a, const MeasuredLink& b) { return a.rate < b.rate; };
  const auto [slow, fast] = std::minmax_element(links.begin(), links.end(), by_rate);
  finding.value +=
      message(" (medians of {} pairs; {} to {})", links.size(), slow->rate, fast->rate);
  if (slow->rate < typical.rate * kSlowLink)
    warn_once(finding, "{} ({} and {}) have {} only: all ranks wait for the slowest link",
              ranks_text({slow->from, slow->to}), job.ranks[slow->from].host,
              job.ranks[slow->to].host, slow->rate);
  return finding;
}

Finding check_budgets(const JobFacts& job, const std::vector<HostRanks>& hosts) {
  std::vector<Bytes> budgets;
  for (const RankFacts& facts : job.ranks)
    if (facts.budget > Bytes()) budgets.push_back(facts.budget);
  // Each tells itself why.
  if (budgets.empty()) return {"budget of ranks", "none"};
  const auto [least, most] = std::minmax_element(budgets.begin(), budgets.end());
  Finding finding{"budget of ranks", *least == *most ? message("{} each", *least)
                                                     : message("{} to {}", *least, *most)};
  for (const HostRanks& host : hosts) {
    Bytes sum;
    // What the first ones have taken is missing in what later ones see.
    Bytes usable;
    for (const std::uint32_t rank : host.ranks) {
      sum += job.ranks[rank].budget;
      usable = std::max(usable, job.ranks[rank].usable);
    }
    if (usable > Bytes() && sum > usable)
      warn_once(finding,
                "the budgets of {} on {} are {} together, and they may use {}: give "
                "less, or auto, which shares it out",
                counted(host.ranks.size(), "rank"), host.name, sum, usable);
  }
  return finding;
}

nlohmann::ordered_json link_json(const LinkCosts& link) {
  return {{"latency_seconds", link.latency_seconds},
          {"bytes_per_second", link.rate.bytes_per_second()}};
}

/// A description of the machine as plans read it; null where its hosts are not alike.
nlohmann::ordered_json cluster_json(const JobFacts& job, const std::vector<HostRanks>& hosts) {
  using Json = nlohmann::ordered_json;
  const std::size_t devices = hosts.front().ranks.size();
  for (const HostRanks& host : hosts)
    if (host.ranks.size() != devices) return nullptr;
  Bytes memory = job.ranks.front().budget;
  for (const RankFacts& facts : job.ranks) memory = std::min(memory, facts.budget);
  if (memory == Bytes()) return nullptr;
  const auto in_bytes = [](Bytes size) { return message("{}B", size.count()); };
  const Json copies = link_json({0.0, job.copy_rate});
  Json node = {
      {"devices", devices}, {"devices_per_switch", devices}, {"pcie", copies}, {"uplink", copies}};
  if (devices > 1) node["nvlink"] = link_json(median_of(links_of(job, /*between_hosts=*/false)));
  if (hosts.size() > 1) {
    node["nics"] = 1;
    node["nic"] = link_json(median_of(links_of(job, /*between_hosts=*/true)));
  }
  if (job.ranks.front().usable > Bytes()) node["host_memory"] = in_bytes(job.ranks.front().usable);
  if (job.disks > 0) {
    node["disks"] = job.disks;
    node["disk_read_bytes_per_second"] = job.disk_read_rate.bytes_per_second();
    node["disk_write_bytes_per_second"] = job.disk_write_rate.bytes_per_second();
  }
  return {{"format", "spillway cluster 1"},
          {"name", "measured"},
          {"nodes", hosts.size()},
          {"device", {{"name", job.processor}, {"memory", in_bytes(memory)}}},
          {"node", std::move(node)},
          {"network", {{"nodes_per_leaf", hosts.size()}}},
          {"sources",
           {{"device", "a rank: its budget, and the processors of its host"},
            {"pcie, uplink", "copies in memory, measured on the first host"},
            {"nvlink", "messages between ranks of one host, median of pairs"},
            {"nic", "messages between hosts, median of pairs"}}}};
}

}  // namespace

std::vector<Finding> check_job(const JobFacts& job) {
  const std::vector<HostRanks> hosts = hosts_of(job.ranks);
  std::vector<Finding> findings{check_mpi_of(job), check_ranks(job, hosts), check_cores(job, hosts),
                                check_budgets(job, hosts)};
  for (auto& finding : {check_clocks(job), check_links(job, /*between_hosts=*/true),
                        check_links(job, /*between_hosts=*/false)})
    if (finding) findings.push_back(*finding);
  return findings;
}

std::vector<Finding> findings_of_others(const std::vector<RankFacts>& ranks) {
  const auto is_same = [](const Finding& a, const Finding& b) {
    return a.subject == b.subject && a.verdict == b.verdict && a.mend == b.mend;
  };
  const auto is_known = [&](const Finding& finding) {
    const auto& known = ranks.front().findings;
    return std::any_of(known.begin(), known.end(),
                       [&](const Finding& other) { return is_same(finding, other); });
  };
  std::vector<Finding> found;
  std::vector<Ranks> owners;
  for (std::uint32_t rank = 1; rank < ranks.size(); ++rank)
    for (const Finding& finding : ranks[rank].findings) {
      if (finding.verdict == Verdict::kOk || is_known(finding)) continue;
      const auto same = std::find_if(found.begin(), found.end(),
                                     [&](const Finding& other) { return is_same(finding, other); });
      if (same == found.end()) {
        found.push_back(finding);
        owners.push_back({rank});
      } else {
        owners[static_cast<std::size_t>(same - found.begin())].push_back(rank);
      }
    }
  for (std::size_t i = 0; i < found.size(); ++i)
    found[i].subject = message("{} ({}): {}", ranks_text(owners[i]), ranks[owners[i].front()].host,
                               found[i].subject);
  return found;
}

nlohmann::ordered_json job_json(const JobFacts& job) {
  using Json = nlohmann::ordered_json;
  const std::vector<HostRanks> hosts = hosts_of(job.ranks);
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const RankFacts& facts = job.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"host", facts.host},
                     {"cores", facts.cores},
                     {"threads", facts.threads},
                     {"budget_bytes", facts.budget.count()}});
  }
  Json of_hosts = Json::array();
  for (const HostRanks& host : hosts) {
    Json row = {{"name", host.name}, {"ranks", host.ranks}};
    for (const MeasuredLink& link : job.links) {
      if (link.from != 0 || link.to != host.ranks.front() || !is_between_hosts(job, link)) continue;
      row["clock_offset_seconds"] = link.clock_offset_seconds;
      row["clock_error_seconds"] = link.clock_error_seconds;
    }
    of_hosts.push_back(std::move(row));
  }
  Json links = Json::array();
  for (const MeasuredLink& link : job.links) {
    Json row = {{"from", link.from},
                {"to", link.to},
                {"between", is_between_hosts(job, link) ? "hosts" : "ranks"}};
    row.update(link_json({link.latency_seconds, link.rate}));
    links.push_back(std::move(row));
  }
  return {
      {"mpi", {{"library", job.mpi.library}, {"version", job.mpi.version}, {"abi", job.mpi.abi}}},
      {"ranks", std::move(ranks)},
      {"hosts", std::move(of_hosts)},
      {"links", std::move(links)},
      {"cluster", cluster_json(job, hosts)}};
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, host, ranks_here, cores, threads, quota, gpus, budget,
                                   usable, findings)

std::string to_text(const RankFacts& facts) {
  return nlohmann::json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankFacts parse_rank_facts(const std::string& text) {
  return nlohmann::json::parse(text).get<RankFacts>();
}

}  // namespace spillway::cli
