#include "partial_bounds.h"

#include <algorithm>
#include <array>
#include <span>

#include "fluid_groups.h"

namespace spillway::planner {
namespace {

// Cuts that are tried, from the most on, until the program is small enough.
constexpr std::array<std::size_t, 11> kCutCounts{128, 96, 72, 56, 44, 36, 28, 22, 16, 12, 8};
// An operator that takes this share of the time between two cuts gets one at its end, too.
constexpr double kLongShare = 0.5;
// Room for rounding where the prices are evaluated.
constexpr double kRounding = 1e-9;

struct Entry {
  std::uint32_t row;
  double value;
};

std::uint32_t add_row(LinearProgram& program, double least, bool is_equal) {
  program.row_least.push_back(least);
  program.row_is_equal.push_back(is_equal);
  return static_cast<std::uint32_t>(program.rows() - 1);
}

std::uint32_t add_column(LinearProgram& program, double most, std::span<const Entry> entries) {
  program.column_cost.push_back(0.0);
  program.column_most.push_back(most);
  for (const Entry& each : entries) {
    program.entry_row.push_back(each.row);
    program.entry.push_back(each.value);
  }
  program.column_begin.push_back(static_cast<std::uint32_t>(program.entry.size()));
  return static_cast<std::uint32_t>(program.columns() - 1);
}

/// Cuts where most is alive, spread over time and needs.
CutMoments choose_moments(const StepTape& tape, const std::vector<std::uint32_t>& needs,
                          const std::vector<std::uint32_t>& levels, std::size_t count) {
  double all_time = 1e-12;
  double all_needs = 1e-12;
  for (std::size_t op = 0; op < needs.size(); ++op) {
    all_time += seconds(tape.ops[op].time);
    all_needs += needs[op];
  }
  // The rest of the cuts is for the ends of long operators, at which another one may hold most.
  const std::size_t parts = 2 * needs.size() <= count ? needs.size() : count * 3 / 4;
  std::vector<OpIndex> chosen{0};
  double weight = 0.0;
  double due = 0.0;
  for (OpIndex op = 0; op < needs.size(); ++op) {
    const bool begins_part = parts == needs.size() || weight >= due;
    if (begins_part) due = weight + 2.0 / static_cast<double>(parts);
    if (op == 0) continue;
    // The first cut stays at the begin of the step, where repetitions meet.
    if (begins_part || chosen.back() == 0) chosen.push_back(op);
    // A cut tells most where most is alive, so each part is represented by its fullest operator.
    else if (levels[op] > levels[chosen.back()])
      chosen.back() = op;
    weight += seconds(tape.ops[op].time) / all_time + needs[op] / all_needs;
  }
  CutMoments moments;
  const double is_long = kLongShare * all_time / static_cast<double>(count);
  for (const OpIndex op : chosen) {
    moments.push_back(2 * op);
    if (seconds(tape.ops[op].time) >= is_long) moments.push_back(2 * op + 1);
  }
  return moments;
}

/// Columns that the groups ask for, about.
std::size_t size_of(const std::vector<FluidGroup>& groups) {
  std::size_t columns = 0;
  for (const FluidGroup& group : groups) {
    for (const IdleStretch& stretch : group.stretches)
      columns += stretch.visits * (3 + stretch.classes.size());
  }
  return columns;
}

/// Writes the program down, with times in a unit near the shorter ones of the step, because solvers
/// take little for nothing. By the names of bounds.md:
///
///     columns    τ_b (the first ones), T_b and the stocks of it that wait, x_s, e, w_s, r_s, q_s
///     rows       what τ_b must cover (computing_, writing_, reading_) and T_b (due_, released_),
///                what must be away at a cut (memory_), x_s from the one before it (of a stretch)
class FluidProgram {
 public:
  FluidProgram(const StepTape& tape, const std::vector<std::uint32_t>& needs,
               const SwapLimits& limits, const CutMoments& cuts,
               const std::vector<FluidGroup>& groups)
      : count_(static_cast<std::uint32_t>(cuts.size())) {
    const auto page = static_cast<double>(limits.page_size.count());
    double compute = 0.0;
    for (const auto& op : tape.ops) compute += seconds(op.time);
    unit_ = limits.rates.read.seconds_for(page);
    if (compute > 0.0) unit_ = std::min(unit_, compute / static_cast<double>(count_));
    read_time_ = limits.rates.read.seconds_for(page) / unit_;
    write_time_ = limits.rates.write.seconds_for(page) / unit_;
    // What it takes more to move a page while the other direction is busy. A share below a half is
    // slower than one after the other, which a plan can do instead.
    beside_ = std::min(1.0, 1.0 / limits.rates.duplex_share - 1.0);
    compute_.assign(count_, 0.0);
    for (std::uint32_t bucket = 0; bucket < count_; ++bucket) {
      const std::uint64_t end = bucket + 1 < count_ ? cuts[bucket + 1] : 2 * tape.ops.size();
      for (std::uint64_t moment = cuts[bucket]; moment < end; ++moment)
        if (moment % 2 == 0) compute_[bucket] += seconds(tape.ops[moment / 2].time) / unit_;
    }
    // Of a budget that an operator alone exceeds, nothing more is asked than that all else is away.
    for (const std::uint32_t cut : cuts)
      excess_.push_back(std::min(
          0.0, static_cast<double>(needs[cut / 2]) - static_cast<double>(limits.budget_pages)));
    for (const FluidGroup& group : groups) {
      for (const IdleStretch& stretch : group.stretches) {
        for (std::uint32_t s = 0; s < stretch.visits; ++s)
          // Stretches longer than a step meet the same cut several times, once for each of their
          // copies.
          excess_[(stretch.first + s) % count_] += group.pages;
      }
    }
    add_buckets(groups);
    for (const FluidGroup& group : groups) add_group(group);
  }

