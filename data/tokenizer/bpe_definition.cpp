#include "data/tokenizer/bpe_definition.h"

#include <algorithm>

namespace lockstep {

std::int32_t BpeDefinition::find(std::string_view added_token) const {
  const auto found = std::find_if(added.begin(), added.end(), [&](const AddedToken& token) {
    return token.content == added_token;
  });
  return found != added.end() ? found->id : -1;
}

std::int32_t BpeDefinition::vocabulary() const {
  std::int32_t most = -1;
  for (const auto& [bytes, id] : tokens)
    most = std::max(most, id);
  for (const auto& token : added)
    most = std::max(most, token.id);
  return most + 1;
}

}  // namespace lockstep
