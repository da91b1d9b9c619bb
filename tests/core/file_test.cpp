#include "core/file.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <typeinfo>

#include "tests/files.h"

namespace lockstep::file_test {

using testing::AsNobody;
using testing::expect_contains;
using testing::message_of;
using testing::slurp;
using testing::spit;
using testing::TemporaryDirectory;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

int entries(const std::filesystem::path& directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

TEST(ReadFile, reads_any_range_and_no_byte_beyond) {
  const TemporaryDirectory directory;
  spit(directory / "a", "0123456789");
  const ReadFile file(directory / "a");
  EXPECT_EQ(file.size_bytes(), 10);
  std::string two(2, ' ');
  for (std::int64_t offset = 0; offset <= 8; ++offset) {
    file.read(std::as_writable_bytes(std::span(two)), offset);
    EXPECT_EQ(two, std::string("0123456789").substr(static_cast<std::size_t>(offset), 2));
  }
  const auto read_at = [&](std::int64_t offset) {
    return message_of<DataError>(
        [&] { file.read(std::as_writable_bytes(std::span(two)), offset); });
  };
  expect_contains(read_at(9), "a: at byte 9: expected 2 bytes, but the file has 10");
  expect_contains(read_at(INT64_MAX), "at byte 9223372036854775807");
  expect_contains(read_at(-1), "at byte -1: expected 2 bytes");
  file.read({}, 10);
}

TEST(ReadFile, notices_a_file_that_shrinks) {
  const TemporaryDirectory directory;
  spit(directory / "a", "0123456789");
  const ReadFile file(directory / "a");
  ASSERT_EQ(truncate((directory / "a").c_str(), 4), 0);
  std::string all(10, ' ');
  expect_contains(
      message_of<DataError>([&] { file.read(std::as_writable_bytes(std::span(all)), 0); }),
      "at byte 4: the file became shorter");
}

TEST(ReadFile, names_what_cannot_be_opened) {
  const TemporaryDirectory directory;
  const auto open = [&](const std::string& name) {
    return message_of<DataError>([&] { const ReadFile file(directory / name); });
  };
  expect_contains(open("absent"), "absent: cannot open: No such file");
  ASSERT_TRUE(std::filesystem::create_directory(directory / "folder"));
  expect_contains(open("folder"), "folder: expected a regular file, found a directory");
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  expect_contains(open("pipe"), "pipe: expected a regular file");
}

TEST(ReadText, refuses_more_than_the_limit) {
  const TemporaryDirectory directory;
  spit(directory / "a", "0123456789");
  EXPECT_EQ(read_text(directory / "a", 10), "0123456789");
  expect_contains(message_of<DataError>([&] { read_text(directory / "a", 9); }),
                  "expected at most 9 bytes, but the file has 10");
}

TEST(WriteFile, has_its_name_only_after_commit) {
  const TemporaryDirectory directory;
  spit(directory / "a", "old");
  {
    WriteFile file(directory / "a");
    file.write(bytes_of("new "));
    file.write(bytes_of("text"));
    EXPECT_EQ(file.size_bytes(), 8);
    file.write_at(bytes_of("N"), 0);
    EXPECT_EQ(slurp(directory / "a"), "old");
    file.commit();
  }
  EXPECT_EQ(slurp(directory / "a"), "New text");
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(WriteFile, leaves_nothing_without_commit) {
  const TemporaryDirectory directory;
  {
    WriteFile file(directory / "a");
    file.write(bytes_of("text"));
    EXPECT_EQ(entries(directory.path()), 1);
  }
  EXPECT_EQ(entries(directory.path()), 0);
}

TEST(WriteFile, a_full_disk_is_said_and_leaves_the_old_file) {
  const TemporaryDirectory directory;
  spit(directory / "a", "old");
  std::filesystem::create_symlink("/dev/full", directory / str("a.tmp-", getpid()));
  const auto write = [&] { write_text(directory / "a", "new"); };
  const std::string message = message_of<DataError>(write);
  expect_contains(message, "a: cannot write at byte 0: No space left on device; free some space");
  EXPECT_EQ(slurp(directory / "a"), "old");
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(WriteFile, a_disk_that_fills_up_leaves_the_old_file) {
  const testing::SmallDisk disk(std::int64_t{64} << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  write_text(disk.path() / "old", "old");
  EXPECT_THROW(write_text(disk.path() / "a", std::string(1 << 20, 'x')), DataError);
  EXPECT_EQ(slurp(disk.path() / "old"), "old");
  EXPECT_EQ(entries(disk.path()), 1);
}

TEST(WriteFile, completes_what_the_system_wrote_in_part) {
  const TemporaryDirectory directory;
  rlimit kept{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &kept), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  WriteFile file(directory / "a");
  const rlimit small{10, kept.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  // The first call writes 10 of 12 bytes, the second fails: the error counts from there.
  const auto message = message_of<Error>([&] { file.write(bytes_of("0123456789ab")); });
  setrlimit(RLIMIT_FSIZE, &kept);
  std::signal(SIGXFSZ, handler);
  expect_contains(message, "cannot write at byte 10: File too large");
}

TEST(WriteFile, a_symbolic_link_stays_one_and_its_target_is_written) {
  const TemporaryDirectory directory;
  make_directories(directory / "there");
  spit(directory / "there/a", "old");
  std::filesystem::create_symlink("there/a", directory / "link");
  std::filesystem::create_symlink("link", directory / "second");
  std::filesystem::create_symlink(directory / "there/b", directory / "to_none");
  write_text(directory / "second", "new");
  write_text(directory / "to_none", "b");
  for (const char* name : {"link", "second", "to_none"})
    EXPECT_TRUE(std::filesystem::is_symlink(directory / name)) << name;
  EXPECT_EQ(slurp(directory / "there/a"), "new");
  EXPECT_EQ(slurp(directory / "there/b"), "b");
  EXPECT_EQ(entries(directory / "there"), 2);
  std::filesystem::create_symlink("loop", directory / "loop");
  expect_contains(message_of<DataError>([&] { write_text(directory / "loop", "x"); }), "loop: ");
}

TEST(WriteFile, what_is_no_file_is_never_replaced) {
  const TemporaryDirectory directory;
  const auto pipe = directory / "pipe", folder = directory / "folder";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  make_directories(folder);
  const int reader = open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  write_text(pipe, "text");
  std::string got(8, ' ');
  EXPECT_EQ(::read(reader, got.data(), got.size()), 4);
  EXPECT_EQ(got.substr(0, 4), "text");
  close(reader);
  const auto message = [&](const std::filesystem::path& path) {
    return message_of<DataError>([&] { const WriteFile file(path); });
  };
  expect_contains(message(pipe), "pipe: expected a regular file or none, found something else");
  expect_contains(message(folder), "folder: expected a regular file or none, found a directory");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe) && std::filesystem::is_directory(folder));
  EXPECT_EQ(entries(directory.path()), 2);
}

// Where files are on a disk, and in memory, which may not offer it.
TEST(RangeWriter, directly_written_bytes_are_what_was_given_whatever_the_pieces) {
  for (const char* where : {".", "/dev/shm"})
    for (const std::size_t piece : {std::size_t{1000}, std::size_t{4096}, std::size_t{5} << 20})
      for (const std::size_t size : {std::size_t{0}, std::size_t{5000}, std::size_t{8} << 20,
                                     (std::size_t{17} << 20) + 4096, (std::size_t{9} << 20) + 7}) {
        SCOPED_TRACE(str(where, " ", piece, " ", size));
        const TemporaryDirectory directory(where);
        std::string text(size, ' ');
        for (std::size_t i = 0; i < size; ++i)
          text[i] = static_cast<char>(i * 2654435761u >> 16);
        RangeWriter file(directory / "a", "a", RangeWriter::Way::direct, RangeWriter::Start::empty);
        for (std::size_t at = 0; at < size; at += piece)
          file.write(bytes_of(text.substr(at, piece)));
        file.commit();
        EXPECT_TRUE(slurp(directory / "a") == text);
        EXPECT_EQ(entries(directory.path()), 1);
      }
}

// A limit inside a block: it can be reached only where the rest is written through the cache.
TEST(RangeWriter, goes_on_through_the_cache_where_a_direct_write_ended_inside_a_block) {
  const TemporaryDirectory directory(".");
  rlimit kept{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &kept), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  RangeWriter file(directory / "a", "a", RangeWriter::Way::direct, RangeWriter::Start::empty);
  const rlimit small{5000, kept.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto message = message_of<Error>([&] {
    file.write(bytes_of(std::string(std::size_t{9} << 20, 'x')));
    file.commit();
  });
  setrlimit(RLIMIT_FSIZE, &kept);
  std::signal(SIGXFSZ, handler);
  expect_contains(message, "cannot write at byte 5000: File too large");
}

// Ranges that begin and end inside blocks, each by a writer of its own.
TEST(RangeWriter, ranges_of_one_file_meet_anywhere) {
  for (const auto way : {RangeWriter::Way::cached, RangeWriter::Way::direct}) {
    const TemporaryDirectory directory(".");
    const auto path = directory / "a";
    std::string text((std::size_t{20} << 20) + 333, ' ');
    for (std::size_t i = 0; i < text.size(); ++i)
      text[i] = static_cast<char>(i * 2654435761u >> 16);
    const std::size_t borders[] = {0,          100, 4096, 4097, 9000, (std::size_t{9} << 20) + 5,
                                   text.size()};
    for (std::size_t first : {1u, 0u}) {  // every other range, then those between
      RangeWriter writer(path, path, way, RangeWriter::Start::shared);
      for (auto i = first; i + 1 < std::size(borders); i += 2) {
        writer.seek(static_cast<std::int64_t>(borders[i]));
        const auto size = borders[i + 1] - borders[i];
        writer.write(bytes_of(text.substr(borders[i], size / 3)));
        writer.write(bytes_of(text.substr(borders[i] + size / 3, size - size / 3)));
      }
      writer.commit();
    }
    EXPECT_TRUE(slurp(path) == text);
  }
}

TEST(WriteFile, names_a_directory_that_is_not_there) {
  const TemporaryDirectory directory;
  expect_contains(message_of<Error>([&] { write_text(directory / "no" / "a", "text"); }),
                  "cannot create: No such file or directory");
}

TEST(MakeDirectories, makes_all_levels_and_takes_those_that_are_there) {
  const TemporaryDirectory directory;
  make_directories(directory / "a/b/c");
  make_directories(directory / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(directory / "a/b/c"));
  spit(directory / "file", "");
  expect_contains(message_of<Error>([&] { make_directories(directory / "file/b"); }), "file");
}

TEST(RenameDurably, renames_directories_and_says_why_it_cannot) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "from");
  rename_durably(directory / "from", directory / "to");
  EXPECT_TRUE(std::filesystem::is_directory(directory / "to"));
  expect_contains(message_of<Error>([&] { rename_durably(directory / "from", directory / "to"); }),
                  "cannot rename to");
}

TEST(Directories, what_is_not_there_is_an_answer_and_what_cannot_be_looked_at_an_error) {
  const TemporaryDirectory directory;
  spit(directory / "file", "x");
  make_directories(directory / "d/e");
  EXPECT_TRUE(path_exists(directory / "file") && directory_exists(directory / "d"));
  EXPECT_FALSE(path_exists(directory / "no") || path_exists(directory / "file/no") ||
               directory_exists(directory / "file"));
  const auto d = directory / "d", file = directory / "file";
  EXPECT_EQ(directory_entries(directory.path()), (std::vector{d, file}));
  expect_contains(message_of<DataError>([&] { directory_entries(directory / "no"); }),
                  "no: cannot read the directory: No such file");
  chmod(directory.path().c_str(), 0);
  const AsNobody nobody;
  expect_contains(message_of<AccessError>([&] { path_exists(file); }),
                  "file: cannot look at it: Permission denied");
  expect_contains(message_of<AccessError>([&] { directory_exists(d); }), "Permission denied");
  expect_contains(message_of<AccessError>([&] { directory_entries(directory.path()); }),
                  "cannot read the directory: Permission denied");
}

// What the type of an error decides: the exit code, and whether the error says that contents are
// bad.
TEST(FailIo, errors_of_storage_are_not_those_of_contents_paths_or_permissions) {
  struct Case {
    int error;
    const std::type_info& type;
    int exit_code;
    const char* advice = "";
  };
  const Case cases[] = {
      {EIO, typeid(StorageError), 74},
      {ENOSPC, typeid(StorageError), 74, "; free some space or choose another directory"},
      {EDQUOT, typeid(StorageError), 74, "; free some space or choose another directory"},
      {EFBIG, typeid(StorageError), 74, "; raise the limit of file sizes (ulimit -f), or choose"},
      {EMFILE, typeid(StorageError), 74, "; raise the limit of open files (ulimit -n)"},
      {EROFS, typeid(StorageError), 74},
      {ESTALE, typeid(StorageError), 74},
      {ENOTCONN, typeid(StorageError), 74},  // a FUSE file system whose process has ended
      {ETIMEDOUT, typeid(StorageError), 74},
      {ENOENT, typeid(DataError), 65},
      {ENOTDIR, typeid(DataError), 65},
      {ELOOP, typeid(AccessError), 65},
      {EACCES, typeid(RefusedError), 77},
      {EPERM, typeid(RefusedError), 77},
  };
  for (const auto& c : cases)
    try {
      fail_io("run/file", "cannot write", c.error);
    } catch (const DataError& error) {
      const std::string reason = std::strerror(c.error);
      EXPECT_EQ(typeid(error), c.type) << reason;
      EXPECT_EQ(error.exit_code(), c.exit_code) << reason;
      expect_contains(error.what(), "run/file: cannot write: " + reason + c.advice);
    }
}

// SIGXFSZ, which would end the process, is ignored by main().
TEST(FailIo, a_limit_of_file_sizes_is_an_error_that_names_it) {
  const TemporaryDirectory directory;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto message =
      message_of<StorageError>([&] { write_text(directory / "a", std::string(2000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  expect_contains(message, "a: cannot write at byte 1000: File too large; raise the limit of file");
  EXPECT_EQ(entries(directory.path()), 0);
}

TEST(IsNamed, what_was_removed_moved_or_replaced_is_not) {
  const TemporaryDirectory directory;
  const auto path = directory / "d/file";
  const auto named_after = [&](const auto& change) {
    std::filesystem::remove_all(directory / "d");
    make_directories(directory / "d");
    spit(path, "x");
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    change();
    const bool named = is_named(descriptor, path);
    close(descriptor);
    return named;
  };
  EXPECT_TRUE(named_after([&] { std::ofstream(path, std::ios::app) << "more"; }));
  EXPECT_FALSE(named_after([&] { std::filesystem::remove(path); }));
  EXPECT_FALSE(named_after([&] { std::filesystem::remove_all(directory / "d"); }));
  EXPECT_FALSE(named_after([&] { write_text(path, "x"); }));
  EXPECT_FALSE(named_after([&] {
    std::filesystem::remove_all(directory / "moved");
    std::filesystem::rename(directory / "d", directory / "moved");
    make_directories(directory / "d");
    spit(path, "x");
  }));
  EXPECT_FALSE(named_after([&] {
    std::filesystem::remove_all(directory / "d");
    spit(directory / "d", "a file");
  }));
}

TEST(MakeDirectory, what_it_lies_in_is_not_made_again) {
  const TemporaryDirectory directory;
  make_directory(directory / "a");
  expect_contains(message_of<DataError>([&] { make_directory(directory / "gone/b"); }),
                  "gone/b: cannot create the directory: No such file or directory");
  EXPECT_FALSE(path_exists(directory / "gone"));
}

TEST(ForEachLine, gives_lines_that_have_an_end_whatever_their_length) {
  const TemporaryDirectory directory;
  const std::string longest(3 << 20, 'x');
  spit(directory / "a", "one\n\n" + longest + "\ntwo\nno end");
  std::vector<std::string> lines;
  const ReadFile file(directory / "a");
  for_each_line(file, [&](std::string_view line) {
    lines.emplace_back(line);
    return true;
  });
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", longest, "two"}));
  int count = 0;
  for_each_line(file, [&](std::string_view) { return ++count < 2; });
  EXPECT_EQ(count, 2);
}

TEST(LastLine, is_one_that_has_an_end_and_is_not_too_long) {
  const TemporaryDirectory directory;
  const auto file = directory / "lines";
  EXPECT_FALSE(last_line(file, 100).has_value());
  const auto last = [&](const std::string& text, std::int64_t most) {
    spit(file, text);
    return last_line(file, most);
  };
  EXPECT_FALSE(last("", 100).has_value());
  EXPECT_FALSE(last("no end", 100).has_value());
  EXPECT_EQ(last("one\n", 100), "one");
  EXPECT_EQ(last("one\ntwo\nthr", 100), "two");
  EXPECT_EQ(last("one\n\n", 100), "");
  EXPECT_EQ(last("one\nlonger\n", 8), "longer");
  EXPECT_FALSE(last("one\nlonger\n", 7).has_value());
}

}  // namespace lockstep::file_test