  bool has_excess() const {
    return std::any_of(excess_.begin(), excess_.end(), [](double pages) { return pages > 0.0; });
  }

  StepBound bound(const LinearSolver& solver, std::size_t most_iterations,
                  const CutMoments& cuts) const {
    const LinearSolver::Solution solution = solver.solve(program_, most_iterations);
    StepBound bound;
    bound.kind = BoundKind::kFluid;
    bound.step_seconds = proven_least(program_, solution.row_prices) * unit_ * (1 - kRounding);
    double read = 0.0;
    double recomputed = 0.0;
    for (const std::uint32_t column : read_columns_) read += solution.columns[column];
    for (const auto& [column, each] : recompute_columns_) {
      recomputed += solution.columns[column];
      bound.recompute_seconds += solution.columns[column] * each * unit_;
    }
    if (recomputed > 0.0) bound.recomputed_share = recomputed / (read + recomputed);
    double most = 0.0;
    for (std::uint32_t bucket = 0; bucket < count_; ++bucket) {
      const double beyond = solution.columns[bucket] - compute_[bucket];
      if (beyond <= most) continue;
      most = beyond;
      bound.from = cuts[bucket] / 2;
      bound.to = bucket + 1 < count_ ? (cuts[bucket + 1] + 1) / 2 : 0;
    }
    return bound;
  }

 private:
  void add_buckets(const std::vector<FluidGroup>& groups) {
    double most = 0.0;  // Nothing takes longer than all that there is, one after the other.
    // Columns need a limit, because the bound that any prices prove multiplies by it (see
    // `proven_least`).
    for (const double each : compute_) most += each;
    for (const FluidGroup& group : groups) {
      for (const IdleStretch& stretch : group.stretches) {
        most += group.pages * (read_time_ + write_time_);
        for (const RecomputeClass& each : stretch.classes)
          most += each.pages * (each.at_return + each.besides.back()) / unit_;
      }
    }
    for (std::uint32_t bucket = 0; bucket < count_; ++bucket) {
      computing_.push_back(add_row(program_, compute_[bucket], false));
      writing_.push_back(add_row(program_, 0.0, false));
      // A link that only does one after the other has a single row: the two would be equal.
      reading_.push_back(beside_ < 1.0 ? add_row(program_, 0.0, false) : writing_.back());
      due_.push_back(add_row(program_, 0.0, false));
      released_.push_back(add_row(program_, 0.0, false));
      // Where all fits nothing has to be away, and a row that always holds only costs time.
      memory_.push_back(excess_[bucket] > 0.0 ? add_row(program_, excess_[bucket], false) : kNoRow);
    }
    for (std::uint32_t bucket = 0; bucket < count_; ++bucket) {
      std::vector<Entry> entries{{computing_[bucket], 1.0}, {writing_[bucket], 1.0}};
      if (beside_ < 1.0) entries.push_back({reading_[bucket], 1.0});
      // The first columns are the times of the buckets, in order: `bound` reads them by their
      // number.
      program_.column_cost[add_column(program_, most, entries)] = 1.0;
    }
    for (std::uint32_t bucket = 0; bucket < count_; ++bucket) {
      // Replays beside those that bring the pages back, and stocks of them: what was done before
      // it was due, and what was done after it could begin.
      add_column(program_, most,
                 std::array<Entry, 3>{Entry{computing_[bucket], -1.0}, Entry{due_[bucket], 1.0},
                                      Entry{released_[bucket], 1.0}});
      if (bucket + 1 == count_) continue;
      add_column(program_, most,
                 std::array<Entry, 2>{Entry{due_[bucket], -1.0}, Entry{due_[bucket + 1], 1.0}});
      add_column(
          program_, most,
          std::array<Entry, 2>{Entry{released_[bucket], 1.0}, Entry{released_[bucket + 1], -1.0}});
    }
  }

