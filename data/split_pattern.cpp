#include "data/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utility>

#include "core/error.h"

namespace lockstep {
namespace {

// Unicode's White_Space, as Oniguruma takes \s; PCRE2's has U+180E too.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// \s and \S in the terms of kSpaces. Within a class \S has no such terms: there it stays PCRE2's.
std::string with_spaces(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's')
        out += in_class ? std::string(kSpaces) : str('[', kSpaces, ']');
      else if (next == 'S' && !in_class)
        out += str("[^", kSpaces, ']');
      else
        out += {c, next};
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

// What a match needs beside the pattern; one of each thread.
struct Workspace {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack =
      pcre2_jit_stack_create(std::size_t{32} << 10, std::size_t{64} << 20, nullptr);
  Workspace() {
    if (match == nullptr || context == nullptr || stack == nullptr) throw std::bad_alloc();
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

std::string text_of(int error) {
  std::string text(256, '\0');
  const int count =
      pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

}  // namespace

struct SplitPattern::Compiled {
  pcre2_code* code = nullptr;
  std::string pattern;
  ~Compiled() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern(const std::string& pattern) : compiled_(std::make_unique<Compiled>()) {
  compiled_->pattern = pattern;
  const auto text = with_spaces(pattern);
  int error = 0;
  std::size_t at = 0;
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                  PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
  if (compiled_->code == nullptr)
    throw DataError(str("the pattern ", pattern, " cannot be used: ", text_of(error)));
  // Without it matching is slower, and the same.
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
}

SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

void SplitPattern::split(std::string_view text,
                         FunctionRef<void(std::string_view, bool)> visit) const {
  thread_local Workspace workspace;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto* ends = pcre2_get_ovector_pointer(workspace.match);
  std::size_t done = 0, from = 0;
  while (from <= text.size()) {
    const int found = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                  workspace.match, workspace.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw DataError(str("the pattern ", compiled_->pattern, " fails at byte ", from,
                          " of a text: ", text_of(found)));
    const std::size_t begin = ends[0], end = ends[1];
    if (begin > done) visit(text.substr(done, begin - done), false);
    if (end > begin) {
      visit(text.substr(begin, end - begin), true);
      from = end;
    } else {  // of nothing: on behind the next character
      from = end + 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80)
        ++from;
    }
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), false);
}

}  // namespace lockstep
