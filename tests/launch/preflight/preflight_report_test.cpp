// Messages and files of `lockstep preflight` if something is faulty.
#include <csignal>
#include <ctime>
#include <filesystem>
#include <gtest/gtest.h>

#include "core/system/machine.h"
#include "launch/plan/plan_errors.h"
#include "launch/preflight/report.h"
#include "launch/preflight_verb.h"
#include "tests/captured.h"
#include "tests/launch/plan/cluster_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::preflight_report_test {

namespace fs = std::filesystem;

constexpr const char* kClusterOfLastTime = R"({"format": "lockstep cluster 1"})";

// The places of ranks, one for each name.
Topology topology_of_hosts(const std::vector<std::string>& hosts) {
  Topology topology;
  for (const auto& host : hosts) {
    auto& place = topology.places.emplace_back();
    place.host = place.machine = host;
  }
  return topology;
}

// LastTime holds the two files of an earlier preflight, in which one thread on `host` had a memory
// rate of `memory`.
struct LastTime {
  explicit LastTime(const std::string& memory = "1", const std::string& host = host_name()) {
    spit(cluster, kClusterOfLastTime);
    spit(baseline, str(R"({"format": "lockstep preflight 2", "checks": {"memory, read and )",
                       R"(written": {")", host, R"(/0": {"1 rank on the host, 1 thread each": )",
                       memory, "}}}}"));
  }

  int preflight(const fs::path& scratch) const {
    PreflightVerbOptions options;
    options.cluster_out = cluster.string();
    options.scratch = scratch.string();
    options.report = report_file;
    options.failed_hosts = failed_hosts;
    options.device = "cpu";
    options.threads = 1;
    return run_preflight(options);
  }
  // Returns the exit code of preflight() and stores its output in `out`.
  int finish(const fs::path& scratch) {
    int code = -1;
    out = stdout_of([&] { code = preflight(scratch); });
    return code;
  }

  // Output and log of a report of a rank on each of `hosts`.
  std::string said(const std::function<void(PreflightReport&)>& use) const {
    LoneWorld alone;
    const auto topology = topology_of_hosts(hosts);
    std::string printed;
    const auto logged = stderr_of([&] {
      printed = stdout_of([&] {
        ReportFile file({report_file, failed_hosts, "1.2.3"});
        file.place(topology);
        PreflightReport report(alone, topology, {cluster, baseline}, file);
        use(report);
      });
    });
    return printed + logged;
  }
  // preflight() is rejected before it measures, with the message `name`, which holds each of
  // `pins`.
  template <class E = ConfigError>
  void refused(const std::string& name, const fs::path& scratch,
               std::initializer_list<std::string> pins) const {
    auto message = message_of<E>([&] { preflight(scratch); });
    for (const auto& pin : pins)
      expect_contains(message, pin);
    const auto host = "host " + host_name();
    if (const auto at = message.find(host); at != message.npos)
      message.replace(at, host.size(), "host HOST");
    expect_wording("launch/preflight", name, message);
  }

  TemporaryDirectory folder;
  fs::path cluster = folder / "cluster.json", baseline = folder / "preflight.json";
  std::string report_file, failed_hosts;
  std::vector<std::string> hosts{"n1"};
  std::string out;
};

TEST(Preflight, a_fault_leaves_both_files_unchanged) {
  LastTime slower("1e18");
  const auto before = slurp(slower.baseline);
  EXPECT_EQ(slower.finish(slower.folder.path()), 75);
  for (const auto& pin : {host_name(), std::string("rank 0: memory, read and written: "),
                          std::string("1000000 TB/s")})
    expect_contains(slower.out, pin);
  EXPECT_EQ(slurp(slower.cluster), kClusterOfLastTime);
  EXPECT_EQ(slurp(slower.baseline), before);
  // No other file is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(slower.folder.path()), {}), 2);
}

