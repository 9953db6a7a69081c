#include "spillway/transport/nccl/nccl_transport.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "engine.h"
#include "spillway/base/assert.h"

namespace spillway::transport {
namespace {

using nccl::Operation;

struct ElementFacts {
  nccl::DataType type;
  Bytes size;
};

ElementFacts facts_of(SumElement element) {
  switch (element) {
    case SumElement::kFloat32: return {nccl::DataType::kFloat32, Bytes(4)};
    case SumElement::kFloat64: return {nccl::DataType::kFloat64, Bytes(8)};
    case SumElement::kFloat16: return {nccl::DataType::kFloat16, Bytes(2)};
    case SumElement::kBfloat16: return {nccl::DataType::kBfloat16, Bytes(2)};
    case SumElement::kInt32: return {nccl::DataType::kInt32, Bytes(4)};
    case SumElement::kInt64: return {nccl::DataType::kInt64, Bytes(8)};
  }
  throw Error("no kind of number has the code {}", static_cast<int>(element));
}

/// One of the groups of an engine.
class Group final : public NcclGroup {
 public:
  Group(nccl::Engine& engine, std::uint32_t number, std::vector<Rank> members, Rank self)
      : engine_(engine),
        number_(number),
        members_(std::move(members)),
        rank_(static_cast<std::uint32_t>(std::find(members_.begin(), members_.end(), self) -
                                         members_.begin())) {}

  Rank rank() const override { return rank_; }
  std::uint32_t ranks() const override { return static_cast<std::uint32_t>(members_.size()); }

  device::Event all_reduce(std::uint64_t number, device::DeviceSpan values, SumElement element,
                           const device::Event& ready) override {
    return add(Operation::Kind::kAllReduce, "all-reduce", number, values, values, facts_of(element),
               ready);
  }

  device::Event reduce_scatter(std::uint64_t number, device::DeviceSpan from, device::DeviceSpan to,
                               SumElement element, const device::Event& ready) override {
    check_parts(from, to, "reduce-scatter");
    return add(Operation::Kind::kReduceScatter, "reduce-scatter", number, from, to,
               facts_of(element), ready);
  }

  device::Event all_gather(std::uint64_t number, device::DeviceSpan from, device::DeviceSpan to,
                           const device::Event& ready) override {
    check_parts(to, from, "all-gather");
    return add(Operation::Kind::kAllGather, "all-gather", number, from, to, kBytes, ready);
  }

  device::Event broadcast(std::uint64_t number, Rank root, device::DeviceSpan bytes,
                          const device::Event& ready) override {
    if (!root.is_some() || root.value() >= ranks())
      throw Error("rank {} is none of the {} ranks of a group", root, ranks());
    return add(Operation::Kind::kBroadcast, "broadcast", number, bytes, bytes, kBytes, ready,
               static_cast<int>(root.value()));
  }

 private:
  static constexpr ElementFacts kBytes{nccl::DataType::kUint8, Bytes(1)};

  void check_parts(device::DeviceSpan all, device::DeviceSpan part, const char* what) const {
    if (all.size.count() != part.size.count() * members_.size())
      throw Error("{} of {} ranks has {} bytes in all and {} of each", what, members_.size(),
                  all.size.count(), part.size.count());
  }

  device::Event add(Operation::Kind kind, const char* what, std::uint64_t number,
                    device::DeviceSpan from, device::DeviceSpan to, const ElementFacts& element,
                    const device::Event& ready, int root = 0) {
    auto operation = std::make_shared<Operation>();
    operation->kind = kind;
    operation->circle = {number_, Rank()};
    operation->tag = {Stream::kSums, number};
    operation->from = from;
    operation->to = to;
    operation->type = element.type;
    operation->element = element.size;
    operation->root = root;
    operation->ready = ready;
    operation->name = message("{} {} of a group of {} ranks", what, number, members_.size());
    for (const device::DeviceSpan& span : {from, to}) {
      if (span.device != engine_.device())
        throw Error("{} is on {}, and the group works on {}", operation->name, span.device,
                    engine_.device());
      if (span.size.count() % element.size.count() != 0)
        throw Error("{} has {} bytes, which are no whole numbers of {}", operation->name,
                    span.size.count(), element.size);
    }
    return engine_.add(std::move(operation));
  }

