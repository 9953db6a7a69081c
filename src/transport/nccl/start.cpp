#include "start.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::transport::nccl {
namespace {

// Letters of later count from 0 on.
constexpr Tag kHere{Stream::kDevices, 1ULL << 62U};
constexpr Tag kAnswer{Stream::kDevices, kHere.number + 1};
constexpr Tag kFirstShared{Stream::kDevices, kHere.number + 2};
constexpr Rank kFirst(0);

struct Text {
  char bytes[1000];

  void set(const std::string& text) { std::snprintf(bytes, sizeof bytes, "%s", text.c_str()); }
};

/// What a rank has.
struct Here {
  Text refusal;  ///< Why it cannot take part; empty: it can.
  Text machine;  ///< No two machines have one,
  Text gpu;      ///< and no two GPUs of one; empty: unknown.
  int version = 0;
};

struct Answer {
  enum class Kind : std::uint8_t { kBegin, kUnsupported, kConfig, kTransport } kind = Kind::kBegin;
  Text why;
  UniqueId id;
};

std::string machine() {
  // As NCCL tells machines apart: names may be equal.
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Here here(const device::Device& device, const Library& library) {
  Here mine{};
  mine.version = library.version;
  mine.machine.set(machine());
  if (!library.reason.empty()) {
    mine.refusal.set(library.reason);
  } else if (const auto gpu = device::cuda_facts_of(device.id())) {
    mine.gpu.set(gpu->bus_address);
  } else {
    const std::string reason = device::cuda_backend().probe().reason;
    mine.refusal.set(spillway::message("{} is no GPU, and NCCL serves these only{}{}", device.id(),
                                       reason.empty() ? "" : ": ", reason));
  }
  return mine;
}

/// Waits for messages; names who is late.
void wait_for(Transport& host, Notifier& notifier, const std::vector<device::Event>& events,
              const std::vector<Rank>& peers, Duration limit, const char* what) {
  const TimePoint latest = SteadyClock().now() + limit;
  for (std::size_t i = 0; i < events.size(); ++i) {
    while (!events[i].is_done())
      if (!notifier.wait(latest) && !events[i].is_done())
        throw TransportError("rank {} did not come to {} within {} s", peers[i], what,
                             seconds(limit));
    const device::Outcome outcome = events[i].wait();
    if (!outcome.succeeded())
      throw TransportError("rank {} is lost to rank {} at {}: {}", peers[i], host.rank(), what,
                           outcome.error);
  }
}

/// What keeps the ranks from beginning, given what each of them has.
Answer evaluate(const std::vector<Here>& all) {
  Answer answer{};
  const auto refuse = [&](Answer::Kind kind, const std::string& why) {
    answer.kind = kind;
    answer.why.set(why);
    return answer;
  };
  for (std::size_t i = 0; i < all.size(); ++i)
    if (const std::string why = all[i].refusal.bytes; !why.empty())
      return refuse(Answer::Kind::kUnsupported, spillway::message("rank {}: {}", i, why));
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].version != all[0].version)
      return refuse(
          Answer::Kind::kUnsupported,
          spillway::message("rank 0 has NCCL {} and rank {} has NCCL {}: all need the same one",
                            release_of(all[0].version), i, release_of(all[i].version)));
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) {
      const std::string gpu = all[i].gpu.bytes;
      if (gpu.empty() || gpu != all[k].gpu.bytes ||
          std::string(all[i].machine.bytes) != all[k].machine.bytes)
        continue;
      return refuse(
          Answer::Kind::kConfig,
          spillway::message("ranks {} and {} have the same GPU ({}), and each rank needs one of "
                            "its own: start as many ranks as there are GPUs, and give each "
                            "another one (CUDA_VISIBLE_DEVICES)",
                            k, i, gpu));
    }
  return answer;
}

void obey(const Answer& answer) {
  const std::string why = answer.why.bytes;
  switch (answer.kind) {
    case Answer::Kind::kBegin: return;
    case Answer::Kind::kUnsupported: throw UnsupportedError("{}", why);
    case Answer::Kind::kConfig: throw ConfigError("{}", why);
    case Answer::Kind::kTransport: throw TransportError("{}", why);
  }
}

