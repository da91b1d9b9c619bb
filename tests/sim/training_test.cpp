// Starts of a run that are killed, stopped and raced, over simulated files.
#include "tests/sim/training.h"

#include <cerrno>

#include "core/file.h"
#include "tests/sim/seeds.h"

namespace lockstep::sim::training_test {
namespace {

constexpr Micros kBound = 60 * kSecond;  // from the last fault until the next step

// Runs until the goal. The last fault is over at `last_fault`.
void finish(Kernel& kernel, Training& run, Micros last_fault) {
  kernel.run(last_fault, [&] { return run.is_done(); });
  const auto before = run.last_step();
  const auto reached = [&] { return run.is_done() || run.last_step() > before; };
  kernel.run(kernel.now() + kBound, reached);
  if (!kernel.failed() && !reached())
    return kernel.violate(5, "no step was done in a minute; the last is ", before);
  kernel.run(kernel.now() + 10 * kBound, [&] { return run.is_done(); });
  if (!kernel.failed() && !run.is_done())
    kernel.violate(5, "the run does not end; its last step is ", run.last_step());
}

enum class Harm : std::uint8_t { kill, stop, late, power };

// Does harm to rank 0's process at one of its operations.
void harm_at(Kernel& kernel, Training& run, std::int64_t operation, Harm harm) {
  run.disk.before = [&kernel, &run, operation, harm, done = false](
                        Process& process, const Files::Operation& of) mutable {
    if (done || &process != run.rank_0() || process.operations < operation) return 0;
    const bool may_be_late = of.call == Files::Call::rename || of.call == Files::Call::create;
    if (harm == Harm::late && !may_be_late) return 0;
    done = true;
    kernel.trace("harm ", static_cast<int>(harm), " at operation ", process.operations);
    const auto stop = kernel.random.between(6, 30) * kSecond;
    switch (harm) {
      case Harm::kill: kernel.after(0, [&] { run.kill(process); }); break;
      case Harm::power:
        kernel.after(0, [&] { run.power_off(process.host, 10 * kSecond, false); });
        break;
      case Harm::stop: run.pause(process, stop); break;
      case Harm::late:
        run.disk.delay_next(process, kernel.random.between(0, stop));
        kernel.after(0, [&run, &process, stop] { run.pause(process, stop); });
        break;
    }
    return 0;
  };
}

void run_harmed(Kernel& kernel) {
  auto& random = kernel.random;
  Training run(kernel, {.hosts = static_cast<int>(random.between(1, 4)),
                        .keep_last = static_cast<int>(random.between(1, 2))});
  run.start();
  for (int faults = 0; faults < 3; ++faults) {
    // Most harm is done within the saves; a start has about a hundred operations before its first.
    harm_at(kernel, run, random.between(0, 250), static_cast<Harm>(random.below(4)));
    kernel.run(kernel.now() + random.between(10, 30) * kSecond, [&] { return run.is_done(); });
  }
  run.disk.before = [](auto&, const auto&) { return 0; };
  finish(kernel, run, kernel.now() + 40 * kSecond);
}

TEST(TrainingSimulation, a_start_that_is_harmed_at_any_operation_has_a_successor) {
  for_seeds(400, [](Kernel& kernel) { run_harmed(kernel); });
}
TEST(TrainingSimulation, full_a_start_that_is_harmed_at_any_operation_has_a_successor) {
  for_seeds(
      8'000, [](Kernel& kernel) { run_harmed(kernel); }, 1'000);
}

TEST(TrainingSimulation, of_starts_that_race_one_wins) {
  for_seeds(60, [](Kernel& kernel) {
    Training run(kernel, {.hosts = 2});
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 2; ++i) {
        run.start();
        kernel.run(kernel.now() + kernel.random.between(0, 300) * kMillisecond);
      }
      kernel.run(kernel.now() + kernel.random.between(1, 12) * kSecond,
                 [&] { return run.is_done(); });
    }
    finish(kernel, run, kernel.now());
  });
}

void run_without_power(Kernel& kernel, const std::function<void(Training&)>& mutate) {
  Training run(kernel, {.hosts = 2});
  mutate(run);
  run.start();
  for (int faults = 0; faults < 3; ++faults) {
    kernel.run(kernel.now() + kernel.random.between(0, 10 * kSecond),
               [&] { return run.is_done(); });
    if (!run.is_done() && !kernel.failed()) run.lose_shared_power();
  }
  finish(kernel, run, kernel.now());
}

