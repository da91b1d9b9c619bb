// BatchRows of windows, of examples, of packed documents: against rows made the slow way, of
// documents as lists of tokens.
#include "data/batch_rows.h"

#include <gtest/gtest.h>

#include "data/loader.h"
#include "data/order.h"
#include "tests/allocations.h"
#include "tests/data/shards.h"

namespace lockstep::testing::rows_test {

constexpr int kLength = 24;  // of a row; documents have up to 40 tokens

// What a row of a batch is.
struct RowOf {
  Tokens inputs, targets, document_start;
  friend bool operator==(const RowOf&, const RowOf&) = default;
};
std::ostream& operator<<(std::ostream& out, const RowOf& row) {
  for (const auto* tokens : {&row.inputs, &row.targets, &row.document_start}) {
    for (const auto token : *tokens)
      out << token << ' ';
    out << '\n';
  }
  return out;
}

std::vector<Tokens> documents_in(const Tokens& tokens) {
  std::vector<Tokens> documents;
  for (const auto token : tokens) {
    if (token == 256 || documents.empty()) documents.emplace_back();
    documents.back().push_back(token);
  }
  return documents;
}

class BatchRowsTest : public DirectoryTest, public ::testing::WithParamInterface<Boundary> {
 protected:
  BatchRowsTest() { write_dataset(directory_ / "d", tokens_, 97, GetParam()); }

  Loader::Config config(RowKind rows, bool shuffle = false) const {
    Loader::Config config;
    config.sources = {{.paths = {at("d")}}};
    config.seed = 42;
    config.sequence_length = kLength;
    config.global_batch_sequences = 3;
    config.rows = rows;
    config.shuffle = shuffle;
    return config;
  }

  // The row of these documents, the last of which is followed by another one, or is the last.
  RowOf row_of(const std::vector<Tokens>& documents, bool is_last) const {
    RowOf row;
    for (const auto& document : documents) {
      const auto start = static_cast<std::int32_t>(row.inputs.size());
      for (std::size_t i = 0; i < document.size(); ++i) {
        row.inputs.push_back(document[i]);
        row.document_start.push_back(start);
        const bool inside = i + 1 < document.size();
        const bool ends =
            GetParam() == Boundary::front && !(is_last && &document == &documents.back());
        row.targets.push_back(inside ? document[i + 1] : ends ? 256 : -1);
      }
    }
    const auto tokens = std::ssize(row.inputs);
    // A last token that nothing follows need not be read.
    const bool waste = row.targets.back() == -1;
    const auto used = std::min<std::int64_t>(waste ? tokens - 1 : tokens, kLength);
    for (auto t = used; t < kLength; ++t) {
      if (t >= tokens) {
        row.inputs.push_back(0), row.targets.push_back(0), row.document_start.push_back(0);
      }
      row.inputs[static_cast<std::size_t>(t)] = 0;
      row.targets[static_cast<std::size_t>(t)] = -1;
      row.document_start[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(used);
    }
    for (auto* part : {&row.inputs, &row.targets, &row.document_start})
      part->resize(kLength);
    return row;
  }

  // Places that documents take of a row: a token's target lies behind it.
  std::int64_t places(const std::vector<Tokens>& documents, bool is_last) const {
    std::int64_t tokens = GetParam() == Boundary::front && !is_last ? 0 : -1;
    for (const auto& document : documents)
      tokens += std::ssize(document);
    return tokens;
  }

  std::vector<RowOf> slow_rows(RowKind kind) const {
    const auto documents = documents_in(tokens_);
    std::vector<std::vector<Tokens>> rows;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const bool is_last = i + 1 == documents.size();
      if (!rows.empty() && kind == RowKind::packed) {
        auto with = rows.back();
        with.push_back(documents[i]);
        if (places(with, is_last) <= kLength) {
          rows.back() = with;
          continue;
        }
      }
      rows.push_back({documents[i]});
    }
    std::vector<RowOf> all;
    for (const auto& row : rows)
      all.push_back(row_of(row, &row == &rows.back()));
    return all;
  }

  std::vector<RowOf> read(Loader& loader, std::int64_t samples) {
    std::vector<RowOf> all;
    for (std::int64_t first = 0; first < samples; first += 3) {
      const auto batch = loader.batch(first, 0);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(3, samples - first); ++i) {
        const auto part = [&](ConstTensor tensor) {
          const auto* row = tensor.as<std::int32_t>() + i * kLength;
          return Tokens(row, row + kLength);
        };
        all.push_back({part(batch.inputs), part(batch.targets),
                       batch.document_start ? part(batch.document_start) : Tokens(kLength, 0)});
        const auto positions = part(batch.positions);
        for (std::int32_t t = 0; t < kLength; ++t)
          EXPECT_EQ(positions[static_cast<std::size_t>(t)],
                    t - all.back().document_start[static_cast<std::size_t>(t)]);
      }
      loader.release(batch);
    }
    return all;
  }

