#include "dist/job/control.h"

#include <atomic>
#include <cstring>

#include "core/philox.h"
#include "tests/dist/job.h"
#include "tests/dist/words.h"

namespace lockstep::testing::control_test {

constexpr Milliseconds kEnough{20'000};

void expect_none_thrown(const std::vector<std::string>& thrown) {
  for (std::size_t rank = 0; rank < thrown.size(); ++rank)
    EXPECT_EQ(thrown[rank], "") << "rank " << rank;
}

TEST(Control, delivers_messages_in_order_by_sender_and_tag) {
  constexpr int kMessages = 200;
  expect_none_thrown(run_ranks(Job(4), [](Control& control) {
    // Each rank sends to each rank, also to itself, with two tags, received in reverse order.
    for (int i = 0; i < kMessages; ++i)
      for (int to = 0; to < control.ranks(); ++to)
        for (const auto* tag : {"first", "second"})
          control.send(to, tag, as_bytes(str(control.rank(), " ", tag, " ", i)));
    for (const auto* tag : {"second", "first"})
      for (int from = 0; from < control.ranks(); ++from)
        for (int i = 0; i < kMessages; ++i)
          ASSERT_EQ(as_text(control.receive(from, tag, kEnough)), str(from, " ", tag, " ", i));
  }));
}

TEST(Control, serves_many_threads_at_once) {
  expect_none_thrown(run_ranks(Job(2), [](Control& control) {
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    const int other = 1 - control.rank();
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        const auto tag = str("thread ", t);
        for (int i = 0; i < 50; ++i) {
          control.send(other, tag, as_bytes(str(t, " ", i)));
          right += as_text(control.receive(other, tag, kEnough)) == str(t, " ", i);
        }
      });
    for (auto& thread : threads)
      thread.join();
    EXPECT_EQ(right, 8 * 50);
  }));
}

TEST(Control, carries_large_messages_before_they_are_received) {
  expect_none_thrown(run_ranks(Job(3), [](Control& control) {
    constexpr int kMessages = 5;  // 80 MiB to one rank: more than the control server keeps
    Bytes large(kMostMessageBytes);
    for (std::size_t i = 0; i < large.size(); i += 4096)
      large[i] = static_cast<std::byte>(philox(1, 2, i)[0]);
    const int to = (control.rank() + 1) % 3, from = (control.rank() + 2) % 3;
    for (int i = 0; i < kMessages; ++i)
      control.send(to, "large", large);
    for (int i = 0; i < kMessages; ++i)
      ASSERT_EQ(control.receive(from, "large", kEnough), large) << i;
  }));
}

TEST(Control, rejects_messages_over_the_limits) {
  expect_none_thrown(run_ranks(Job(1), [](Control& control) {
    EXPECT_THROW(control.send(0, "x", Bytes(kMostMessageBytes + 1)), Error);
    EXPECT_THROW(control.send(0, std::string(65, 'x'), {}), Error);
    EXPECT_THROW(control.send(1, "x", {}), Error);
    control.send(0, "x", as_bytes("still well"));
    EXPECT_EQ(as_text(control.receive(0, "x", kEnough)), "still well");
  }));
}

TEST(Control, gathers_and_broadcasts) {
  expect_none_thrown(run_ranks(Job(5), [](Control& control) {
    for (int round = 0; round < 20; ++round) {
      const auto own = as_bytes(str("rank ", control.rank(), " round ", round));
      const auto gathered = control.gather("g", own, kEnough);
      ASSERT_EQ(gathered.size(), control.rank() == 0 ? 5u : 0u);
      const auto all = control.all_gather("a", own, kEnough);
      ASSERT_EQ(all.size(), 5u);
      for (int r = 0; r < 5; ++r) {
        const auto expected = str("rank ", r, " round ", round);
        EXPECT_EQ(as_text(all[static_cast<std::size_t>(r)]), expected);
        if (control.rank() == 0) {
          EXPECT_EQ(as_text(gathered[static_cast<std::size_t>(r)]), expected);
        }
      }
      EXPECT_EQ(as_text(control.broadcast("b", own, kEnough)), str("rank 0 round ", round));
    }
  }));
}

TEST(Control, carries_a_message_to_every_rank_while_one_does_not_receive) {
  // 160 MiB to each rank: more than the control server keeps for a rank.
  expect_none_thrown(run_ranks(Job(3), [](Control& control) {
    constexpr int kMessages = 10;
    const Bytes large(kMostMessageBytes, static_cast<std::byte>(7));
    if (control.rank() == 0)
      for (int i = 0; i < kMessages; ++i)
        control.send(kEveryRank, "large", large);
    for (int i = 0; i < kMessages; ++i) {
      if (control.rank() == 1) std::this_thread::sleep_for(Milliseconds(20));
      ASSERT_EQ(control.receive(0, "large", kEnough), large) << i;
    }
  }));
}

TEST(Control, gathers_more_than_a_message_in_total) {
  expect_none_thrown(run_ranks(Job(3), [](Control& control) {
    const auto text_of = [](int rank) {  // incompressible
      Bytes bytes(std::size_t{9} << 20);
      for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
        const auto word = static_cast<std::uint32_t>(i * 2654435761u + static_cast<unsigned>(rank));
        const auto mixed = (word ^ (word >> 15)) * 2246822519u;
        std::memcpy(bytes.data() + i, &mixed, 4);
      }
      return bytes;
    };
    const auto all = control.all_gather("large", text_of(control.rank()), kEnough);
    for (int rank = 0; rank < 3; ++rank)
      ASSERT_TRUE(all.at(static_cast<std::size_t>(rank)) == text_of(rank)) << rank;
  }));
}