TEST(TrainingSimulation, announced_checkpoints_survive_a_power_loss_of_the_storage) {
  for_seeds(150, [](Kernel& kernel) { run_without_power(kernel, [](Training&) {}); });
}
TEST(TrainingSimulation, full_announced_checkpoints_survive_a_power_loss_of_the_storage) {
  for_seeds(
      5'000, [](Kernel& kernel) { run_without_power(kernel, [](Training&) {}); }, 1'000);
}

// A rack of two neighbours loses power and disks, at any time. After that a job of three hosts is
// left, which survives the loss of one.
void run_racks(Kernel& kernel,
               const std::function<std::size_t(std::size_t, std::size_t)>& partner) {
  const int hosts = static_cast<int>(kernel.random.between(4, 6));
  Training run(kernel, {.hosts = hosts, .has_local = true, .partner = partner});
  run.start();
  for (int faults = 0; faults < 2; ++faults) {
    kernel.run(kernel.now() + kernel.random.between(2 * kSecond, 14 * kSecond),
               [&] { return run.is_done(); });
    if (run.is_done() || kernel.failed()) break;
    const int host = static_cast<int>(kernel.random.between(0, hosts - 2));
    run.power_off(host, 9 * kSecond, true);
    if (run.ranks() >= 4) run.power_off(host + 1, 9 * kSecond, true);
    // The next loss comes when a checkpoint has been saved again.
    const auto before = run.announced();
    kernel.run(kernel.now() + kBound, [&] { return run.is_done() || run.announced() > before; });
  }
  finish(kernel, run, kernel.now() + 10 * kSecond);
}

TEST(TrainingSimulation, announced_checkpoints_of_local_disks_survive_the_loss_of_a_rack) {
  for_seeds(100, [](Kernel& kernel) { run_racks(kernel, partner_of); });
}
TEST(TrainingSimulation, full_announced_checkpoints_of_local_disks_survive_the_loss_of_a_rack) {
  for_seeds(
      2'000, [](Kernel& kernel) { run_racks(kernel, partner_of); }, 1'000);
}

// A host and its partner lose power and disks at any time.
void run_pairs(Kernel& kernel) {
  const int hosts = static_cast<int>(kernel.random.between(4, 6));
  Training run(kernel, {.hosts = hosts, .has_local = true});
  run.start();
  kernel.run(kernel.now() + kernel.random.between(2 * kSecond, 20 * kSecond));
  const auto host = kernel.random.below(static_cast<std::uint64_t>(hosts));
  const auto partner = partner_of(host, static_cast<std::size_t>(hosts));
  run.loses_copies = true;
  for (const auto lost : {host, partner})
    run.power_off(static_cast<int>(lost), 9 * kSecond, true);
  finish(kernel, run, kernel.now() + 10 * kSecond);
}

TEST(TrainingSimulation, the_loss_of_a_host_and_its_partner_goes_back_to_the_shared_directory) {
  for_seeds(30, run_pairs);
}
TEST(TrainingSimulation,
     full_the_loss_of_a_host_and_its_partner_goes_back_to_the_shared_directory) {
  for_seeds(2'000, run_pairs, 1'000);
}