  void add_group(const FluidGroup& group) {
    CutVisit next_bucket = group.first_bucket;
    std::vector<std::uint32_t> can_copy;  // Rows that let pages leave without being written.
    for (std::size_t i = 1; !group.has_copy && i < group.stretches.size(); ++i)
      can_copy.push_back(add_row(program_, 0.0, false));
    for (std::size_t i = 0; i < group.stretches.size(); ++i) {
      const IdleStretch& stretch = group.stretches[i];
      // Row s: pages away at visit s are those at the one before, with what left, without what came
      // back. The last one: nothing is away where they are used.
      std::vector<std::uint32_t> rows;
      for (std::uint32_t s = 0; s < stretch.visits + (stretch.is_used ? 1 : 0); ++s)
        rows.push_back(add_row(program_, 0.0, true));
      for (std::uint32_t s = 0; s < stretch.visits; ++s) {
        std::vector<Entry> entries{{rows[s], 1.0}};
        if (s + 1 < rows.size()) entries.push_back({rows[s + 1], -1.0});
        const std::uint32_t memory = memory_[(stretch.first + s) % count_];
        if (memory != kNoRow) entries.push_back({memory, 1.0});
        add_column(program_, group.pages, entries);
      }
      // What has a copy leaves for nothing, at the first cut: later would not be better.
      if (group.has_copy)
        add_column(program_, group.pages, std::array<Entry, 1>{{{rows[0], -1.0}}});
      if (!group.has_copy && i > 0)
        add_column(program_, group.pages,
                   std::array<Entry, 2>{{{rows[0], -1.0}, {can_copy[i - 1], -1.0}}});
      if (!group.has_copy)
        add_writes(group, stretch, next_bucket, rows,
                   {can_copy.begin() + static_cast<std::ptrdiff_t>(i), can_copy.end()});
      // A write for the next stretch may begin where this one ends.
      next_bucket = stretch.first + stretch.visits - 1;
      if (stretch.is_used) add_returns(group, stretch, rows);
    }
  }

  void add_writes(const FluidGroup& group, const IdleStretch& stretch, CutVisit from,
                  const std::vector<std::uint32_t>& rows, std::span<const std::uint32_t> copies) {
    for (CutVisit bucket = from; bucket < stretch.first + stretch.visits - 1; ++bucket) {
      const std::uint32_t s = bucket + 1 > stretch.first ? bucket + 1 - stretch.first : 0;
      std::vector<Entry> entries;
      add_transfer(entries, bucket % count_, write_time_, 0.0);
      for (const std::uint32_t row : copies) entries.push_back({row, 1.0});
      // A copy may be made for a later stretch while the page stays in this one.
      if (!copies.empty()) add_column(program_, group.pages, entries);
      entries.push_back({rows[s], -1.0});
      add_column(program_, group.pages, entries);
    }
  }

