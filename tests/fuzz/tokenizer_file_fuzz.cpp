// Any tokenizer.json, tekken.json or rank file is rejected, or encodes a text and decodes its
// bytes.
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::tokenizer_file_fuzz {
void check(std::string_view text) {
  const auto json = parse_tokenizer(text, "input");
  const BpeTokenizer tokenizer(json, {.name = "fuzz", .hash = "", .vocabulary = json.vocabulary()});
  const std::string sample = "It's 12 \xc3\xa9 <s> \n\n x";
  const auto ids = tokenizer.encode(sample);
  for (const auto id : ids)
    LOCKSTEP_CHECK(0 <= id && id < json.vocabulary(), "id ", id, " of ", json.vocabulary());
  // Nothing else changes the text.
  if (!json.normalizers.empty() || !json.added.empty() || !json.decoded.empty()) return;
  for (const auto& step : json.steps)
    if (step.kind != BpeDefinition::Step::Kind::isolate) return;
  LOCKSTEP_CHECK(tokenizer.decode(ids, Tokenizer::Specials::named) == sample, "another text");
}

// The character for a byte in a vocabulary, computed without the reader.
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

// A tokenizer whose words are first split into characters.
std::string with_fallback(const std::string& members) {
  std::string vocabulary;
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    vocabulary += str("\"<0x", kHex[byte / 16], kHex[byte % 16], ">\":", byte, ',');
  return str("{", members, R"("decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},)",
             R"({"type":"Fuse"}]},"model":{"byte_fallback":true,"vocab":{)", vocabulary,
             R"("I":256,"t":257,"It":258,"\u2581":259},"merges":["I t"]}})");
}

std::string tekken() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string vocabulary;
  for (unsigned byte = 0; byte < 256; ++byte)
    vocabulary += str(R"({"rank":)", byte, R"(,"token_bytes":")", kDigits[byte >> 2],
                      kDigits[byte << 4 & 63], "==\"},");
  return str(R"({"config":{"pattern":"\\w+|\\W","default_vocab_size":257,)",
             R"("default_num_special_tokens":0,"version":"v3"},"special_tokens":[],"vocab":[)",
             vocabulary, R"({"rank":256,"token_bytes":"SXQ="}]})");
}

Seeds seeds() {
  return {
      example(R"({"type":"ByteLevel","add_prefix_space":false})", ""),
      example(
          R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+"},)"
          R"("behavior":"Isolated"},{"type":"ByteLevel","use_regex":false}]})",
          R"({"id":258,"content":"<s>","lstrip":true})"),
      with_fallback(""),
      with_fallback(R"("pre_tokenizer":{"type":"Metaspace","replacement":"\u2581"},)"),
      tekken(),
      "SXQ= 0\nIA== 1\n"};
}

const Target target("tokenizer_file", seeds, check);

}  // namespace lockstep::fuzz::tokenizer_file_fuzz
