#include "post_office.h"

#include <algorithm>
#include <mutex>

namespace spillway::transport::nccl {
namespace {

Tag tag_of(std::uint64_t number) { return {Stream::kDevices, number}; }

}  // namespace

PostOffice::PostOffice(Transport& host)
    : host_(host), kept_(std::make_unique<Kept>()), sent_(host.ranks()) {
  kept_->incoming.resize(host.ranks());
  for (std::uint32_t i = 0; i < host.ranks(); ++i) {
    Incoming& from = kept_->incoming[i];
    from.from = Rank(i);
    from.is_over = from.from == host.rank();
    if (!from.is_over) expect(from);
  }
}

PostOffice::~PostOffice() {
  forget_what_has_left();
  if (have_all_sent_last() && kept_->outgoing.empty()) return;
  static auto* const lost = new std::vector<std::unique_ptr<Kept>>;
  static auto* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  lost->push_back(std::move(kept_));
}

void PostOffice::expect(Incoming& from) {
  from.came = host_.receive(from.from, tag_of(from.number++), device::host_span_of(from.letter));
}

void PostOffice::send(Rank to, const Letter& letter) {
  forget_what_has_left();
  auto mine = std::make_unique<Outgoing>(Outgoing{letter, {}});
  mine->left = host_.send(to, tag_of(sent_[to.value()]++), device::host_span_of(mine->letter));
  kept_->outgoing.push_back(std::move(mine));
}

void PostOffice::send_all(Letter::Kind kind) {
  for (std::uint32_t i = 0; i < host_.ranks(); ++i)
    if (Rank(i) != host_.rank()) send(Rank(i), {.kind = kind});
}

void PostOffice::forget_what_has_left() {
  std::erase_if(kept_->outgoing, [](const auto& one) { return one->left.is_done(); });
}

std::optional<std::pair<Rank, Letter>> PostOffice::take() {
  for (Incoming& from : kept_->incoming) {
    if (from.is_over || !from.came.is_done()) continue;
    const device::Outcome outcome = from.came.wait();
    if (!outcome.succeeded()) throw TransportError("{}", outcome.error);
    const Letter letter = from.letter;
    from.is_over = letter.kind == Letter::Kind::kLast;
    if (!from.is_over) expect(from);
    return std::pair(from.from, letter);
  }
  return std::nullopt;
}

bool PostOffice::have_all_sent_last() const { return without_last().empty(); }

std::vector<Rank> PostOffice::without_last() const {
  std::vector<Rank> ranks;
  for (const Incoming& from : kept_->incoming)
    if (!from.is_over) ranks.push_back(from.from);
  return ranks;
}

}  // namespace spillway::transport::nccl