/// Of the first rank: gathers, judges and answers.
Answer lead_start(Transport& host, const Here& mine, const Library& library, Duration limit) {
  const auto notifier = host.make_notifier(Stream::kDevices);
  // The host transport has this memory for ever where somebody is missing.
  auto all = std::make_unique<std::vector<Here>>(host.ranks());
  (*all)[0] = mine;
  std::vector<Rank> peers;
  std::vector<device::Event> events;
  for (std::uint32_t i = 1; i < host.ranks(); ++i) {
    peers.emplace_back(i);
    events.push_back(host.receive(Rank(i), kHere, device::host_span_of((*all)[i])));
  }
  auto answer = std::make_unique<Answer>();
  try {
    wait_for(host, *notifier, events, peers, limit, "the start of NCCL");
    *answer = evaluate(*all);
    if (answer->kind == Answer::Kind::kBegin) {
      const Result result = library.call.ncclGetUniqueId(&answer->id);
      if (result != Result::kSuccess)
        throw TransportError("NCCL {} gives no name to the job: {}", release_of(library.version),
                             library.call.ncclGetErrorString(result));
    }
  } catch (const TransportError& error) {
    answer->kind = Answer::Kind::kTransport;
    answer->why.set(error.what());
    static_cast<void>(all.release());
  }
  events.clear();
  for (const Rank peer : peers)
    events.push_back(host.send(peer, kAnswer, device::host_span_of(*answer)));
  // The host transport has this memory for ever, too, where an answer is not taken.
  const Answer& given = *answer.release();
  if (given.kind == Answer::Kind::kTransport) return given;
  wait_for(host, *notifier, events, peers, limit, "the start of NCCL");
  const std::unique_ptr<const Answer> taken(&given);
  return given;
}

}  // namespace

UniqueId agree_on_start(Transport& host, const device::Device& device, const Library& library,
                        const NcclOptions& options) {
  auto mine = std::make_unique<Here>(here(device, library));
  if (host.rank() == kFirst) {
    const Answer answer = lead_start(host, *mine, library, options.start_limit);
    obey(answer);
    return answer.id;
  }
  const auto notifier = host.make_notifier(Stream::kDevices);
  auto answer = std::make_unique<Answer>();
  const std::vector<device::Event> events{
      host.send(kFirst, kHere, device::host_span_of(*mine)),
      host.receive(kFirst, kAnswer, device::host_span_of(*answer))};
  try {
    // The first one may have to wait for others before.
    wait_for(host, *notifier, events, {kFirst, kFirst}, 2 * options.start_limit,
             "the start of NCCL");
  } catch (const TransportError&) {
    static_cast<void>(mine.release());
    static_cast<void>(answer.release());
    throw;
  }
  obey(*answer);
  return answer->id;
}

UniqueId share(Transport& host, const std::vector<Rank>& ranks, std::uint32_t number,
               const UniqueId& id, Duration limit) {
  const Tag tag{kFirstShared.stream, kFirstShared.number + number};
  const auto notifier = host.make_notifier(Stream::kDevices);
  auto shared = std::make_unique<UniqueId>(id);
  std::vector<Rank> peers;
  std::vector<device::Event> events;
  for (const Rank rank : ranks) {
    if (rank == host.rank()) continue;
    if (host.rank() == ranks.front()) {
      peers.push_back(rank);
      events.push_back(host.send(rank, tag, device::host_span_of(*shared)));
    } else if (rank == ranks.front()) {
      peers.push_back(rank);
      events.push_back(host.receive(rank, tag, device::host_span_of(*shared)));
    }
  }
  try {
    wait_for(host, *notifier, events, peers, limit, "the start of the groups of NCCL");
  } catch (const TransportError&) {
    static_cast<void>(shared.release());
    throw;
  }
  return *shared;
}

}  // namespace spillway::transport::nccl