  nccl::Engine& engine_;
  const std::uint32_t number_;
  const std::vector<Rank> members_;
  const Rank rank_;
};

class NcclRank final : public NcclTransport {
 public:
  NcclRank(Transport& host, device::Device& device, const NcclOptions& options)
      : NcclTransport(host.rank(), host.ranks()), host_(host), engine_(host, device, options) {}

  std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream) override {
    return engine_.make_notifier(stream);
  }
  [[noreturn]] void abort(const std::string& reason) override {
    host_.abort(reason);
    std::abort();  // Not reached.
  }

  std::optional<device::Event> moment_of(const device::Event& event) const override {
    const auto* const mine = dynamic_cast<const nccl::Message*>(event.state().get());
    return mine == nullptr ? std::nullopt : mine->moment();
  }

  std::unique_ptr<NcclGroup> make_groups(const std::vector<std::vector<Rank>>& groups) override {
    std::set<Rank> seen;
    for (const auto& group : groups)
      for (const Rank member : group) {
        if (!member.is_some() || member.value() >= ranks())
          throw Error("rank {} of a group is none of {} ranks", member, ranks());
        if (!seen.insert(member).second) throw Error("rank {} is twice in groups", member);
      }
    const std::uint32_t number = engine_.make_groups(groups);
    if (number == 0) return nullptr;
    const auto mine = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return std::find(group.begin(), group.end(), rank()) != group.end();
    });
    return std::make_unique<Group>(engine_, number, *mine, rank());
  }

 private:
  device::Event do_send(Rank to, Tag tag, device::DeviceSpan bytes) override {
    return do_send_ready(to, tag, bytes, device::Event());
  }
  device::Event do_receive(Rank from, Tag tag, device::DeviceSpan bytes) override {
    return do_receive_ready(from, tag, bytes, device::Event());
  }

  device::Event do_send_ready(Rank to, Tag tag, device::DeviceSpan bytes,
                              const device::Event& ready) override {
    if (bytes.device.is_host()) return host_.send(to, tag, bytes);
    auto operation = operation_of(Operation::Kind::kSend, to, tag, bytes, ready);
    operation->from = bytes;
    operation->name = message("{} from rank {} to rank {}", tag, rank(), to);
    return engine_.add(std::move(operation));
  }
  device::Event do_receive_ready(Rank from, Tag tag, device::DeviceSpan bytes,
                                 const device::Event& ready) override {
    if (bytes.device.is_host()) return host_.receive(from, tag, bytes);
    auto operation = operation_of(Operation::Kind::kReceive, from, tag, bytes, ready);
    operation->to = bytes;
    operation->name = message("{} from rank {} to rank {}", tag, from, rank());
    return engine_.add(std::move(operation));
  }

  std::shared_ptr<Operation> operation_of(Operation::Kind kind, Rank peer, Tag tag,
                                          const device::DeviceSpan& bytes,
                                          const device::Event& ready) const {
    if (bytes.device != engine_.device())
      throw UnsupportedError("{} is on {}, and NCCL works on {} for rank {}", tag, bytes.device,
                             engine_.device(), rank());
    auto operation = std::make_shared<Operation>();
    operation->kind = kind;
    operation->circle = {0, peer};
    operation->tag = tag;
    operation->ready = ready;
    return operation;
  }

  Transport& host_;
  nccl::Engine engine_;
};

void check_host(const device::DeviceSpan& bytes, const device::Event& ready) {
  // Nothing on the host waits for a device by itself.
  if (bytes.device.is_host() && !ready.is_done())
    throw Error("a message of the host is sent once its bytes are ready");
}

}  // namespace

Bytes size_of(SumElement element) { return facts_of(element).size; }

device::Event NcclTransport::send(Rank to, Tag tag, device::DeviceSpan bytes,
                                  const device::Event& ready) {
  check_peer(to, tag);
  check_host(bytes, ready);
  SPILLWAY_ASSERT(bytes.size == Bytes() || bytes.data != nullptr);
  return do_send_ready(to, tag, bytes, ready);
}

device::Event NcclTransport::receive(Rank from, Tag tag, device::DeviceSpan bytes,
                                     const device::Event& ready) {
  check_peer(from, tag);
  check_host(bytes, ready);
  SPILLWAY_ASSERT(bytes.size == Bytes() || bytes.data != nullptr);
  return do_receive_ready(from, tag, bytes, ready);
}

std::unique_ptr<NcclTransport> make_nccl_transport(Transport& host, device::Device& device,
                                                   const NcclOptions& options) {
  return std::make_unique<NcclRank>(host, device, options);
}

}  // namespace spillway::transport