TEST(Preflight, unusable_files_are_rejected_before_measuring) {
  LastTime last("0", "n1");
  const auto& folder = last.folder.path();
  last.refused<DataError>("a rate of 0", folder,
                          {last.baseline.string(), "memory, read and written: "});
  last.cluster = last.folder / "nowhere/cluster.json";
  last.refused("no folder", folder, {last.cluster.string()});
  last.cluster = last.baseline;
  last.refused("one file", folder, {"--cluster-out", "--baseline", last.baseline.string()});
  LastTime wrong;
  wrong.refused("--scratch where none may write", "/proc", {"--scratch /proc"});
  wrong.refused("no --scratch", wrong.folder / "nowhere", {"--scratch", "/nowhere"});
  fs::remove(wrong.baseline);
  fs::create_directory(wrong.baseline);
  wrong.refused("a folder", wrong.folder.path(), {"preflight.json"});
  EXPECT_EQ(std::distance(fs::directory_iterator(wrong.folder.path()), {}), 2);
}

TEST(Preflight, only_empty_and_earlier_cluster_files_are_replaced) {
  LastTime last;
  last.cluster = last.folder / "h100.toml";
  for (const char* text :
       {"name = 'of a person'", "{\"format\": \"lockstep plan 1\"}", "[]", "{", "3"}) {
    spit(last.cluster, text);
    last.refused("another file", last.folder.path(),
                 {str("--cluster-out ", last.cluster.string()), "/h100-measured.json"});
    EXPECT_EQ(slurp(last.cluster), text);
  }
  for (const char* text : {"", kClusterOfLastTime, "{\"format\": \"lockstep cluster 0\"}"}) {
    spit(last.cluster, text);
    last.said([](auto&) {});
  }
}

TEST(Preflight, findings_are_printed_if_preflight_ends_with_an_error) {
  const LastTime slower("1e18", "n1");
  const auto said = [&](const std::vector<std::vector<Finding>>& by_rank) {
    return slower.said([&](auto& report) {
      report.hear(by_rank);
      report.fail(TransientError("rank 1 died"));
    });
  };
  Finding memory{.check = "memory, read and written",
                 .unit = Finding::Unit::bytes_per_second,
                 .value = 1e9,
                 .tolerance = 0.4,
                 .of = "1 rank on the host, 1 thread each"};
  const auto wrong = said({{memory}});
  expect_contains(wrong, "host n1, rank 0: memory, read and written: 1.00 GB/s");
  expect_wording("launch/preflight", "what was found", wrong);
  memory.of = "1 rank on the host, 2 threads each";
  expect_wording("launch/preflight", "another configuration", said({{memory}}));
  EXPECT_TRUE(said({}).starts_with("warning: ")) << "of the cluster's file; nothing is printed";
  EXPECT_EQ(slurp(slower.cluster), kClusterOfLastTime);
}

TEST(Preflight, a_busy_host_is_reported_with_the_remedy_and_the_kept_files) {
  const LastTime last;
  const auto conclude = [&](const Finding& share) {
    return last.said([&](auto& report) {
      report.hear({{share}});
      EXPECT_EQ(report.conclude({}, nullptr), 75);
    });
  };
  Finding share{
      .check = "share of its CPU time", .unit = Finding::Unit::share, .value = 0.49, .limit = 0.9};
  const auto both = conclude(share);
  for (const auto& pin :
       {std::string("host n1, rank 0: share of its CPU time: 49 %"), std::string("`top`"),
        std::string("--threads"), last.cluster.string(), last.baseline.string()})
    expect_contains(both, pin);
  expect_wording("launch/preflight", "a busy machine", both);
  fs::remove(last.cluster);
  expect_wording("launch/preflight", "a busy machine, one file", conclude(share));
  fs::remove(last.baseline);
  share.value = Finding::kNone;
  share.failure = "no schedstat";
  const auto unknown = conclude(share);
  EXPECT_EQ(unknown.find("top"), unknown.npos) << unknown;
  expect_wording("launch/preflight", "not known whether it is busy, no file", unknown);
}

