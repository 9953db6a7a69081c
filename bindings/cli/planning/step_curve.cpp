#include "planning/step_curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planning/svg_drawing.h"
#include "spillway/base/error.h"

namespace spillway::cli {

StepCurve::StepCurve(double x, double y) : y_(y) { add_point(x, y); }

void StepCurve::step_to(double x, double y) {
  if (has_column_ && std::floor(x) == std::floor(first_x_)) {
    least_y_ = std::min(least_y_, y);
    most_y_ = std::max(most_y_, y);
  } else {
    end_column();
    has_column_ = true;
    first_x_ = x;
    least_y_ = most_y_ = y;
  }
  last_x_ = x;
  last_y_ = y;
}

std::string StepCurve::finish(double x) {
  end_column();
  add_point(x, y_);
  return std::move(points_);
}

void StepCurve::add_point(double x, double y) {
  points_ += message(" {},{}", svg_number(x), svg_number(y));
}

void StepCurve::end_column() {
  if (!has_column_) return;
  has_column_ = false;
  add_point(first_x_, y_);
  if (least_y_ < std::min(y_, last_y_)) add_point(first_x_, least_y_);
  if (most_y_ > std::max(y_, last_y_)) add_point(last_x_, most_y_);
  add_point(last_x_, last_y_);
  y_ = last_y_;
}

}  // namespace spillway::cli
