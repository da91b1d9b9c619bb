#include "core/file.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <sys/resource.h>
#include <sys/stat.h>
#include <typeinfo>

#include "tests/wording.h"

namespace lockstep::testing::file_test {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

int entries(const std::filesystem::path& directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

std::string pattern(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i)
    text[i] = static_cast<char>(i * 2654435761u >> 16);
  return text;
}

// Calls `act` with a file size limit of `most_bytes`. main() ignores SIGXFSZ, which would end the
// process.
template <class Act>
void with_file_limit(rlim_t most_bytes, const Act& act) {
  rlimit kept{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &kept), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{most_bytes, kept.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::exception_ptr error;
  try {
    act();
  } catch (...) {
    error = std::current_exception();
  }
  setrlimit(RLIMIT_FSIZE, &kept);
  std::signal(SIGXFSZ, handler);
  if (error) std::rethrow_exception(error);
}

TEST(ReadFile, reads_any_range_and_no_byte_beyond) {
  const TemporaryDirectory directory;
  spit(directory / "a", "0123456789");
  const ReadFile file(directory / "a");
  EXPECT_EQ(file.size_bytes(), 10);
  std::string two(2, ' ');
  const auto bytes = std::as_writable_bytes(std::span(two));
  for (std::int64_t offset = 0; offset <= 8; ++offset) {
    file.read(bytes, offset);
    EXPECT_EQ(two, std::string("0123456789").substr(static_cast<std::size_t>(offset), 2));
  }
  file.read({}, 10);
  for (const std::int64_t offset : {std::int64_t{9}, INT64_MAX, std::int64_t{-1}})
    expect_refusal<DataError>("core/file", str("read at ", offset), {str("a: at byte ", offset)},
                              [&] { file.read(bytes, offset); });
  ASSERT_EQ(truncate((directory / "a").c_str(), 4), 0);
  expect_refusal<DataError>("core/file", "a file that shrinks", {"a: at byte 4: "}, [&] {
    std::string all(10, ' ');
    file.read(std::as_writable_bytes(std::span(all)), 0);
  });
}

TEST(ReadFile, names_the_path_that_cannot_be_opened) {
  const TemporaryDirectory directory;
  make_directories(directory / "folder");
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  for (const char* name : {"absent", "folder", "pipe"})
    expect_refusal<DataError>("core/file", str("open ", name), {str("/", name, ": ")},
                              [&] { const ReadFile file(directory / name); });
}

TEST(ReadText, rejects_more_than_the_limit) {
  const TemporaryDirectory directory;
  spit(directory / "a", "0123456789");
  EXPECT_EQ(read_text(directory / "a", 10), "0123456789");
  expect_refusal<DataError>("core/file", "above the limit", {"/a: ", "9 bytes", "10"},
                            [&] { read_text(directory / "a", 9); });
}

TEST(WriteFile, has_its_name_only_after_commit_and_is_removed_without_it) {
  const TemporaryDirectory directory;
  spit(directory / "a", "old");
  for (const bool commit : {false, true}) {
    WriteFile file(directory / "a");
    file.write(bytes_of("new "));
    file.write(bytes_of("text"));
    EXPECT_EQ(file.size_bytes(), 8);
    file.write_at(bytes_of("N"), 0);
    EXPECT_EQ(slurp(directory / "a"), "old");
    EXPECT_EQ(entries(directory.path()), 2);
    if (commit) file.commit();
  }
  EXPECT_EQ(slurp(directory / "a"), "New text");
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(WriteFile, a_full_disk_is_reported_and_keeps_the_old_file) {
  const TemporaryDirectory directory;
  spit(directory / "a", "old");
  std::filesystem::create_symlink("/dev/full", directory / str("a.tmp-", getpid()));
  expect_refusal<StorageError>("core/file", "a full disk", {"/a: ", "at byte 0"},
                               [&] { write_text(directory / "a", "new"); });
  EXPECT_EQ(slurp(directory / "a"), "old");
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(WriteFile, a_disk_that_fills_up_keeps_the_old_file) {
  const SmallDisk disk(std::int64_t{64} << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  write_text(disk.path() / "old", "old");
  EXPECT_THROW(write_text(disk.path() / "a", std::string(1 << 20, 'x')), DataError);
  EXPECT_EQ(slurp(disk.path() / "old"), "old");
  EXPECT_EQ(entries(disk.path()), 1);
}

// The first call writes 10 of 12 bytes, the second fails: the error has the offset 10.
TEST(WriteFile, a_partial_write_is_completed_and_a_file_size_limit_is_an_error) {
  const TemporaryDirectory directory;
  expect_refusal<StorageError>("core/file", "beyond ulimit -f", {"/a: ", "at byte 10", "ulimit -f"},
                               [&] {
                                 WriteFile file(directory / "a");
                                 with_file_limit(10, [&] { file.write(bytes_of("0123456789ab")); });
                               });
  EXPECT_EQ(entries(directory.path()), 0);
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
  expect_refusal<DataError>("core/file", "write to a loop of links", {"loop: "},
                            [&] { write_text(directory / "loop", "x"); });
}

TEST(WriteFile, only_regular_files_are_replaced) {
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
  for (const char* name : {"pipe", "folder"})
    expect_refusal<DataError>("core/file", str("write to ", name), {str("/", name, ": ")},
                              [&] { const WriteFile file(directory / name); });
  EXPECT_TRUE(std::filesystem::is_fifo(pipe) && std::filesystem::is_directory(folder));
  EXPECT_EQ(entries(directory.path()), 2);
}

// Runs on a disk and in a memory file system, which may not support direct writes.
TEST(RangeWriter, direct_writes_store_the_given_bytes_for_all_piece_sizes) {
  for (const char* where : {".", "/dev/shm"})
    for (const std::size_t piece : {std::size_t{1000}, std::size_t{4096}, std::size_t{5} << 20})
      for (const std::size_t size : {std::size_t{0}, std::size_t{5000}, std::size_t{8} << 20,
                                     (std::size_t{9} << 20) + 4096, (std::size_t{9} << 20) + 7}) {
        SCOPED_TRACE(str(where, " ", piece, " ", size));
        const TemporaryDirectory directory(where);
        const auto text = pattern(size);
        RangeWriter file(directory / "a", "a", RangeWriter::Way::direct, RangeWriter::Start::empty);
        for (std::size_t at = 0; at < size; at += piece)
          file.write(bytes_of(std::string_view(text).substr(at, piece)));
        file.commit();
        EXPECT_TRUE(slurp(directory / "a") == text);
        EXPECT_EQ(entries(directory.path()), 1);
      }
}

// A limit inside a block can be reached only if the rest is written through the cache.
TEST(RangeWriter, continues_through_the_cache_after_a_direct_write_ends_inside_a_block) {
  const TemporaryDirectory directory(".");
  RangeWriter file(directory / "a", "a", RangeWriter::Way::direct, RangeWriter::Start::empty);
  expect_refusal<StorageError>("core/file", "a direct write beyond ulimit -f", {"at byte 5000"},
                               [&] {
                                 with_file_limit(5000, [&] {
                                   file.write(bytes_of(std::string(std::size_t{9} << 20, 'x')));
                                   file.commit();
                                 });
                               });
}

// Ranges begin and end inside blocks, and each has its own writer.
TEST(RangeWriter, ranges_of_one_file_may_meet_at_any_byte) {
  for (const auto way : {RangeWriter::Way::cached, RangeWriter::Way::direct}) {
    const TemporaryDirectory directory(".");
    const auto path = directory / "a";
    const auto text = pattern((std::size_t{20} << 20) + 333);
    const std::size_t borders[] = {0,          100, 4096, 4097, 9000, (std::size_t{9} << 20) + 5,
                                   text.size()};
    for (std::size_t first : {1u, 0u}) {  // every second range, then the ones between
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

TEST(Directories, are_created_and_renamed) {
  const TemporaryDirectory directory;
  const auto path = [&](const char* name) { return directory / name; };
  for (int again = 0; again < 2; ++again)
    make_directories(path("a/b/c"));
  EXPECT_TRUE(std::filesystem::is_directory(path("a/b/c")));
  rename_durably(path("a/b"), path("to"));
  EXPECT_TRUE(std::filesystem::is_directory(path("to/c")));
  spit(path("file"), "");
  struct Case {
    const char *name, *pin;
    std::function<void()> act;
  };
  const Case cases[] = {
      {"write into no directory", "no/a", [&] { write_text(path("no/a"), "text"); }},
      {"make below a file", "file", [&] { make_directories(path("file/b")); }},
      {"make one in none", "gone/b: ", [&] { make_directory(path("gone/b")); }},
      {"rename what is not there", "to", [&] { rename_durably(path("from"), path("to")); }},
  };
  for (const auto& c : cases)
    expect_refusal<DataError>("core/file", c.name, {c.pin}, c.act);
  EXPECT_FALSE(path_exists(path("gone")));
}

TEST(Directories, a_missing_path_is_a_result_and_an_inaccessible_one_an_error) {
  const TemporaryDirectory directory;
  spit(directory / "file", "x");
  make_directories(directory / "d/e");
  EXPECT_TRUE(path_exists(directory / "file") && directory_exists(directory / "d"));
  EXPECT_FALSE(path_exists(directory / "no") || path_exists(directory / "file/no") ||
               directory_exists(directory / "file"));
  const auto d = directory / "d", file = directory / "file";
  EXPECT_EQ(directory_entries(directory.path()), (std::vector{d, file}));
  expect_refusal<DataError>("core/file", "entries of none", {"/no: "},
                            [&] { directory_entries(directory / "no"); });
  chmod(directory.path().c_str(), 0);
  std::vector<std::string> refused;
  {
    const AsNobody nobody;
    refused = {message_of<AccessError>([&] { path_exists(file); }),
               message_of<AccessError>([&] { directory_exists(d); }),
               message_of<AccessError>([&] { directory_entries(directory.path()); })};
  }
  expect_wording("core/file", "may not look at a path", refused[0]);
  expect_wording("core/file", "may not look at a directory", refused[1]);
  expect_wording("core/file", "may not read a directory", refused[2]);
}

// The type of an error decides the exit code, and whether contents count as invalid.
TEST(FailIo, storage_errors_differ_from_errors_of_contents_paths_and_permissions) {
  struct Case {
    int error;
    const std::type_info& type;
    int exit_code;
  };
  const Case cases[] = {
      {EIO, typeid(StorageError), 74},
      {ENOSPC, typeid(StorageError), 74},
      {EDQUOT, typeid(StorageError), 74},
      {EFBIG, typeid(StorageError), 74},
      {EMFILE, typeid(StorageError), 74},
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
      const std::string reason = strerrorname_np(c.error);
      EXPECT_EQ(typeid(error), c.type) << reason;
      EXPECT_EQ(error.exit_code(), c.exit_code) << reason;
      expect_wording("core/file", reason, error.what());
    }
}

TEST(IsNamed, is_false_for_a_removed_moved_or_replaced_file) {
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

TEST(ForEachLine, gives_complete_lines_of_any_length) {
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

TEST(LastLine, is_complete_and_not_too_long) {
  const TemporaryDirectory directory;
  const auto file = directory / "lines";
  EXPECT_FALSE(last_line(file, 100).has_value());
  const auto last = [&](const std::string& text, std::int64_t most = 100) {
    spit(file, text);
    return last_line(file, most).value_or("none");
  };
  EXPECT_EQ(last(""), "none");
  EXPECT_EQ(last("no end"), "none");
  EXPECT_EQ(last("one\n"), "one");
  EXPECT_EQ(last("one\ntwo\nthr"), "two");
  EXPECT_EQ(last("one\n\n"), "");
  EXPECT_EQ(last("one\nlonger\n", 8), "longer");
  EXPECT_EQ(last("one\nlonger\n", 7), "none");
}

}  // namespace lockstep::testing::file_test
