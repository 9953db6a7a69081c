#pragma once

#include <string>

namespace spillway::cli {

/// A curve that goes in steps, as points of a polygon in a picture. Of steps within one column of
/// pixels it keeps where the first and the last one are, and the lowest and the highest: four
/// points per column at most, however many steps there are.
class StepCurve {
 public:
  /// It begins at this height.
  StepCurve(double x, double y);

  /// From x on at another height. Steps come from left to right.
  void step_to(double x, double y);

  /// " x,y x,y …" up to x.
  std::string finish(double x);

 private:
  void add_point(double x, double y);
  void end_column();

  std::string points_;
  double y_ = 0.0;  ///< Before the column.
  bool has_column_ = false;
  double first_x_ = 0.0, last_x_ = 0.0;  ///< Of steps in the column.
  double least_y_ = 0.0, most_y_ = 0.0, last_y_ = 0.0;
};

}  // namespace spillway::cli
