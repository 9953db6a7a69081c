#include "wire.h"

#include <algorithm>
#include <cstring>

#include "spillway/base/assert.h"

namespace spillway::transport::mpi {
namespace {

/// MPI counts in an int; smaller ones make what is drained cost little memory.
constexpr Bytes kPiece = 64_MiB;

std::int32_t int_of(Rank rank) { return static_cast<std::int32_t>(rank.value()); }

std::int32_t int_of(Bytes size) { return static_cast<std::int32_t>(size.count()); }

}  // namespace

Letter make_letter(const Envelope& envelope, std::span<const std::byte> bytes) {
  Letter letter(sizeof envelope + bytes.size());
  std::memcpy(letter.data(), &envelope, sizeof envelope);
  std::copy(bytes.begin(), bytes.end(), letter.begin() + sizeof envelope);
  return letter;
}

Wire::Wire(const Shim& shim, const ShimWorld& world, bool is_synchronous, Listener& listener)
    : shim_(shim),
      world_(world),
      is_synchronous_(is_synchronous),
      listener_(listener),
      standing_(kStanding, Letter(sizeof(Envelope) + kMostInside)),
      next_data_tag_(static_cast<std::size_t>(world.ranks)),
      letters_(static_cast<std::size_t>(world.ranks)) {
  for (std::size_t slot = 0; slot < kStanding; ++slot) post_standing(slot);
}

void Wire::post_standing(std::size_t slot) {
  Letter& letter = standing_[slot];
  check_mpi(shim_,
            shim_.receive(slot, Channel::kEnvelopes, kAnyRank, 0, letter.data(),
                          static_cast<std::int32_t>(letter.size())),
            "a receive");
}

std::uint64_t Wire::keep(const Shared& transfer) {
  transfers_.emplace(next_id_, transfer);
  ++transfer->left;
  return next_id_++;
}

/// One that no message to `peer` has that is on its way: the receiver posts them in another order.
std::int32_t Wire::take_data_tag(const Shared& transfer) {
  const Rank peer = transfer->name.peer;
  std::int32_t& next = next_data_tag_[peer.value()];
  for (std::int32_t tried = 0; tried <= world_.most_tag; ++tried) {
    const std::int32_t tag = next;
    next = tag == world_.most_tag ? 0 : tag + 1;
    if (taken_data_tags_.try_emplace({peer, tag}, transfer).second) return tag;
  }
  throw TransportError("more than {} messages are on their way to rank {}", world_.most_tag, peer);
}

void Wire::send(const Name& name, Letter letter, device::DeviceSpan data, bool is_told) {
  const auto transfer = std::make_shared<Transfer>(Transfer{.name = name, .is_told = is_told});
  if (data.size > Bytes()) {
    transfer->data_tag = take_data_tag(transfer);
    Envelope envelope;
    std::memcpy(&envelope, letter.data(), sizeof envelope);
    envelope.data_tag = *transfer->data_tag;
    std::memcpy(letter.data(), &envelope, sizeof envelope);
  }
  transfer->letter = std::move(letter);
  ++letters_[name.peer.value()];
  check_mpi(
      shim_,
      shim_.send(keep(transfer), Channel::kEnvelopes, int_of(name.peer), 0, transfer->letter.data(),
                 static_cast<std::int32_t>(transfer->letter.size()), is_synchronous_ ? 1 : 0),
      "a send");
  if (transfer->data_tag) post_pieces(transfer, data.data, data.size);
}

void Wire::send_note(Rank to, const Envelope& envelope) {
  send({to, {}}, make_letter(envelope), {}, /*is_told=*/false);
}

void Wire::send_leave() {
  has_left_ = true;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(world_.ranks); ++i)
    if (static_cast<std::int32_t>(i) != world_.rank)
      send_note(Rank(i), {.number = letters_[i] + 1, .kind = Envelope::Kind::kLeaving});
}

void Wire::start_moving(Transfer& transfer) {
  transfer.is_moving = true;
  ++moving_;
}

