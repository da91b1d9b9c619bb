// Any text becomes ids of the vocabulary that decode to it, except normal form and invalid bytes.
// It may be cut at last_cut, whatever follows. The first byte of the input chooses the tokenizer
// and the length of the text, the rest is the text.
#include <algorithm>
#include <array>
#include <memory>

#include "core/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::encode_fuzz {
constexpr std::size_t kTokenizers = 6;

const Tokenizer& tokenizer(std::size_t i) {
  static const auto all = [] {
    std::vector<std::unique_ptr<Tokenizer>> opened;
    for (const char* name : {"gpt2", "llama3", "qwen3", "smollm2", "smollm3"})
      opened.push_back(open_tokenizer(str(LOCKSTEP_TOKENIZERS "/", name)));
    opened.push_back(open_tokenizer("bytes"));
    return opened;
  }();
  return *all[i];
}

void check(std::string_view input) {
  if (input.empty()) return;
  const std::size_t choice = static_cast<unsigned char>(input.front());
  const auto& with = tokenizer(choice % kTokenizers);
  const auto text = input.substr(1);
  static std::array<Tokenizer::Memory, kTokenizers> memories;
  auto& memory = memories[choice % kTokenizers];
  std::vector<std::int32_t> ids, plain, parts;
  with.encode(text, ids, memory);
  for (const auto id : ids)
    LOCKSTEP_CHECK(0 <= id && id < with.about().vocabulary, "id ", id);
  std::string said = with.about().name == "bytes" ? std::string(text) : replaced_utf8(text);
  std::string decoded = with.decode(ids, Tokenizer::Specials::named);
  if (with.about().name == "qwen3") {  // tokens in the text separate characters that would compose
    said = normalized(said, NormalForm::nfc);
    decoded = normalized(decoded, NormalForm::nfc);
  }
  LOCKSTEP_CHECK(decoded == said, "another text");

  with.encode_plain(text, plain, memory);
  LOCKSTEP_CHECK(
      std::none_of(plain.begin(), plain.end(), [&](auto id) { return with.is_special(id); }),
      "a special token of plain text");

  const auto cut = with.last_cut(text.substr(0, text.size() * (choice / kTokenizers) / 42));
  if (cut == 0) return;
  LOCKSTEP_CHECK(cut <= text.size(), "cut at ", cut);
  with.encode(text.substr(0, cut), parts, memory);
  with.encode(text.substr(cut), parts, memory);
  LOCKSTEP_CHECK(parts == ids, "other tokens in two parts, cut at ", cut);
}

Seeds seeds() {
  std::vector<std::string> all;
  const std::string texts[] = {
      "It's 12,345 \xc3\xa9t\xc3\xa9s; e\xcc\x81 don't\n\n  Stop  here\r\n\tx = f(y)\n",
      "a<|endoftext|>b <|im_start|>user\nHi<think> \xe4\xb8\xad\xe6\x96\x87 \xff\xe2\x82 z\n a"};
  for (std::size_t i = 0; i < kTokenizers; ++i)
    all.push_back(str(static_cast<char>(i + kTokenizers * (20 + 4 * i)), texts[i % 2]));
  return all;
}

const Target target("encode", seeds, check);

}  // namespace lockstep::fuzz::encode_fuzz
