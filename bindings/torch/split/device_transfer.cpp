#include "device_transfer.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/split/device_turn.h"

namespace spillway::split {
namespace {

/// Other numbers than those of whole messages.
transport::Tag tag_of_piece(transport::Tag whole, std::uint64_t piece) {
  if (piece >> 24 != 0)
    throw Error(
        "a message between GPUs has more than {} pieces: a larger --min-storage makes fewer",
        std::uint64_t{1} << 24);
  SPILLWAY_ASSERT(whole.number >> 39 == 0);
  return {whole.stream, std::uint64_t{1} << 63 | whole.number << 24 | piece};
}

}  // namespace

DeviceMessages::Transfer::Transfer(DeviceMessages& all, Rank peer_in_job, transport::Tag tag,
                                   bool sends, c10::Storage storage, c10::Device device, Bytes size)
    : all_(all),
      peer_(peer_in_job),
      tag_(tag),
      sends_(sends),
      device_(device),
      size_(size.count()),
      is_in_pieces_(all.room_for(size) > Bytes()),
      storage_(std::move(storage)) {
  if (is_in_pieces_ && sends_) all_.begin_reading(storage_);
  is_in_pieces_ ? begin_pieces() : begin_whole();
}

DeviceMessages::Transfer::~Transfer() {
  if (is_in_pieces_ && sends_ && begun_ < size_) all_.end_reading(storage_);
}

void DeviceMessages::Transfer::begin_whole() {
  if (!storage_) storage_ = made_storage(size_, device_);
  device::Event event = all_.note(storage_, all_.begin(peer_, tag_, sends_, storage_), !sends_);
  under_way_.push_back({0, storage_, std::move(event)});
  begun_ = size_;
}

/// The small storage of a piece that has ended is free: what uses its memory next comes behind the
/// copies on the default stream.
void DeviceMessages::Transfer::begin_pieces() {
  const std::size_t most = all_.piece().count();
  while (begun_ < size_ && under_way_.size() < kPieces) {
    const std::size_t size = std::min(most, size_ - begun_);
    c10::Storage bytes =
        sends_ ? all_.devices_.copy_of(storage_, begun_, size) : made_storage(size, device_);
    device::Event event = all_.begin(peer_, tag_of_piece(tag_, begun_ / most), sends_, bytes);
    under_way_.push_back({begun_, std::move(bytes), std::move(event)});
    begun_ += size;
    if (sends_ && begun_ == size_) all_.end_reading(storage_);
  }
}

std::optional<device::Outcome> DeviceMessages::Transfer::advance() {
  for (auto piece = under_way_.begin(); piece != under_way_.end();) {
    if (!piece->event.is_done()) {
      ++piece;
      continue;
    }
    device::Outcome outcome = piece->event.wait();
    if (!outcome.succeeded()) return outcome;
    if (is_in_pieces_ && !sends_) take(*piece);
    piece = under_way_.erase(piece);
  }
  begin_pieces();
  if (!under_way_.empty()) return std::nullopt;
  return device::Outcome();
}

/// The whole gets its memory with the first piece: before, other operators may need that room.
void DeviceMessages::Transfer::take(const Piece& piece) {
  const DeviceTurn turn;
  if (!storage_) storage_ = made_storage(size_, device_);
  all_.devices_.copy_part(storage_, piece.begin, piece.bytes, 0, piece.bytes.nbytes());
}

bool DeviceMessages::Transfer::may_be_used() const {
  if (is_in_pieces_) return begun_ == size_ && under_way_.empty();
  return under_way_.empty() || all_.has_begun(under_way_.front().event);
}

}  // namespace spillway::split