  const Tokens tokens_ = random_documents(3'000);
  Arena pinned_{Device{}, Arena::Memory::pinned_host, std::int64_t{1} << 20};
};

INSTANTIATE_TEST_SUITE_P(boundaries, BatchRowsTest,
                         ::testing::Values(Boundary::front, Boundary::listed),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(BatchRowsTest, packed_rows_are_whole_documents_while_they_fit) {
  Loader loader(config(RowKind::packed), 3, 0, 1, pinned_);
  EXPECT_TRUE(loader.document_mask());
  const auto expected = slow_rows(RowKind::packed);
  ASSERT_EQ(loader.samples(), std::ssize(expected));
  EXPECT_EQ(read(loader, loader.samples()), expected);
  const auto& rows = loader.sources().rows(0);
  std::int64_t cut = 0, padding = 0;
  const auto documents = documents_in(tokens_);
  for (const auto& document : documents)
    cut += places({document}, &document == &documents.back()) > kLength;
  for (const auto& row : expected)
    for (std::size_t t = 0; t < kLength; ++t)
      padding += row.document_start[t] + row.inputs[t] > 0 && row.targets[t] == -1 &&
                 row.inputs[t] == 0 && row.document_start[t] == row.document_start.back();
  EXPECT_EQ(rows.documents(), std::ssize(documents));
  EXPECT_EQ(rows.cut_documents(), cut);
  EXPECT_GT(cut, 20);
  EXPECT_NEAR(rows.padding(),
              static_cast<double>(padding) / static_cast<double>(std::ssize(expected) * kLength),
              0.002);
  EXPECT_LT(rows.padding(), 0.35);
}

TEST_P(BatchRowsTest, an_example_is_one_document_with_padding) {
  Loader loader(config(RowKind::examples), 3, 0, 1, pinned_);
  EXPECT_FALSE(loader.document_mask());
  auto expected = slow_rows(RowKind::examples);
  ASSERT_EQ(loader.samples(), std::ssize(expected));
  for (auto& row : expected)
    row.document_start.assign(kLength, 0);  // causal: no token attends to the padding behind it
  EXPECT_EQ(read(loader, loader.samples()), expected);
}

TEST_P(BatchRowsTest, they_are_shuffled_each_epoch_and_a_step_allocates_nothing) {
  Loader loader(config(RowKind::packed, true), 3, 0, 1, pinned_);
  const auto rows = slow_rows(RowKind::packed);
  const auto n = std::ssize(rows);
  const auto all = read(loader, 2 * n);
  for (std::int64_t g = 0; g < 2 * n; ++g)
    ASSERT_EQ(all[static_cast<std::size_t>(g)], rows[static_cast<std::size_t>(sample_at(42, n, g))])
        << g;
  loader.release(loader.batch(0, 0));
  const auto before = allocations();
  for (std::int64_t first = 3; first < 600; first += 3)
    loader.release(loader.batch(first, 0));
  EXPECT_EQ(allocations(), before);
}

// Every third token counts.
TEST_P(BatchRowsTest, masked_tokens_are_never_targets) {
  Mask counts(tokens_.size());
  for (std::size_t t = 1; t < counts.size(); t += 3)
    counts[t] = 1;
  write_dataset(directory_ / "d", tokens_, 97, GetParam(), counts);
  for (const auto kind :
       {RowKind::windows, RowKind::examples, RowKind::packed, RowKind::automatic}) {
    Loader loader(config(kind), 3, 0, 1, pinned_);
    const auto settled = kind == RowKind::automatic ? RowKind::packed : kind;
    ASSERT_EQ(loader.sources().row_kind(), settled) << "auto is packed where there are masks";
    const auto masked = read(loader, loader.samples());
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < loader.samples(); ++i) {
      const auto [first, n] = loader.sources().rows(0).in_order(i);
      for (std::int64_t t = 0; t < n; ++t) {
        const auto target =
            masked[static_cast<std::size_t>(i)].targets[static_cast<std::size_t>(t)];
        const auto behind = static_cast<std::size_t>(first + t + 1);
        const bool crosses =
            settled == RowKind::packed && GetParam() != Boundary::front && tokens_[behind] == 256;
        ASSERT_EQ(target, counts[behind] == 1 && !crosses ? tokens_[behind] : -1) << i << " " << t;
        kept += target >= 0;
      }
    }
    EXPECT_GT(kept, 400);
  }
}

TEST(BatchRows, with_shuffled_shards_no_window_crosses_a_shard) {
  const TemporaryDirectory directory(fast_directory());
  const auto tokens = random_documents(1'001);
  write_dataset(directory / "d", tokens, 97);
  const Dataset dataset({(directory / "d").string()});
  const BatchRows rows(dataset,
                       {.kind = RowKind::windows, .sequence_length = 10, .shuffle_shards = 2});
  std::int64_t windows = 0;
  for (std::size_t shard = 0; shard <= dataset.shard_of(dataset.tokens() - 1); ++shard)
    windows += (dataset.shard_start(shard + 1) - dataset.shard_start(shard) - 1) / 10;
  ASSERT_EQ(rows.count(), windows);
  std::vector<std::int64_t> firsts;
  for (std::int64_t n = 0; n < windows; ++n) {
    const auto [first, length] = rows.at(7, n);
    EXPECT_EQ(length, 10);
    const auto shard = dataset.shard_of(first);
    EXPECT_LT(first + length, dataset.shard_start(shard + 1)) << "its last target is elsewhere";
    EXPECT_EQ((first - dataset.shard_start(shard)) % 10, 0);
    firsts.push_back(first);
  }
  std::sort(firsts.begin(), firsts.end());
  EXPECT_EQ(std::adjacent_find(firsts.begin(), firsts.end()), firsts.end()) << "one came twice";
  expect_refusal<DataError>("data/batch_rows", "no shard holds a window", {"1001 ", " 97 "}, [&] {
    BatchRows(dataset, {.kind = RowKind::windows, .sequence_length = 97, .shuffle_shards = 2});
  });
}

}  // namespace lockstep::testing::rows_test
