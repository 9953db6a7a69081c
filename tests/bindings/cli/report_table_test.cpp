#include "planning/report_table.h"

#include <gtest/gtest.h>

namespace spillway::cli {
namespace {

using nlohmann::json;

struct Row {
  std::string who;
  double taken = 0.0;
  Bytes size;
  bool is_there = true;

  bool is_possible() const { return is_there; }
};

Table table_of(std::span<const Row> rows) {
  return {rows.size(),
          {{"who", "name", of(rows, &Row::who)},
           {"", "is_possible", of(rows, &Row::is_possible)},
           {"time", "seconds", if_possible(rows, &Row::taken, Figure::duration)},
           {"size", "", if_possible(rows, &Row::size)},
           {"row", "", std::identity()}}};
}

const std::vector<Row> kRows{{"first", 0.5, 3_MiB}, {"…", 0.0, Bytes(), false}, {"3", 2.0, 1_GiB}};

TEST(ReportTable, ShowsFiguresUnderTheirTitles) {
  EXPECT_EQ(table_text(table_of(kRows)), "who      time      size  row\n"
                                         "first  500 ms  3.00 MiB    0\n"
                                         "…           -         -    1\n"
                                         "3      2.00 s  1.00 GiB    2\n");
}

TEST(ReportTable, ShowsChosenColumnsInTheirOrderAndTheFirstOfManyRows) {
  EXPECT_EQ(table_text(table_of(kRows), {"row", "who"}, 2), "row    who\n"
                                                            "0    first\n"
                                                            "1        …\n"
                                                            "and 1 more; --json tells all\n");
}

TEST(ReportTable, TellsProgramsTheValuesAndLeavesOutWhatIsNot) {
  EXPECT_EQ(json::parse(table_json(table_of(kRows)).dump()),
            json::parse(R"([{"name": "first", "is_possible": true, "seconds": 0.5},
                            {"name": "…", "is_possible": false},
                            {"name": "3", "is_possible": true, "seconds": 2.0}])"));
  EXPECT_EQ(row_json(table_of(kRows), 1).dump(), R"({"name":"…","is_possible":false})");
}

TEST(RatioText, IsADashWhereThereIsNothingToDivideBy) {
  EXPECT_EQ(ratio_text(3.0, 2.0), "1.50");
  EXPECT_EQ(ratio_text(3.0, 0.0), "-");
}

}  // namespace
}  // namespace spillway::cli
