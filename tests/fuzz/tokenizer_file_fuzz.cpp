// Any tokenizer.json is refused, or encodes a text and gives its bytes back.
#include "data/bpe_tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

void check(std::string_view text) {
  const auto json = parse_tokenizer_json(text, "input");
  const BpeTokenizer tokenizer(json, {.name = "fuzz", .hash = "", .vocabulary = json.vocabulary()});
  const std::string sample = "It's 12 \xc3\xa9 <s> \n\n x";
  const auto ids = tokenizer.encode(sample);
  for (const auto id : ids)
    LOCKSTEP_CHECK(0 <= id && id < json.vocabulary(), "id ", id, " of ", json.vocabulary());
  // Nothing else changes what the text says.
  if (!json.forms.empty() || !json.added.empty()) return;
  for (const auto& step : json.steps)
    if (step.kind != TokenizerJson::Step::Kind::isolate) return;
  LOCKSTEP_CHECK(tokenizer.decode(ids, Tokenizer::Specials::named) == sample, "another text");
}

// The character by which a vocabulary writes a byte (as the reader has it, of its own).
std::string written(int byte) {
  int code = byte;
  if (byte <= 0x20)
    code = 0x100 + byte;
  else if (0x7f <= byte && byte <= 0xa0)
    code = 0x100 + 33 + byte - 0x7f;
  else if (byte == 0xad)
    code = 0x100 + 67;
  if (code == '"' || code == '\\') return {'\\', static_cast<char>(code)};
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::string example(const std::string& words, const std::string& more) {
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary += str('"', written(byte), "\":", byte, ',');
  return str(R"({"added_tokens":[)", more, R"(],"normalizer":null,"pre_tokenizer":)", words,
             R"(,"model":{"type":"BPE","vocab":{)", vocabulary,
             R"("It":256,"\u0120x":257},"merges":["I t",["\u0120","x"]]}})");
}

}  // namespace

std::vector<std::string> seeds() {
  return {
      example(R"({"type":"ByteLevel","add_prefix_space":false})", ""),
      example(
          R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+"},)"
          R"("behavior":"Isolated"},{"type":"ByteLevel","use_regex":false}]})",
          R"({"id":258,"content":"<s>","lstrip":true})")};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::check_text(lockstep::fuzz::check, data, size);
}
