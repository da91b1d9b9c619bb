#include "tests/wording.h"

#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <regex>
#include <sys/file.h>

#include "core/descriptor.h"

namespace lockstep::testing {
namespace {

constexpr std::string_view kArrow = " => ";

// One line, the same on each machine.
std::string normalized(std::string text) {
  const auto parent = std::filesystem::temp_directory_path().string() + "/lockstep-";
  for (std::size_t at = 0; (at = text.find(parent, at)) != text.npos; ++at)
    text.replace(at, parent.size(), "/lockstep-");  // it may have spaces
  static const std::regex temporary(R"([^\s"'=(]*/lockstep-[A-Za-z0-9]{6}\b)");
  text = std::regex_replace(text, temporary, "DIR");
  static const std::regex place(
      R"( \([^() ]*/[a-z0-9_]+\.(cpp|h|cu|cuh):[0-9]+\))");  // in our sources
  text = std::regex_replace(text, place, "");
  static const std::regex port(R"(127\.0\.0\.1:[0-9]+)");  // of a server that the test started
  text = std::regex_replace(text, port, "127.0.0.1:PORT");
  const std::string tests = LOCKSTEP_TESTS_DIRECTORY;
  for (auto at = text.find(tests); at != std::string::npos; at = text.find(tests, at))
    text.replace(at, tests.size(), "TESTS");
  for (std::size_t at = 0; (at = text.find_first_of("\\\n", at)) != std::string::npos; at += 2)
    text.replace(at, 1, text[at] == '\n' ? "\\n" : "\\\\");
  return text;
}

std::map<std::string, std::string> read_lines(const std::filesystem::path& path) {
  std::map<std::string, std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (const auto arrow = line.find(kArrow); arrow != std::string::npos)
      lines[line.substr(0, arrow)] = line.substr(arrow + kArrow.size());
  return lines;
}

// CTest runs several cases at a time: one writes after the other.
void write_line(const std::filesystem::path& path, const std::string& name,
                const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  const Descriptor lock(open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  LOCKSTEP_CHECK(flock(lock.number(), LOCK_EX) == 0, "cannot lock ", path.parent_path().string());
  auto lines = read_lines(path);
  if (const auto old = lines.find(name); old != lines.end() && old->second == text) return;
  lines[name] = text;
  std::string bytes;
  for (const auto& [key, value] : lines)
    bytes += str(key, kArrow, value, "\n");
  spit(path, bytes);
}

}  // namespace

bool is_writing_wording() {
  const char* mode = std::getenv("LOCKSTEP_WORDING");
  return mode != nullptr && std::string(mode) == "write";
}

void expect_wording(const std::string& reader, const std::string& name, const std::string& text) {
  const auto slash = reader.rfind('/');
  const auto path = std::filesystem::path(LOCKSTEP_TESTS_DIRECTORY) / reader.substr(0, slash) /
                    "wording" / (reader.substr(slash + 1) + ".txt");
  ASSERT_EQ(name.find(kArrow), std::string::npos) << name;
  const auto key = normalized(name), message = normalized(text);
  if (is_writing_wording()) return write_line(path, key, message);
  const auto lines = read_lines(path);
  const auto expected = lines.find(key);
  ASSERT_NE(expected, lines.end())
      << path.string() << " has no line " << key << ": run the test with LOCKSTEP_WORDING=write";
  EXPECT_EQ(message, expected->second)
      << path.string() << ", " << name
      << ": if the new wording is right, run the test with LOCKSTEP_WORDING=write";
}

}  // namespace lockstep::testing