TEST(Preflight, values_that_preflight_does_not_measure_are_kept) {
  const LastTime last;
  Cluster measured = processors(1);
  measured.hardware.name = "processors";
  const auto conclude = [&](const Cluster* named) {
    return last.said([&](auto& report) {
      report.hear({{{.check = "a", .value = 0, .limit = 0}}});
      EXPECT_EQ(report.conclude(measured, named), 0);
    });
  };
  const auto written = [&] { return parse_cluster(Json::parse(slurp(last.cluster), "it")); };
  expect_wording("launch/preflight", "no cluster", conclude(nullptr));
  EXPECT_EQ(written().watts, 0);

  Cluster costly = measured;
  costly.watts = 700;
  costly.price_per_gpu_hour = 2.5;
  costly.currency = "EUR";
  costly.gpu_hours_per_interruption = 1000;
  costly.restart_seconds = 60;
  costly.launch_seconds = 0.5;  // measured
  spit(last.cluster, to_json(costly).dump());
  spit(PlanErrors::file_beside(last.cluster), "of the old one");
  expect_wording("launch/preflight", "residuals", conclude(nullptr));
  EXPECT_EQ(slurp(last.folder / "cluster.residuals.json.before"), "of the old one");
  EXPECT_FALSE(fs::exists(PlanErrors::file_beside(last.cluster)));
  Cluster expected = costly;
  expected.launch_seconds = 0;
  EXPECT_EQ(to_json(written()).dump(), to_json(expected).dump());

  Cluster named = costly;
  named.watts = 1275;
  conclude(&named);
  EXPECT_EQ(written().watts, 1275);
}

Finding rate(double value) {
  return {.check = "product 8 x 8 x 8 fp32",
          .unit = Finding::Unit::flops,
          .value = value,
          .tolerance = 0.25};
}

// Two hosts with two ranks each; the second rank of n2 is slow.
struct ForScripts : ::testing::Test {
  ForScripts() {
    fs::remove(last.baseline);
    last.hosts = {"n1.cluster", "n1.cluster", "n2.cluster", "n2.cluster"};
    last.report_file = (last.folder / "report.json").string();
    last.failed_hosts = (last.folder / "failed").string();
  }
  Json report() const { return Json::parse(slurp(last.report_file), "the report"); }
  std::string failed() const { return slurp(last.failed_hosts); }

  LastTime last;
  const std::vector<std::vector<Finding>> slow{{rate(1e9)}, {rate(1e9)}, {rate(1e9)}, {rate(5e8)}};
};

TEST_F(ForScripts, a_report_has_each_finding_and_the_failed_hosts) {
  last.said([&](auto& report) {
    report.hear(slow);
    EXPECT_EQ(report.conclude({}, nullptr), 75);
  });
  const auto json = report();
  EXPECT_EQ(json.at("format").as_string(), "lockstep preflight report 1");
  EXPECT_EQ(json.at("version").as_string(), "1.2.3");
  EXPECT_NEAR(json.at("time_seconds").as_double(), static_cast<double>(std::time(nullptr)), 100);
  EXPECT_EQ(json.at("verdict").as_string(), "wrong");
  EXPECT_EQ(json.at("exit_code").as_integer(), 75);
  EXPECT_EQ(json.at("error").as_string(), "");
  EXPECT_EQ(json.at("hosts").dump(), R"(["n1.cluster","n2.cluster"])");
  EXPECT_EQ(json.at("failed_hosts").dump(), R"(["n2.cluster"])");
  const auto& findings = json.at("findings").as_array();
  ASSERT_EQ(findings.size(), 4u);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto& one = findings[rank];
    EXPECT_EQ(one.at("host").as_string(), last.hosts[rank]);
    EXPECT_EQ(one.at("rank").as_integer(), static_cast<std::int64_t>(rank));
    EXPECT_EQ(one.at("check").as_string(), "matmul 8 x 8 x 8 fp32");
    EXPECT_EQ(one.at("measured").as_double(), rank == 3 ? 5e8 : 1e9);
    EXPECT_EQ(one.at("expected").as_double(), 7.5e8);  // 25 % less than the median
    EXPECT_EQ(one.at("unit").as_string(), "flops");
    EXPECT_EQ(one.at("verdict").as_string(), rank == 3 ? "wrong" : "ok");
    EXPECT_EQ(one.at("fault").as_string().empty(), rank != 3);
  }
  EXPECT_EQ(failed(), "n2\n") << "Slurm's names have no domain";
}

TEST_F(ForScripts, healthy_hosts_leave_an_empty_list) {
  auto well = slow;
  well[3] = {rate(9e8)};
  last.said([&](auto& report) {
    report.hear(well);
    EXPECT_EQ(report.conclude(processors(1), nullptr), 0);
  });
  EXPECT_EQ(report().at("verdict").as_string(), "ok");
  EXPECT_EQ(report().at("failed_hosts").dump(), "[]");
  EXPECT_EQ(failed(), "");
}

