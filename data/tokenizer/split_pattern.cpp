#include "data/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <cstdint>
#include <pcre2.h>
#include <utility>

#include "core/error.h"
#include "data/tokenizer/oniguruma.h"
#include "data/tokenizer/unicode.h"

namespace lockstep {
namespace {

// Limit of backtracking steps of a match: some for each byte, and many for a pattern that scans the
// text repeatedly. Without a limit, a pattern of nested repeats would run forever.
std::uint32_t most_steps(std::size_t bytes) {
  constexpr std::size_t kMost = UINT32_MAX;
  return static_cast<std::uint32_t>(std::min(kMost, (std::size_t{1} << 27) + 32 * bytes));
}

// Memory of a match; one per thread.
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

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

Code compiled(const std::string& pattern, const std::string& text) {
  int error = 0;
  std::size_t at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
  if (code == nullptr)
    throw DataError(str("the pattern ", pattern, " cannot be used: ", text_of(error)));
  // Without it matching is slower, with the same result.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct SplitPattern::Compiled {
  std::string pattern;
  Code code;
  Code newer;  // for texts with newer characters; null: use `code`
};

SplitPattern::SplitPattern(const std::string& pattern) : compiled_(std::make_unique<Compiled>()) {
  compiled_->pattern = pattern;
  const auto text = pcre2_of(pattern, false), newer = pcre2_of(pattern, true);
  compiled_->code = compiled(pattern, text);
  if (newer != text) compiled_->newer = compiled(pattern, newer);
}

SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

bool SplitPattern::may_match_nothing() const {
  std::uint32_t empty = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  return empty != 0;
}

void SplitPattern::split(std::string_view text,
                         FunctionRef<void(std::string_view, bool)> visit) const {
  thread_local Workspace workspace;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto* ends = pcre2_get_ovector_pointer(workspace.match);
  pcre2_set_match_limit(workspace.context, most_steps(text.size()));
  const auto* code = compiled_->newer != nullptr && has_newer_character(text)
                         ? compiled_->newer.get()
                         : compiled_->code.get();
  std::size_t done = 0, from = 0;
  while (from <= text.size()) {
    const int found = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
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
    } else {  // an empty match: continue after the next character
      from = end + 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80)
        ++from;
    }
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), false);
}

}  // namespace lockstep
