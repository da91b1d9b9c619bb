#include "dist/job/frame.h"

#include <gtest/gtest.h>

namespace lockstep::testing::frame_test {

Bytes head(std::uint32_t kind, std::uint32_t tag_bytes, std::uint32_t body_bytes) {
  return BodyWriter()
      .number(kind)
      .number(std::int32_t{0})
      .number(tag_bytes)
      .number(body_bytes)
      .take();
}

TEST(Frame, reads_back_however_it_is_cut) {
  Bytes all;
  append(all, {FrameKind::message, 3, "tag", as_bytes("body")});
  append(all, {FrameKind::goodbye, -1, "", {}});
  append(all, {FrameKind::verdict, 7, std::string(kMostTagBytes, 't'), Bytes(1000)});
  for (const std::size_t piece : {1u, 2u, 7u, 16u, 19u, 1000u, 5000u}) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      reader.add(std::span(all).subspan(at, std::min(piece, all.size() - at)));
      while (auto frame = reader.next())
        frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 3u) << "in pieces of " << piece;
    EXPECT_EQ(frames[0].peer, 3);
    EXPECT_EQ(frames[0].tag, "tag");
    EXPECT_EQ(as_text(frames[0].body), "body");
    EXPECT_EQ(frames[1].kind, FrameKind::goodbye);
    EXPECT_EQ(frames[2].body.size(), 1000u);
  }
}

TEST(Frame, over_a_limit_is_rejected_by_its_head) {
  for (const auto& wrong : {head(0, 0, 0), head(9, 0, 0), head(1, kMostTagBytes + 1, 0),
                            head(1, 0, kMostMessageBytes + 1), head(1, 0xffffffff, 0xffffffff)}) {
    FrameReader reader;
    reader.add(wrong);
    EXPECT_THROW(reader.next(), DataError);
  }
  FrameReader reader;
  reader.add(head(1, kMostTagBytes, kMostMessageBytes));
  EXPECT_FALSE(reader.next().has_value());
}

TEST(Frame, too_large_to_be_read_is_not_written) {
  Bytes out;
  EXPECT_THROW(append(out, {FrameKind::message, 0, std::string(kMostTagBytes + 1, 't'), {}}),
               Error);
  EXPECT_THROW(append(out, {FrameKind::message, 0, "", Bytes(kMostMessageBytes + 1)}), Error);
  EXPECT_TRUE(out.empty());
}

TEST(Frame, body_that_is_too_short_is_rejected) {
  const auto body = BodyWriter().number(std::uint32_t{7}).text("text").take();
  BodyReader whole(body);
  EXPECT_EQ(whole.number<std::uint32_t>(), 7u);
  EXPECT_EQ(whole.text(), "text");
  EXPECT_TRUE(whole.at_end());
  for (std::size_t n = 0; n < body.size(); ++n) {
    const auto some = std::span(body).first(n);
    BodyReader reader(some);
    EXPECT_THROW(
        {
          reader.number<std::uint32_t>();
          reader.text();
        },
        DataError)
        << n;
  }
}

}  // namespace lockstep::testing::frame_test
