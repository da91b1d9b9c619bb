#include "data/pack/text_source.h"

#include <gtest/gtest.h>
#include <random>
#include <sys/stat.h>

#include "tests/data/compressed.h"
#include "tests/data/shards.h"

namespace lockstep::testing::text_source_test {

namespace fs = std::filesystem;

std::string random_text(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  while (text.size() < size)
    text += static_cast<char>(random());
  return text;
}

const std::string kLine = "the cat sat on the mat, and the cat sat on the mat again and again\n";
const std::string kPhrase = kLine + kLine + kLine;

class TextSourceTest : public DirectoryTest {
 protected:
  std::string read(const std::string& bytes, std::size_t piece = 1000, std::int64_t from = 0) {
    write("file", bytes);
    TextSource source(directory_ / "file");
    if (from > 0) source.skip_to(from);
    std::string text, buffer(piece, '\0');
    for (;;) {
      const auto count = source.read(buffer);
      text += buffer.substr(0, count);
      if (count < piece) break;
    }
    EXPECT_EQ(source.bytes_taken(), static_cast<std::int64_t>(bytes.size()));
    return text;
  }
  // Its places depend on the library that reads it, and so do the words behind the last `tail`.
  void expect_damaged(const std::string& name, const std::string& bytes, const std::string& pin,
                      const std::string& tail) {
    auto text = message_of<DataError>([&] { read(bytes); });
    expect_contains(text, at("file: at byte "));
    expect_contains(text, pin);
    if (!tail.empty()) text.resize(text.rfind(tail));
    static const std::regex place("byte [0-9]+");
    expect_wording("data/text_source", name, std::regex_replace(text, place, "byte N"));
  }
};

TEST_F(TextSourceTest, the_first_bytes_determine_the_format) {
  for (const std::string text : {"", "a", "abc", "abcd", "abcde"})
    EXPECT_EQ(read(text), text);
  const auto text = random_text(300'000, 1);
  for (const std::size_t piece : {7u, 1000u, 262'144u, 400'000u}) {
    EXPECT_EQ(read("x" + text, piece), "x" + text);
    EXPECT_EQ(read(gzip_member(text), piece), text);
    EXPECT_EQ(read(zstd_frame(text), piece), text);
  }
  EXPECT_EQ(read(gzip_member("")), "");
  EXPECT_EQ(read(zstd_frame("")), "");
  EXPECT_EQ(read("\x1f"), "\x1f") << "too short for a member";
}

TEST_F(TextSourceTest, members_and_frames_are_concatenated) {
  EXPECT_EQ(read(gzip_member("one ") + gzip_member("") + gzip_member("two")), "one two");
  for (const std::size_t zeros : {1u, 511u, 600'000u})  // as gzip -d
    EXPECT_EQ(read(gzip_member("one ") + gzip_member("two") + std::string(zeros, '\0')), "one two");
  const std::string skipped("\x5a\x2a\x4d\x18\x03\0\0\0xyz", 11);
  EXPECT_EQ(read(skipped + zstd_frame("one ") + skipped + zstd_frame("two") + skipped), "one two");
}

// By gzip 1.12 -9 and zstd 1.5.4 -19.
TEST_F(TextSourceTest, output_of_the_programs_is_read) {
  EXPECT_EQ(
      read(std::string(
          "\037\213\010\000\000\000\000\000\002\003\053\311\110\125\110\116\054\121\050\006\342\374"
          "\074\205\022\040\067\067\261\104\107\041\061\057\005\314\301\224\123\110\114\117\314\314"
          "\003\053\000\263\270\112\006\205\021\000\016\152\162\325\311\000\000\000",
          62)),
      kPhrase);
  EXPECT_EQ(read(std::string(
                "\050\265\057\375\004\150\165\001\000\162\002\010\014\300\075\163\115\211\052\253"
                "\172\157\307\147\010\100\052\127\024\223\237\124\036\055\371\272\276\356\133\370"
                "\055\363\272\016\003\000\003\043\120\321\062\040\136\231\116\056\262\332\370",
                59)),
            kPhrase);
}

TEST_F(TextSourceTest, reading_resumes_at_any_byte) {
  const auto text = str('x', random_text(700'000, 2));
  for (const auto& bytes :
       {text, gzip_member(text.substr(0, 1001)) + gzip_member(text.substr(1001)), zstd_frame(text)})
    for (const std::size_t from : {1u, 3u, 4u, 5u, 1000u, 1001u, 262'144u, 700'001u})
      EXPECT_EQ(read(bytes, 1000, static_cast<std::int64_t>(from)), text.substr(from));
  expect_refusal<DataError>("data/text_source", "behind the end of the text",
                            {"byte 3 ", "expected 4"}, [&] { read(gzip_member("abc"), 1000, 4); });
}

TEST_F(TextSourceTest, every_truncation_is_an_error) {
  const std::string text = "some text that is compressed";
  for (const auto& whole : {gzip_member(text), zstd_frame(text)})
    for (std::size_t size = 4; size < whole.size(); ++size)
      expect_damaged("cut off", whole.substr(0, size), str("at byte ", size, ", "), "");
}

TEST_F(TextSourceTest, damage_is_reported_with_its_byte_in_the_file_and_in_the_text) {
  const auto abc = gzip_member("abc");
  auto checksum = gzip_member(std::string(5'000, 'x'));
  checksum[checksum.size() - 6] ^= 1;
  expect_damaged("gzip", abc + checksum, "byte 5003 of the text", ": ");
  expect_damaged("gzip", abc + "garbage", "byte 3 of the text", ": ");
  auto block = zstd_frame("abc");
  block[6] = '\x07';  // of a kind that there is not
  expect_damaged("zstd", block, "byte 0 of the text", ": ");
  expect_damaged("zstd", zstd_frame("abc") + "garbage", "byte 3 of the text", ": ");
  const auto zeros = abc + std::string(600'000, '\0');
  for (const auto& behind : {std::string("garbage"), abc})
    expect_damaged("something behind zeros", zeros + behind, "byte 3 of the text", "");
  auto dictionary = zstd_frame("abc");
  dictionary[4] |= 1;  // of the header: a byte with the dictionary's number follows the window
  dictionary.insert(6, 1, '\x2a');
  expect_damaged("zstd with a dictionary", dictionary, "zstd -D DICTIONARY -dc", "");
}

TEST_F(TextSourceTest, patterns_select_matching_files) {
  for (const char* name : {"b.txt", "a.txt", "c.md", "[d].txt"})
    write(name, "");
  const auto names = [&](const std::string& pattern) {
    std::string text;
    for (const auto& path : text_files({directory_ / pattern}))
      text += path.filename().string() + " ";
    return text;
  };
  EXPECT_EQ(names("*.txt"), "[d].txt a.txt b.txt ");
  EXPECT_EQ(names("?.[tm][xd]*"), "a.txt b.txt c.md ");
  EXPECT_EQ(names("[d].txt"), "[d].txt ") << "a file of that name comes first";
  expect_refusal<DataError>("data/text_source", "no match", {"*.jsonl"}, [&] { names("*.jsonl"); });
  for (const char* name : {"b_.txt/deep/2", "b_.txt/1.md", "b_.txt/.hidden", "b_.txt/.git/config"})
    write(name, "");
  EXPECT_EQ(names("*.txt"), "[d].txt a.txt b.txt 1.md 2 ") << "a directory is read whole";
}

TEST_F(TextSourceTest, directories_are_read_completely_through_links) {
  for (const char* name : {"in/x/1", "elsewhere/y/2", "elsewhere/3"})
    write(name, "");
  fs::create_directory_symlink(directory_ / "elsewhere", directory_ / "in/a");
  fs::create_symlink(directory_ / "elsewhere/3", directory_ / "in/b");
  fs::create_directory_symlink("../elsewhere/y", directory_ / "in/z");  // not a circle
  const auto files = [&] { return text_files({directory_ / "in"}); };
  EXPECT_EQ(files(), (std::vector<fs::path>{directory_ / "in/a/3", directory_ / "in/a/y/2",
                                            directory_ / "in/b", directory_ / "in/x/1",
                                            directory_ / "in/z/2"}));
  const auto expect_refused_file = [&](const char* name, const std::string& path) {
    expect_refusal<DataError>("data/text_source", name, {fs::path(path).filename().string() + ": "},
                              files);
    fs::remove(directory_ / path);
  };
  fs::create_directory_symlink(directory_ / "in", directory_ / "elsewhere/y/up");
  expect_refused_file("link to a directory around it", "elsewhere/y/up");
  fs::create_symlink("nowhere", directory_ / "in/x/broken");
  expect_refused_file("link to nothing", "in/x/broken");
  fs::create_symlink("circle", directory_ / "in/circle");
  expect_refused_file("link to itself", "in/circle");
  ASSERT_EQ(mkfifo((directory_ / "in/pipe").c_str(), 0600), 0);
  expect_refused_file("pipe", "in/pipe");
  EXPECT_EQ(files().size(), 5u);
}

}  // namespace lockstep::testing::text_source_test