TEST(TrainingSimulation, goes_on_after_the_storage_was_full_slow_or_faulty) {
  for_seeds(120, [](Kernel& kernel) {
    auto& random = kernel.random;
    Training run(kernel, {.hosts = 2});
    run.storage_is_faulty = true;
    run.start();
    for (int faults = 0; faults < 3; ++faults) {
      kernel.run(kernel.now() + random.between(0, 10 * kSecond), [&] { return run.is_done(); });
      const auto time = random.between(1, 30) * kSecond;
      const auto kind = random.below(4);
      kernel.trace("storage: fault ", kind, " for ", time / kSecond, " s");
      switch (kind) {
        case 0: run.disk.fill(true); break;
        case 1: run.disk.hang(kernel.now() + time); break;
        case 2: run.disk.set_latency(kMillisecond, 300 * kMillisecond); break;
        default:
          run.disk.before = [&random](Process&, const Files::Operation& operation) {
            const bool is_shared = operation.path.starts_with(Files::kShared);
            return is_shared && random.chance(0.05) ? EIO : 0;
          };
      }
      kernel.run(kernel.now() + time, [&] { return run.is_done(); });
      run.disk.fill(false);
      run.disk.set_latency(200, 2'000);
      run.disk.before = [](auto&, const auto&) { return 0; };
    }
    finish(kernel, run, kernel.now());
  });
}

bool commits_checkpoint(const Files::Operation& of) {
  return of.call == Files::Call::rename && of.path.find("/saving/step-") != std::string::npos &&
         std::filesystem::path(of.to).parent_path() == Training::kCheckpoints;
}

// A checkpoint arrives after the next start has begun, which could not remove its directory.
void run_late(Kernel& kernel, const std::function<void(Training&)>& mutate) {
  Training run(kernel, {.hosts = 1});
  mutate(run);
  run.disk.before = [&kernel, &run, done = false](Process& process,
                                                  const Files::Operation& of) mutable {
    if (of.call == Files::Call::remove && of.path.find("/fenced/saving") != std::string::npos)
      return EIO;
    if (commits_checkpoint(of) && run.announced() > 3 && !std::exchange(done, true)) {
      const auto late = kernel.random.between(6'000, 12'000) * kMillisecond;
      run.disk.delay_next(process, late);
      kernel.after(0, [&run, &process, late] { run.pause(process, late + kSecond); });
    }
    return 0;
  };
  run.start();
  finish(kernel, run, 40 * kSecond);
}

TEST(TrainingSimulation, a_checkpoint_that_arrives_late_does_not_count) {
  for_seeds(60, [](Kernel& kernel) { run_late(kernel, [](Training&) {}); });
}

// The controls.
TEST(TrainingSimulation, notices_a_claim_that_leaves_the_work_of_the_old_epoch) {
  expect_violation(2, 20, [](Kernel& kernel) {
    Training run(kernel, {.hosts = 1, .keep_last = 100});
    run.disk.skips = [](const Files::Operation& operation) {
      return operation.call == Files::Call::rename && operation.path.ends_with("/work");
    };
    run.disk.before = [&kernel, &run, done = false](Process& process,
                                                    const Files::Operation& of) mutable {
      // Nor can it remove the files in there.
      if (of.call == Files::Call::remove && of.path.find("work/saving") != std::string::npos)
        return EIO;
      if (commits_checkpoint(of) && run.announced() > 3 && !std::exchange(done, true))
        run.pause(process, kernel.random.between(6'000, 9'000) * kMillisecond);
      return 0;
    };
    run.start();
    finish(kernel, run, 40 * kSecond);
  });
}

// Each record lists all steps with the hash of any checkpoint.
void count_all_checkpoints(Training& run) {
  run.disk.renamed = [checks = run.disk.renamed](Process& process,
                                                 const Files::Operation& operation) {
    const auto epoch = std::filesystem::path(operation.to);
    if (epoch.parent_path() == Training::kCheckpoints / "epochs" && epoch.extension().empty()) {
      auto record = *EpochRecord::newest(Training::kCheckpoints);
      for (int step = 0; step < 100; ++step)
        record.checkpoints[step].clear();
      write_text(epoch / "about.json", record.dump());
    }
    checks(process, operation);
  };
}

TEST(TrainingSimulation, notices_that_the_list_of_checkpoints_is_ignored) {
  expect_violation(1, 20, [](Kernel& kernel) { run_late(kernel, count_all_checkpoints); });
}

TEST(TrainingSimulation, notices_an_announcement_before_the_name_is_synced) {
  expect_violation(2, 100, [](Kernel& kernel) {
    run_without_power(kernel, [](Training& run) {
      run.disk.skips = [](const Files::Operation& operation) {
        return operation.call == Files::Call::sync && operation.path == Training::kCheckpoints;
      };
    });
  });
}

TEST(TrainingSimulation, notices_a_partner_in_the_same_rack) {
  expect_violation(2, 60, [](Kernel& kernel) {
    run_racks(kernel, [](std::size_t host, std::size_t hosts) { return (host + 1) % hosts; });
  });
}

}  // namespace
}  // namespace lockstep::sim::training_test
