#include "spillway/transport/group.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

namespace spillway::transport {
namespace {

class Group final : public Transport {
 public:
  Group(Transport& parent, Rank self, std::vector<Rank> members)
      : Transport(self, static_cast<std::uint32_t>(members.size())),
        parent_(parent),
        members_(std::move(members)) {}

  std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream) override {
    return parent_.make_notifier(stream);
  }
  [[noreturn]] void abort(const std::string& reason) override {
    parent_.abort(reason);
    std::abort();  // Not reached.
  }

 private:
  device::Event do_send(Rank to, Tag tag, device::DeviceSpan bytes) override {
    return parent_.send(members_[to.value()], tag, bytes);
  }
  device::Event do_receive(Rank from, Tag tag, device::DeviceSpan bytes) override {
    return parent_.receive(members_[from.value()], tag, bytes);
  }

  Transport& parent_;
  const std::vector<Rank> members_;
};

}  // namespace

std::unique_ptr<Transport> make_group(Transport& parent, std::vector<Rank> members) {
  std::set<Rank> seen;
  for (const Rank member : members) {
    if (!member.is_some() || member.value() >= parent.ranks())
      throw Error("rank {} of a group is none of {} ranks", member, parent.ranks());
    if (!seen.insert(member).second) throw Error("rank {} is twice in a group", member);
  }
  const auto self = std::find(members.begin(), members.end(), parent.rank());
  if (self == members.end()) throw Error("rank {} is not in its group", parent.rank());
  const Rank rank(static_cast<std::uint32_t>(self - members.begin()));
  return std::make_unique<Group>(parent, rank, std::move(members));
}

}  // namespace spillway::transport