  void add_returns(const FluidGroup& group, const IdleStretch& stretch,
                   const std::vector<std::uint32_t>& rows) {
    for (std::uint32_t s = 0; s < stretch.visits; ++s) {
      std::vector<Entry> entries{{rows[s + 1], 1.0}};
      add_transfer(entries, (stretch.first + s) % count_, 0.0, read_time_);
      read_columns_.push_back(add_column(program_, group.pages, entries));
    }
    for (const RecomputeClass& each : stretch.classes) {
      // Rows are of the form at-least, so a limit stands there with its sign changed.
      const std::uint32_t most = add_row(program_, -each.pages, false);
      for (std::uint32_t s = 0; s < each.besides.size(); ++s) {
        const double besides = each.besides[s] / unit_;
        std::vector<Entry> entries{{rows[0], -1.0},
                                   {rows[s + 1], 1.0},
                                   {computing_[stretch.first + s], -each.at_return / unit_},
                                   {most, -1.0}};
        // Nobody knows where in the interval the others run: stocks of time carry what is due from
        // one bucket to the next.
        if (besides > 0.0) {
          entries.push_back({due_[stretch.first + stretch.visits - 1], -besides});
          entries.push_back({released_[each.from], -besides});
        }
        recompute_columns_.emplace_back(add_column(program_, each.pages, entries),
                                        each.at_return / unit_ + besides);
      }
    }
  }

  void add_transfer(std::vector<Entry>& entries, std::uint32_t bucket, double write, double read) {
    if (beside_ == 1.0) {
      entries.push_back({writing_[bucket], -write - read});
      return;
    }
    const double first = write + beside_ * read;
    const double second = beside_ * write + read;
    if (first > 0.0) entries.push_back({writing_[bucket], -first});
    if (second > 0.0) entries.push_back({reading_[bucket], -second});
  }

  static constexpr std::uint32_t kNoRow = static_cast<std::uint32_t>(-1);

  const std::uint32_t count_;
  double unit_ = 1.0;       ///< Seconds.
  double read_time_ = 1.0;  ///< Of a page.
  double write_time_ = 1.0;
  double beside_ = 0.0;  ///< What a transfer costs that runs beside one of the other direction.
  std::vector<double> compute_;
  std::vector<double> excess_;  ///< Per cut: idle pages that must be away.
  LinearProgram program_;
  // Rows per bucket, or per cut at its begin.
  std::vector<std::uint32_t> computing_, writing_, reading_, due_, released_, memory_;
  std::vector<std::uint32_t> read_columns_;
  std::vector<std::pair<std::uint32_t, double>> recompute_columns_;  ///< With the time of a page.
};

}  // namespace

double proven_least(const LinearProgram& program, const std::vector<double>& row_prices) {
  std::vector<double> prices = row_prices;
  // Wider than the solver's numbers: thousands of terms of both signs are summed, and the sum is to
  // be a proof.
  long double least = 0.0L;
  for (std::size_t row = 0; row < program.rows(); ++row) {
    // A negative price would pay for breaking the row. Solvers return some a little below zero, so
    // they are mended instead of refused.
    if (!program.row_is_equal[row]) prices[row] = std::max(prices[row], 0.0);
    least += static_cast<long double>(prices[row]) * program.row_least[row];
  }
  for (std::size_t column = 0; column < program.columns(); ++column) {
    long double reduced = program.column_cost[column];
    for (std::uint32_t i = program.column_begin[column]; i < program.column_begin[column + 1]; ++i)
      reduced -= static_cast<long double>(prices[program.entry_row[i]]) * program.entry[i];
    if (reduced < 0.0L) least += reduced * program.column_most[column];
  }
  return static_cast<double>(least);
}

StepBound bound_fluid(const StepTape& tape, const std::vector<std::uint32_t>& needs,
                      const SwapLimits& limits, const BoundOptions& options) {
  const TouchIntervals touches = find_intervals(tape);
  const std::vector<std::uint32_t> levels = live_pages(tape);
  for (const std::size_t count : kCutCounts) {
    const CutMoments cuts = choose_moments(tape, needs, levels, count);
    const std::vector<FluidGroup> groups = find_groups(tape, touches, cuts, options.most_parents);
    // Fewer cuts give a smaller program and a bound that holds as well, only lower.
    if (size_of(groups) > options.most_columns && count != kCutCounts.back()) continue;
    const FluidProgram program(tape, needs, limits, cuts, groups);
    if (!program.has_excess()) break;
    return program.bound(*options.solver, options.most_iterations, cuts);
  }
  return {};
}

}  // namespace spillway::planner
