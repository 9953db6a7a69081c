#include "occupation.h"

#include <algorithm>
#include <numeric>

namespace spillway::split {

void Occupation::begin(pipeline::TaskId task, TimePoint now) {
  if (!has_begun_) {
    has_begun_ = true;
    first_ = now;
  } else if (not_added_.is_some()) {
    const Duration idle = now - latest_;
    if (task >= not_added_) {
      (has_read_ ? for_reads_ : for_program_) += idle;
    } else if (latest_peer_.is_some()) {
      idle_for_[latest_peer_.value()] += idle;
    }
  }
  latest_ = now;
}

void Occupation::end(TimePoint now) {
  busy_ += now - latest_;
  latest_ = now;
  not_added_ = {};
  latest_peer_ = {};
  has_read_ = false;
}

void Occupation::found_nothing(pipeline::TaskId next) {
  if (!not_added_.is_some()) not_added_ = next;
}

void Occupation::program_has_waited(std::string_view who, Duration time) {
  Reads& reads = reads_[who];
  ++reads.times;
  reads.time += time;
  has_read_ = true;
}

void Occupation::write(runtime::RankFigures& figures) const {
  figures.seconds = seconds(latest_ - first_);
  figures.busy_seconds = seconds(busy_);
  figures.idle_for_reads_seconds = seconds(for_reads_);
  figures.idle_for_program_seconds = seconds(for_program_);
  figures.idle_for_ranks_seconds =
      seconds(std::accumulate(idle_for_.begin(), idle_for_.end(), Duration()));
  const auto most = std::max_element(idle_for_.begin(), idle_for_.end());
  if (*most > Duration()) {
    figures.most_awaited = static_cast<std::uint32_t>(most - idle_for_.begin());
    figures.idle_for_most_awaited_seconds = seconds(*most);
  }
  Duration all{}, longest{};
  for (const auto& [who, reads] : reads_) {
    figures.reads += reads.times;
    all += reads.time;
    if (reads.time < longest) continue;
    longest = reads.time;
    figures.most_reads = reads.times;
    figures.most_read_by = {};
    who.copy(figures.most_read_by.data(), figures.most_read_by.size() - 1);
  }
  figures.reads_seconds = seconds(all);
}

}  // namespace spillway::split