TEST(Control, barrier_waits_for_the_last_rank) {
  std::atomic<int> came = 0;
  expect_none_thrown(run_ranks(Job(6), [&](Control& control) {
    for (int round = 1; round <= 10; ++round) {
      if (control.rank() == round % 6) std::this_thread::sleep_for(Milliseconds(20));
      ++came;
      control.barrier("b", kEnough);
      EXPECT_GE(came, 6 * round);
      control.barrier("c", kEnough);
    }
  }));
}

TEST(Control, gives_every_rank_the_names_of_missing_ranks) {
  const auto thrown = run_ranks(Job(5), [](Control& control) {
    if (control.rank() == 1 || control.rank() == 3) {
      control.receive(0, "all have thrown", kEnough);
      return;
    }
    try {
      control.barrier("checkpoint", Milliseconds(200));
    } catch (const TransientError&) {
      if (control.rank() == 0)
        for (const int late : {1, 3})
          control.send(late, "all have thrown", {});
      throw;
    }
  });
  for (const std::size_t rank : {0, 2, 4})
    expect_words("dist/control", "ranks without a message", thrown[rank],
                 {"checkpoint", "rank 1", "rank 3", "0.2 s"});
  EXPECT_EQ(thrown[1] + thrown[3], "");
}

TEST(Control, names_the_rank_whose_message_is_missing) {
  const auto thrown = run_ranks(Job(2), [](Control& control) {
    if (control.rank() == 0) control.receive(1, "never", Milliseconds(100));
  });
  for (const char* pin : {"'never'", "rank 1"})
    expect_contains(thrown[0], pin);
}

TEST(Control, does_not_wait_for_a_rank_that_is_gone) {
  const auto before = Clock::now();
  const auto thrown = run_ranks(Job(3), [](Control& control) {
    if (control.rank() == 2) {
      control.send(1, "last", as_bytes("words"));
      return;  // closes its connection
    }
    if (control.rank() == 1) {
      // Messages sent before that still arrive.
      EXPECT_EQ(as_text(control.receive(2, "last", kEnough)), "words");
      control.receive(2, "more", kEnough);
    }
    if (control.rank() == 0) control.barrier("b", kEnough);
  });
  EXPECT_LT(Clock::now() - before, kEnough);
  expect_words("dist/control", "a sender that is gone", thrown[1], {"'more'", "rank 2"});
  expect_contains(thrown[0], "rank 2");
}

TEST(Control, reports_that_rank_0_is_gone) {
  const Job job(2);
  std::optional<ControlServer> server(job.options());
  std::optional<Control> zero;
  std::thread first([&] { zero.emplace(job.membership(0, server->port())); });
  Control one(job.membership(1, server->port()));
  first.join();
  server.reset();
  expect_refusal_here<TransientError>("dist/control", "rank 0 is gone", {"rank 0"},
                                      [&] { one.receive(0, "x", kEnough); });
  EXPECT_TRUE(eventually([&] {
    try {
      one.send(0, "x", {});
      return false;
    } catch (const TransientError&) {
      return true;
    }
  }));
}

TEST(Control, names_ranks_that_do_not_start) {
  Job job(5, kFast, Milliseconds(500));
  ControlServer server(job.options());
  std::vector<std::string> thrown(5);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 4})
    threads.emplace_back([&, rank] {
      try {
        const Control control(job.membership(rank, server.port()));
      } catch (const TransientError& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads)
    thread.join();
  for (const std::size_t rank : {0, 1, 4})
    expect_words("dist/control", "ranks that do not start", thrown[rank],
                 {"ranks 2, 3", "0.5 s", "5"});
}

TEST(Control, waits_for_a_hub_that_starts_later) {
  const Job job(1);
  const ReservedPort port;
  std::optional<ControlServer> server;
  std::thread later([&] {
    std::this_thread::sleep_for(Milliseconds(300));
    auto options = job.options();
    options.port = port.number();
    server.emplace(options);
  });
  const Control control(job.membership(0, port.number()));
  later.join();
}

TEST(Control, tries_each_address) {
  const Job job(1);
  const ControlServer server(job.options());
  auto membership = job.membership(0, server.port());
  membership.addresses = {"no-such-host.invalid", "127.0.0.2", "127.0.0.1"};
  const Control control(membership);
}

TEST(Control, reports_the_error_of_each_address) {
  const Job job(1, kFast, Milliseconds(100));
  const ReservedPort port;
  expect_refusal_here<TransientError>(
      "dist/control", "no hub", {str("127.0.0.1:", port.number())},
      [&] { const Control control(job.membership(0, port.number())); });
}

TEST(Control, sixty_four_processes_start_in_less_than_10_s) {
  const Job job(64);
  const ReservedPort port;
  const auto before = Clock::now();
  Processes processes;
  std::vector<int> all;
  for (int rank = 0; rank < job.ranks; ++rank) {
    all.push_back(rank);
    processes.start([&, rank] {
      std::optional<ControlServer> server;
      if (rank == 0) {
        auto options = job.options();
        options.port = port.number();
        server.emplace(options);
      }
      {
        Control control(job.membership(rank, port.number()));
        control.barrier("end", kEnough);
      }
      return !server || server->wait_until_all_left(kEnough) ? 0 : 1;
    });
  }
  ASSERT_TRUE(eventually([&] { return processes.all_ended(all); }, kEnough));
  const std::chrono::duration<double> time = Clock::now() - before;
  for (const int rank : all)
    EXPECT_EQ(processes.ended(rank), 0) << "rank " << rank;
  EXPECT_LT(time.count(), 10);
  std::printf("64 processes found each other, agreed and ended in %.2f s\n", time.count());
}

}  // namespace lockstep::testing::control_test
