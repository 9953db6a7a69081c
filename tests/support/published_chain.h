#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace spillway {

/// A published profile of layers, merged to a chain where one tensor leads on.
class PublishedChain {
 public:
  struct Block {
    double forward = 0.0;  // Milliseconds.
    double backward = 0.0;
    double output = 0.0;  // Bytes.
    double all = 0.0;
    double parameters = 0.0;
  };

  explicit PublishedChain(const std::string& file) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) read(line);
    std::vector<int> order = sorted();
    std::map<int, std::size_t> place;
    for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    blocks.emplace_back();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Block& node = nodes_[order[i]];
      Block& block = blocks.back();
      block.forward += node.forward;
      block.backward += node.backward;
      block.all += node.all;
      block.parameters += node.parameters;
      nodes.push_back(node);
      readers.emplace_back();
      for (const int to : next_[order[i]]) readers.back().push_back(place[to]);
      std::vector<int> crossing;
      for (std::size_t from = 0; from <= i; ++from)
        for (const int to : next_[order[from]])
          if (place[to] > i && (crossing.empty() || crossing.back() != order[from]))
            crossing.push_back(order[from]);
      if (crossing.size() > 1) continue;
      block.output = nodes_[crossing.empty() ? order[i] : crossing.front()].all;
      if (i + 1 < order.size()) blocks.emplace_back();
    }
  }

  std::vector<Block> blocks;
  std::vector<Block> nodes;  ///< Before merging, in the order in which they run.
  std::vector<std::vector<std::size_t>> readers;  ///< Of the output of each node, later ones.

 private:
  static double number(const std::string& line, const std::string& key) {
    std::string text = line.substr(line.find(key + "=") + key.size() + 1);
    double sum = 0.0;
    // A list in brackets counts as its sum.
    for (char& letter : text)
      if (letter == '[') letter = ' ';
    std::istringstream in(text.substr(0, text.find(']')));
    double each = 0.0;
    char comma = 0;
    while (in >> each) {
      sum += each;
      if (line[line.find(key + "=") + key.size() + 1] != '[' || !(in >> comma) || comma != ',')
        break;
    }
    return sum;
  }

  void read(const std::string& line) {
    const auto node_at = [&](std::size_t place) { return std::atoi(line.c_str() + place + 4); };
    if (line[0] == '\t') {
      const int from = node_at(1);
      const int to = node_at(line.find("-- ") + 3);
      next_[from].push_back(to);
      return;
    }
    if (line.find("-- Input") != std::string::npos) return;
    const double bytes = number(line, "activation_size");
    nodes_[node_at(0)] = {number(line, "forward_compute_time"),
                          number(line, "backward_compute_time"), bytes, bytes,
                          number(line, "parameter_size")};
  }

  /// Predecessors first, lower numbers first among equals.
  std::vector<int> sorted() {
    std::map<int, int> missing;
    for (const auto& [node, values] : nodes_)
      for (const int to : next_[node]) ++missing[to];
    std::vector<int> order;
    while (order.size() < nodes_.size()) {
      for (const auto& [node, values] : nodes_) {
        if (missing[node] != 0) continue;
        missing[node] = -1;
        order.push_back(node);
        for (const int to : next_[node]) --missing[to];
        break;
      }
    }
    return order;
  }

  std::map<int, Block> nodes_;
  std::map<int, std::vector<int>> next_;
};

}  // namespace spillway