// A slow collective of all ranks, or a configuration that fits nowhere, is no host's fault.
TEST_F(ForScripts, a_fault_of_all_ranks_or_of_the_configuration_names_no_host) {
  auto all = slow;
  all[3] = {rate(1e9)};
  all[0].push_back({.check = "all_gather of 4 ranks",
                    .unit = Finding::Unit::bytes_per_second,
                    .value = 1,
                    .limit = 2,
                    .whose = "hosts n1, n2"});
  all[1].push_back({.check = "memory", .failure = "too large", .is_wrong_configuration = true});
  for (const std::size_t rank : {0u, 2u, 3u})
    all[rank].push_back({.check = "memory", .value = 0});
  last.said([&](auto& report) {
    report.hear(all);
    EXPECT_EQ(report.conclude({}, nullptr), 78);
  });
  const auto json = report();
  EXPECT_EQ(json.at("verdict").as_string(), "wrong");
  EXPECT_EQ(failed(), "");
  for (const auto& one : json.at("findings").as_array())
    if (one.at("check").as_string() == "all_gather of 4 ranks") {
      EXPECT_TRUE(one.at("host").is_null() && one.at("rank").is_null());
      EXPECT_EQ(one.at("verdict").as_string(), "wrong");
    }
}

// A world whose failure detector ends the process on request.
class EndedWorld final : public WorldOver {
 public:
  using WorldOver::WorldOver;
  void set_exit_handler(const ExitHandler& act) override { exit_handler = act; }
  ExitHandler exit_handler;
};

TEST_F(ForScripts, a_host_that_stops_answering_is_in_the_list_beside_those_found_faulty) {
  LoneWorld one(0, 4);
  EndedWorld world(one);
  const auto topology = topology_of_hosts(last.hosts);
  const auto handler = std::signal(SIGTERM, SIG_DFL);
  const auto end = [&](bool by_a_launcher) {
    stderr_of([&] {
      stdout_of([&] {
        ReportFile file({last.report_file, last.failed_hosts, "1.2.3"});
        file.place(topology);
        PreflightReport report(world, topology, {last.cluster, last.baseline}, file);
        report.hear(slow);
        if (by_a_launcher) std::raise(SIGTERM);
        world.exit_handler("rank 0 stopped answering", 75, {0});
      });
    });
  };
  end(false);
  EXPECT_EQ(report().at("verdict").as_string(), "incomplete");
  EXPECT_EQ(report().at("error").as_string(), "rank 0 stopped answering");
  EXPECT_EQ(report().at("exit_code").as_integer(), 75);
  EXPECT_EQ(report().at("findings").as_array().size(), 4u);
  EXPECT_EQ(failed(), "n1,n2\n");
  end(true);
  EXPECT_EQ(failed(), "n2\n") << "SIGTERM may have ended the rank";
  std::signal(SIGTERM, handler);
}

TEST_F(ForScripts, an_error_before_the_measurements_is_reported) {
  spit(last.report_file, R"({"format": "lockstep preflight report 1"})");
  spit(last.failed_hosts, "n1,n2\n");
  last.cluster = last.folder / "nowhere/cluster.json";
  const auto error = message_of<ConfigError>([&] { last.preflight(last.folder.path()); });
  EXPECT_EQ(report().at("error").as_string(), error);
  EXPECT_EQ(report().at("exit_code").as_integer(), 78);
  EXPECT_EQ(report().at("hosts").dump(), str("[\"", host_name(), "\"]"));
  EXPECT_EQ(failed(), "");
}

TEST_F(ForScripts, other_files_are_kept) {
  const auto& folder = last.folder.path();
  spit(last.failed_hosts, "n1 slots=8\nn2 slots=8\n");
  last.refused("not a list", folder, {"--failed-hosts", last.failed_hosts});
  EXPECT_EQ(slurp(last.failed_hosts), "n1 slots=8\nn2 slots=8\n");
  fs::remove(last.failed_hosts);
  spit(last.report_file, "{}");
  last.refused("not a report", folder, {"--report", last.report_file});
  EXPECT_EQ(slurp(last.report_file), "{}");
  last.report_file = last.failed_hosts;
  last.refused("one file for scripts", folder, {"--report", "--failed-hosts", last.report_file});
}

}  // namespace lockstep::testing::preflight_report_test
