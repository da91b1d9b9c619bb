#include "train/infer/answer.h"

#include <algorithm>
#include <utility>

namespace lockstep {

Stops::Stops(const Tokenizer& tokenizer, std::vector<std::string> of_texts)
    : texts(std::move(of_texts)) {
  if (texts.empty()) return;
  for (std::int32_t id = 0; id < tokenizer.about().vocabulary; ++id)
    if (tokenizer.is_special(id) && std::ranges::count(texts, tokenizer.bytes_of(id)) > 0)
      tokens.push_back(id);
}

Answer::Answer(const Tokenizer& tokenizer, const Stops& stops, bool drops_first_space)
    : tokenizer_(&tokenizer),
      stops_(&stops),
      drops_first_space_(drops_first_space && tokenizer.about().drops_first_space),
      text_(stops.texts) {}

bool Answer::take(std::int32_t token) {
  ++tokens_;
  const auto& about = tokenizer_->about();
  if (token == about.end_token || token == about.document_token) {
    finish_ = Finish::end;
    return false;
  }
  auto bytes = tokenizer_->bytes_of(token);
  if (drops_first_space_ && tokens_ == 1 && bytes.starts_with(' ')) bytes.remove_prefix(1);
  const bool goes_on = tokenizer_->is_special(token)
                           ? std::ranges::count(stops_->tokens, token) == 0
                           : text_.append(bytes);
  if (!goes_on) finish_ = Finish::stop;
  return goes_on;
}

}  // namespace lockstep
