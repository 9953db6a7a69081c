#include "downsets.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace spillway::layer_order {
namespace {

using Words = std::vector<std::uint64_t>;

bool has_unit(const Words& bits, std::uint32_t unit) {
  return (bits[unit / 64] >> unit % 64 & 1U) != 0;
}

/// Units that continue a downset where not all are kept: enough to choose from, and no square of
/// the width of the graph.
constexpr std::size_t kMostContinued = 64;

/// A downset while those of its size are collected.
struct Entry {
  Words bits;
  double crossing = 0.0;
  std::uint64_t key = 0;               ///< The same for the same units.
  std::size_t from = 0;                ///< The one before, of which it has one unit more.
  std::uint32_t unit = 0;              ///< That one.
  bool is_on_order = false;            ///< One of the orders passes through it.
  std::vector<std::uint32_t> ready{};  ///< Units that may come next; found for those that stay.
};

std::uint64_t key_of(std::uint32_t unit) {
  // The mixing of SplitMix64: sums of spread numbers seldom meet, and those that do are told apart
  // by their bits.
  std::uint64_t mixed = (unit + std::uint64_t{1}) * 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebULL;
  return mixed ^ mixed >> 31;
}

/// Makes the downsets of one size after the other.
class LevelSearch {
 public:
  LevelSearch(const UnitGraph& graph, const std::vector<UnitOrder>& orders)
      : graph_(graph), orders_(orders), order_keys_(orders.size(), 0) {
    Entry empty;
    empty.bits.resize((graph.units() + 63) / 64);
    empty.is_on_order = true;
    for (std::uint32_t unit = 0; unit < graph.units(); ++unit)
      if (graph.inputs[unit].empty()) empty.ready.push_back(unit);
    level_.push_back(std::move(empty));
  }

  const std::vector<Entry>& level() const { return level_; }

  /// All with one unit more; false where there are more than `most`.
  bool grow_all(std::size_t most) {
    begin_next();
    for (std::size_t from = 0; from < level_.size(); ++from)
      for (const std::uint32_t unit : level_[from].ready) {
        add(from, unit);
        // Half of all is no use: a search over them would be exact over nothing.
        if (next_.size() > most) return false;
      }
    end_next();
    return true;
  }

  /// Those that the orders pass through, and the narrowest of the others.
  void grow_some(std::size_t most) {
    const std::uint32_t size = size_;
    begin_next();
    for (std::size_t from = 0; from < level_.size(); ++from) {
      const Entry& entry = level_[from];
      // The last ones became ready last, and go on where the set has grown.
      const std::size_t known = entry.ready.size();
      for (std::size_t i = known - std::min(known, kMostContinued); i < known; ++i)
        add(from, entry.ready[i]);
      // The orders keep their way, also where a narrower set would take their place.
      if (!entry.is_on_order) continue;
      for (const UnitOrder& order : orders_) {
        const std::uint32_t unit = order.units[size];
        if (std::find(entry.ready.begin(), entry.ready.end(), unit) != entry.ready.end())
          add(from, unit);
      }
    }
    std::stable_sort(next_.begin(), next_.end(), [](const Entry& one, const Entry& other) {
      if (one.is_on_order != other.is_on_order) return one.is_on_order;
      return one.crossing < other.crossing;
    });
    std::size_t kept = std::min(most, next_.size());
    // So the result is never worse than the best of the orders.
    while (kept < next_.size() && next_[kept].is_on_order) ++kept;
    next_.resize(kept);
    end_next();
  }

 private:
  void begin_next() {
    next_.clear();
    seen_.clear();
    for (std::size_t i = 0; i < orders_.size(); ++i)
      // Keys are sums without carry, so a unit more is one operation, in any order of units.
      order_keys_[i] ^= key_of(orders_[i].units[size_]);
    ++size_;
  }

  void end_next() {
    for (Entry& entry : next_) {
      for (const std::uint32_t each : level_[entry.from].ready)
        if (each != entry.unit) entry.ready.push_back(each);
      for (const std::uint32_t reader : graph_.readers[entry.unit])
        if (has_all(entry.bits, graph_.inputs[reader])) entry.ready.push_back(reader);
    }
    level_.swap(next_);
  }

