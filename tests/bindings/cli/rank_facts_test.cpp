#include "rank_facts.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace spillway::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
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
  job.links = {{0, 1, 1e-6, 5e9, 0.0, 0.0}, {0, 2, 2e-5, 1e9, 3e-4, 2e-5}, {2, 3, 1e-6, 7e9, 0, 0}};
  job.processor = "a processor";
  job.copy_bytes_per_second = 1e10;
  return job;
}

Finding finding_of(const JobFacts& job, const std::string& subject) {
  for (const Finding& finding : check_job(job))
    if (finding.subject == subject) return finding;
  return {};
}

std::string warning_of(const JobFacts& job, const std::string& subject) {
  const Finding finding = finding_of(job, subject);
  EXPECT_EQ(finding.verdict == Verdict::kWarning, !finding.mend.empty());
  return finding.mend;
}

TEST(CheckJob, IsContentWithAGoodOne) {
  for (const Finding& finding : check_job(good_job())) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.subject << ": " << finding.mend;
    EXPECT_EQ(finding.mend, "");
  }
  EXPECT_EQ(finding_of(good_job(), "MPI").value, "MPICH 4, /lib/libmpi.so (ABI of MPICH)");
  EXPECT_EQ(finding_of(good_job(), "ranks").value, "4 ranks on 2 hosts: 2 on a, 2 on b");
  EXPECT_EQ(finding_of(good_job(), "clocks").value, "b +300 µs ± 20 µs from a");
  EXPECT_EQ(finding_of(good_job(), "links of hosts").value, "latency 20.0 µs, 1.00 GB/s");
  EXPECT_THAT(finding_of(good_job(), "links in a host").value,
              HasSubstr("6.00 GB/s (medians of 2 pairs; 5.00 GB/s to 7.00 GB/s)"));
}

TEST(CheckJob, WarnsOfALauncherThatCountsOtherwise) {
  JobFacts job = good_job();
  job.ranks[3].ranks_here = 4;
  EXPECT_THAT(warning_of(job, "ranks"), AllOf(HasSubstr("rank 3 of 4 ranks on b, and 2 are there"),
                                              HasSubstr("MPI_LOCALNRANKS=2")));
}

TEST(CheckJob, WarnsOfMoreThreadsThanCores) {
  JobFacts job = good_job();
  for (RankFacts& facts : job.ranks) facts.threads = 2;
  EXPECT_THAT(warning_of(job, "cores of ranks"),
              AllOf(HasSubstr("4 threads of 2 ranks on a are more than 2 cores"),
                    HasSubstr("OMP_NUM_THREADS=1")));
  for (RankFacts& facts : job.ranks) facts.cores = {0, 1, 2, 3};  // Not bound.
  EXPECT_EQ(warning_of(job, "cores of ranks"), "");
  for (RankFacts& facts : job.ranks) facts.quota = 1.5;
  EXPECT_THAT(warning_of(job, "cores of ranks"),
              AllOf(HasSubstr("the time of 1.5 cores"), HasSubstr("start fewer ranks")));
}

TEST(CheckJob, WarnsOfRanksThatWereBoundToTheSameCores) {
  JobFacts job = good_job();
  job.ranks[2].cores = job.ranks[3].cores = {5};  // On hosts of two cores and more, by mistake.
  job.ranks.push_back(rank_on("b", 3, {6, 7}));
  EXPECT_THAT(warning_of(job, "cores of ranks"),
              HasSubstr("ranks on b are bound to 1 core and have 2 threads"));
  job = good_job();
  job.ranks[2].cores = {0, 1};
  EXPECT_THAT(warning_of(job, "cores of ranks"), HasSubstr("ranks 2, 3 on b share core 1"));
}

TEST(CheckJob, WarnsOfMoreRanksThanGpus) {
  JobFacts job = good_job();
  job.ranks[0].gpus = job.ranks[2].gpus = 2;
  EXPECT_EQ(warning_of(job, "ranks"), "");
  job.ranks[2].gpus = 1;
  EXPECT_THAT(warning_of(job, "ranks"), HasSubstr("rank 3 is number 2 on b, which has 1 GPU: "));
}

TEST(CheckJob, WarnsOfRanksWithDifferentThreads) {
  JobFacts job = good_job();
  job.ranks[1].cores = {1, 2};
  job.ranks[1].threads = 2;
  EXPECT_THAT(warning_of(job, "cores of ranks"), HasSubstr("the same number of threads"));
}

TEST(CheckJob, WarnsOfBudgetsThatAreTooMuchTogether) {
  JobFacts job = good_job();
  for (RankFacts& facts : job.ranks) facts.budget = 9_GiB;
  EXPECT_THAT(
      warning_of(job, "budget of ranks"),
      HasSubstr("budgets of 2 ranks on a are 18.0 GiB together, and they may use 16.0 GiB"));
}

TEST(CheckJob, WarnsOfAClockThatIsFarOff) {
  JobFacts job = good_job();
  job.links[1].clock_offset_seconds = -90.0;
  EXPECT_THAT(warning_of(job, "clocks"), HasSubstr("the clock of b is 90 s off"));
}

TEST(CheckJob, WarnsOfALinkThatIsSlowerThanOthers) {
  JobFacts job = good_job();
  for (const char* host : {"c", "d"}) job.ranks.push_back(rank_on(host, 1, {0}));
  job.links.push_back({0, 4, 2e-5, 1.1e9, 0.0, 0.0});
  job.links.push_back({2, 5, 2e-5, 0.1e9, 0.0, 0.0});
  EXPECT_THAT(warning_of(job, "links of hosts"),
              HasSubstr("ranks 2, 5 (b and d) have 0.10 GB/s only"));
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
