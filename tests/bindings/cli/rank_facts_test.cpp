#include "rank_facts.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "finding_rows.h"
#include "support/golden_folder.h"
#include "support/golden_text.h"

namespace spillway::cli {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

RankFacts rank_on(const std::string& host, unsigned ranks_here, std::vector<unsigned> cores) {
  RankFacts facts;
  facts.host = host;
  facts.ranks_here = ranks_here;
  facts.cores = std::move(cores);
  facts.budget = 2_GiB;
  facts.usable = 16_GiB;
  return facts;
}

/// Two ranks on each of two hosts, each bound to cores of its own.
JobFacts good_job() {
  JobFacts job;
  job.mpi.library = "/lib/libmpi.so";
  job.mpi.version = "MPICH 4";
  job.mpi.abi = "MPICH";
  for (const char* host : {"a", "b"})
    for (const unsigned core : {0u, 1u}) job.ranks.push_back(rank_on(host, 2, {core}));
  job.links = {{0, 1, 1e-6, TransferRate(5e9), 0.0, 0.0},
               {0, 2, 2e-5, TransferRate(1e9), 3e-4, 2e-5},
               {2, 3, 1e-6, TransferRate(7e9), 0, 0}};
  job.processor = "a processor";
  job.copy_rate = TransferRate(1e10);
  return job;
}

using Change = std::function<void(JobFacts&)>;

Change each_rank(std::function<void(RankFacts&)> change) {
  return [=](JobFacts& job) {
    for (RankFacts& facts : job.ranks) change(facts);
  };
}

const std::vector<std::pair<std::string, Change>> kOtherJobs = {
    {"a launcher that counts otherwise", [](JobFacts& job) { job.ranks[3].ranks_here = 4; }},
    {"more threads than cores", each_rank([](RankFacts& facts) { facts.threads = 2; })},
    {"threads of ranks that are not bound", each_rank([](RankFacts& facts) {
       facts.threads = 2;
       facts.cores = {0, 1, 2, 3};
     })},
    {"less time than cores", each_rank([](RankFacts& facts) {
       facts.threads = 2;
       facts.cores = {0, 1, 2, 3};
       facts.quota = 1.5;
     })},
    // On hosts of two cores and more, by mistake.
    {"ranks that were bound to one core",
     [](JobFacts& job) {
       job.ranks[2].cores = job.ranks[3].cores = {5};
       job.ranks.push_back(rank_on("b", 3, {6, 7}));
     }},
    {"ranks that share a core",
     [](JobFacts& job) {
       job.ranks[2].cores = {0, 1};
     }},
    {"GPUs enough", [](JobFacts& job) { job.ranks[0].gpus = job.ranks[2].gpus = 2; }},
    {"more ranks than GPUs",
     [](JobFacts& job) {
       job.ranks[0].gpus = 2;
       job.ranks[2].gpus = 1;
     }},
    {"different threads",
     [](JobFacts& job) {
       job.ranks[1].cores = {1, 2};
       job.ranks[1].threads = 2;
     }},
    {"budgets that are too much together",
     each_rank([](RankFacts& facts) { facts.budget = 9_GiB; })},
    {"a clock that is far off", [](JobFacts& job) { job.links[1].clock_offset_seconds = -90.0; }},
    {"a link that is slower than others",
     [](JobFacts& job) {
       for (const char* host : {"c", "d"}) job.ranks.push_back(rank_on(host, 1, {0}));
       job.links.push_back({0, 4, 2e-5, TransferRate(1.1e9), 0.0, 0.0});
       job.links.push_back({2, 5, 2e-5, TransferRate(0.1e9), 0.0, 0.0});
     }},
};

TEST(CheckJob, IsWhatItsFileShows) {
  GoldenText golden(golden_file("rank_findings.txt"));
  const std::string good = rows_of(check_job(good_job()));
  golden.add("a good job", good);
  for (const auto& [heading, change] : kOtherJobs) {
    JobFacts job = good_job();
    change(job);
    golden.add_difference(heading, good, rows_of(check_job(job)));
  }
}

TEST(FindingsOfOthers, AreThoseThatAreNotOkEachOnce) {
  std::vector<RankFacts> ranks = good_job().ranks;
  const Finding known{"huge pages", "never", Verdict::kWarning, "echo madvise"};
  const Finding fine{"kernel", "6.1", Verdict::kOk, {}};
  const Finding other{"disk /a", "full", Verdict::kProblem, "free some"};
  ranks[0].findings = {known, fine};
  for (const std::size_t rank : {1u, 2u, 3u}) ranks[rank].findings = {known, fine};
  EXPECT_THAT(findings_of_others(ranks), IsEmpty());
  ranks[2].findings.push_back(other);
  ranks[3].findings.push_back(other);
  const auto found = findings_of_others(ranks);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].subject, "ranks 2, 3 (b): disk /a");
  EXPECT_EQ(found[0].verdict, Verdict::kProblem);
}

TEST(RankFacts, AreReadAsTheyWereWritten) {
  RankFacts facts = rank_on("a", 3, {4, 6});
  facts.quota = 1.5;
  facts.findings = {{"a", "b", Verdict::kProblem, "c"}};
  EXPECT_EQ(to_text(parse_rank_facts(to_text(facts))), to_text(facts));
  EXPECT_EQ(parse_rank_facts(to_text(facts)).findings.at(0).verdict, Verdict::kProblem);
}

TEST(JobJson, HasADescriptionOfTheMachineOnlyWhereHostsAreAlike) {
  JobFacts job = good_job();
  const auto cluster = job_json(job).at("cluster");
  EXPECT_EQ(cluster.at("nodes"), 2);
  EXPECT_EQ(cluster.at("node").at("devices"), 2);
  EXPECT_EQ(cluster.at("node").at("nic").at("latency_seconds"), 2e-5);
  EXPECT_EQ(cluster.at("node").at("nvlink").at("bytes_per_second"), 6e9);
  EXPECT_FALSE(cluster.at("node").contains("disks"));
  job.ranks.pop_back();
  EXPECT_TRUE(job_json(job).at("cluster").is_null());
  job = good_job();
  job.ranks[1].budget = 0_B;
  EXPECT_TRUE(job_json(job).at("cluster").is_null());
}

}  // namespace
}  // namespace spillway::cli