  static bool has_all(const Words& bits, const std::vector<std::uint32_t>& units) {
    return std::all_of(units.begin(), units.end(),
                       [&](std::uint32_t unit) { return has_unit(bits, unit); });
  }

  void add(std::size_t from, std::uint32_t unit) {
    Entry entry;
    entry.bits = level_[from].bits;
    entry.bits[unit / 64] |= std::uint64_t{1} << unit % 64;
    entry.key = level_[from].key ^ key_of(unit);
    std::uint64_t place = entry.key;
    for (auto found = seen_.find(place); found != seen_.end(); found = seen_.find(++place))
      // Several ways lead to a downset, which counts once. Keys may collide, bits do not.
      if (next_[found->second].bits == entry.bits) return;
    seen_.emplace(place, next_.size());
    entry.from = from;
    entry.unit = unit;
    entry.crossing = level_[from].crossing;
    for (const std::uint32_t tensor : graph_.made[unit])
      entry.crossing += graph_.tensors[tensor].bytes;
    for (const UnitInput& input : graph_.read[unit]) {
      const UnitTensor& tensor = graph_.tensors[input.tensor];
      // All that read it are inside now.
      if (has_all(entry.bits, tensor.readers)) entry.crossing -= tensor.bytes;
    }
    entry.is_on_order =
        std::find(order_keys_.begin(), order_keys_.end(), entry.key) != order_keys_.end();
    next_.push_back(std::move(entry));
  }

  const UnitGraph& graph_;
  const std::vector<UnitOrder>& orders_;
  std::vector<std::uint64_t> order_keys_;  ///< Of what each order has run at the next size.
  std::uint32_t size_ = 0;
  std::vector<Entry> level_;
  std::vector<Entry> next_;
  std::unordered_map<std::uint64_t, std::size_t> seen_;  ///< Keys of `next_`, to places in it.
};

}  // namespace

Downsets::Downsets(const UnitGraph& graph, const std::vector<UnitOrder>& orders, std::uint32_t most)
    : words_((graph.units() + 63) / 64) {
  are_all_ = collect_all(graph, orders, most);
  if (!are_all_) collect_some(graph, orders, std::max<std::size_t>(1, most / (graph.units() + 1)));
}

bool Downsets::collect_all(const UnitGraph& graph, const std::vector<UnitOrder>& orders,
                           std::size_t most) {
  LevelSearch search(graph, orders);
  keep(search.level());
  for (std::uint32_t size = 0; size < graph.units(); ++size) {
    // What the smaller sizes have left.
    if (!search.grow_all(most - std::min<std::size_t>(most, count()))) return false;
    keep(search.level());
  }
  return true;
}

void Downsets::collect_some(const UnitGraph& graph, const std::vector<UnitOrder>& orders,
                            std::size_t most_of_size) {
  bits_.clear();
  size_.clear();
  crossing_.clear();
  LevelSearch search(graph, orders);
  keep(search.level());
  for (std::uint32_t size = 0; size < graph.units(); ++size) {
    search.grow_some(most_of_size);
    keep(search.level());
  }
}

template <typename Entries>
void Downsets::keep(const Entries& entries) {
  const std::uint32_t size = size_.empty() ? 0 : size_.back() + 1;
  for (const auto& entry : entries) {
    bits_.insert(bits_.end(), entry.bits.begin(), entry.bits.end());
    size_.push_back(size);
    crossing_.push_back(entry.crossing);
  }
}

std::vector<std::uint32_t> Downsets::between(std::uint32_t small, std::uint32_t large) const {
  std::vector<std::uint32_t> units;
  const std::uint64_t* one = words_of(small);
  const std::uint64_t* other = words_of(large);
  for (std::uint32_t i = 0; i < words_; ++i)
    for (std::uint64_t left = other[i] & ~one[i]; left != 0; left &= left - 1)
      units.push_back(64 * i + static_cast<std::uint32_t>(std::countr_zero(left)));
  return units;
}

}  // namespace spillway::layer_order
