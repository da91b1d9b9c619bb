#include "data/remote/file_address.h"

#include <charconv>
#include <string_view>

#include "core/error.h"

namespace lockstep {
namespace {

std::string decoded(std::string_view text, const std::string& address) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] != '%') continue;
    const auto digits = text.substr(i + 1, 2);
    unsigned char byte = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2 || byte == 0)
      throw AccessError(str(address,
                            ": expected two hexadecimal digits, not 00, after each %; "
                            "write %25 for the character %"));
    out.back() = static_cast<char>(byte);
    i += 2;
  }
  return out;
}

}  // namespace

std::optional<std::filesystem::path> path_of_file_address(const std::string& address) {
  static constexpr std::string_view kScheme = "file:", kSlashes = "//", kHost = "localhost";
  std::string_view path(address);
  if (!path.starts_with(kScheme)) return std::nullopt;
  path.remove_prefix(kScheme.size());
  if (path.starts_with(kSlashes)) {
    path.remove_prefix(kSlashes.size());
    const auto host = path.substr(0, path.find('/'));
    if (!host.empty() && host != kHost)
      throw AccessError(str(address, ": expected file:///PATH, found \"", host,
                            "\" in the place of a host, which must be empty or localhost"));
    path.remove_prefix(host.size());
  }
  if (!path.starts_with('/'))
    throw AccessError(str(address, ": expected file:///PATH with an absolute path"));
  const auto name = path.rfind('/') + 1;
  return decoded(path.substr(0, name), address) + std::string(path.substr(name));
}

}  // namespace lockstep