void Wire::note_taken(Rank peer, std::int32_t data_tag) {
  const auto at = taken_data_tags_.find({peer, data_tag});
  // Gone already where the bytes were faster than the note.
  if (at != taken_data_tags_.end()) start_moving(*at->second);
}

void Wire::receive(const DataReceive& data) {
  const bool is_wanted = data.target != nullptr;
  const auto transfer = std::make_shared<Transfer>(
      Transfer{.name = data.name,
               .kind = is_wanted ? Transfer::Kind::kReceive : Transfer::Kind::kDrain,
               .data_tag = data.data_tag});
  start_moving(*transfer);
  if (!has_left_)
    send_note(data.name.peer, {.data_tag = data.data_tag, .kind = Envelope::Kind::kTaking});
  if (is_wanted) {
    post_pieces(transfer, data.target, data.size);
  } else {
    transfer->undrained = data.size;
    drain_piece(transfer);
  }
}

/// All with one tag: MPI keeps their order.
void Wire::post_pieces(const Shared& transfer, std::byte* data, Bytes size) {
  const std::int32_t peer = int_of(transfer->name.peer);
  for (Bytes done; done < size; done += kPiece) {
    const Bytes count = std::min(kPiece, size - done);
    if (transfer->kind == Transfer::Kind::kSend) {
      // Synchronous, so that its end says that the tag is free, and so that MPI keeps no copy.
      check_mpi(shim_,
                shim_.send(keep(transfer), Channel::kData, peer, *transfer->data_tag,
                           data + done.count(), int_of(count), 1),
                "a send of bytes");
    } else {
      check_mpi(shim_,
                shim_.receive(keep(transfer), Channel::kData, peer, *transfer->data_tag,
                              data + done.count(), int_of(count)),
                "a receive of bytes");
    }
  }
}

/// The next piece into the same memory as the one before it.
void Wire::drain_piece(const Shared& transfer) {
  const Bytes count = std::min(kPiece, transfer->undrained);
  transfer->undrained -= count;
  transfer->letter.resize(count.count());
  check_mpi(shim_,
            shim_.receive(keep(transfer), Channel::kData, int_of(transfer->name.peer),
                          *transfer->data_tag, transfer->letter.data(), int_of(count)),
            "a receive of bytes that nobody wants");
}

void Wire::open_letter(const ShimEnd& end) {
  check_mpi(shim_, end.error, "a receive");
  const Letter& letter = standing_[end.id];
  Envelope envelope;
  SPILLWAY_ASSERT(end.bytes >= sizeof envelope);
  std::memcpy(&envelope, letter.data(), sizeof envelope);
  listener_.take_letter(Rank(static_cast<std::uint32_t>(end.peer)), envelope,
                        std::span(letter).first(end.bytes).subspan(sizeof envelope));
  post_standing(end.id);
}

void Wire::end_piece(const ShimEnd& end) {
  const auto at = transfers_.find(end.id);
  SPILLWAY_ASSERT(at != transfers_.end());
  const Shared transfer = std::move(at->second);
  transfers_.erase(at);
  check_mpi(shim_, end.error, "a transfer");
  if (transfer->undrained > Bytes()) drain_piece(transfer);
  if (--transfer->left > 0) return;
  if (transfer->is_moving) --moving_;
  if (transfer->kind == Transfer::Kind::kReceive) {
    listener_.end_receive(transfer->name);
  } else if (transfer->kind == Transfer::Kind::kSend) {
    if (transfer->data_tag) taken_data_tags_.erase({transfer->name.peer, *transfer->data_tag});
    if (transfer->is_told) listener_.end_send(transfer->name);
  }
}

bool Wire::progress() {
  const ShimEnd* ended = nullptr;
  std::int32_t count = 0;
  check_mpi(shim_, shim_.progress(&ended, &count), "its progress");
  const std::vector<ShimEnd> ends(ended, ended + count);
  for (const ShimEnd& end : ends)
    if (end.id < kStanding)
      open_letter(end);
    else
      end_piece(end);
  return !ends.empty();
}

}  // namespace spillway::transport::mpi
