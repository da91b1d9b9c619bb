// Compares the table of members of config.json with the reader and with docs/huggingface.md.
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "model/families.h"
#include "tests/files.h"
#include "tests/model/config_members_table.h"

namespace lockstep::testing::config_members_test {

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::string> families_of(const MemberRow& row) {
  return words(row.families == std::string("all") ? "gpt2 llama3 qwen2 qwen3 smollm3"
                                                  : row.families);
}

// A model of two layers with small values.
Json base(const std::string& family) {
  if (family == "gpt2")
    return Json::parse(
        R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 12, "n_head": 3, "n_positions": 16,
            "vocab_size": 9})",
        family);
  auto json = Json::parse(
      R"({"num_hidden_layers": 2, "hidden_size": 12, "num_attention_heads": 3, "vocab_size": 9,
          "num_key_value_heads": 3, "intermediate_size": 8, "max_position_embeddings": 16})",
      family);
  json.set("model_type", family == "llama3" ? "llama" : family.c_str());
  return json;
}

Json with(Json json, const Json& members) {
  for (const auto& [key, value] : members.as_object())
    json.set(key, value);
  return json;
}

ModelConfig read(const Json& json) {
  return config_from_huggingface(json, "dir/config.json");
}

Json::Array values_of(const MemberRow& row) {
  return Json::parse(row.values, row.members).as_array();
}

// Values of every type that no member in use has.
Json::Array odd_values() {
  return Json::parse(R"([true, false, null, 0, 2, 1.5, "x", [], ["x"], {}, {"a": 1}])", "odd")
      .as_array();
}

template <class Act>  // act(row, member, model without it)
void for_each_member(MemberUse use, const Act& act) {
  for (const auto& row : kMemberRows)
    if (row.use == use)
      for (const auto& member : words(row.members))
        for (const auto& family : families_of(row)) {
          SCOPED_TRACE(str(member, " of ", family));
          act(row, member, with(base(family), Json::parse(row.beside, "beside")));
        }
}

TEST(ConfigMembers, a_member_that_is_read_changes_the_model_or_is_refused) {
  for_each_member(MemberUse::read, [](const auto& row, const auto& member, const Json& json) {
    const auto before = read(json);
    for (const auto& value : values_of(row)) {
      try {
        EXPECT_FALSE(read(with(json, Json::Object{{member, value}})) == before) << value.dump();
      } catch (const DataError& e) {
        EXPECT_EQ(std::string(e.what()).find("dir/config.json: "), 0U) << e.what();
      }
    }
  });
}

TEST(ConfigMembers, a_member_with_fixed_values_is_refused_with_any_other) {
  for_each_member(MemberUse::fixed, [](const auto& row, const auto& member, const Json& json) {
    const auto before = read(json);
    std::vector<std::string> accepted;
    for (const auto& value : values_of(row)) {
      EXPECT_EQ(read(with(json, Json::Object{{member, value}})), before) << value.dump();
      accepted.push_back(value.dump());
    }
    for (const auto& value : odd_values()) {
      if (std::find(accepted.begin(), accepted.end(), value.dump()) != accepted.end()) continue;
      const auto text = message_of<DataError>([&] {
        read(with(json, Json::Object{{member, value}}));
      });
      for (const auto& part : {"dir/config.json: " + member + ": ", accepted[0], value.dump()})
        expect_contains(text, part);
    }
  });
}

TEST(ConfigMembers, a_member_that_is_ignored_may_have_any_value) {
  for_each_member(MemberUse::ignored, [](const auto&, const auto& member, const Json& json) {
    for (const auto& value : odd_values())
      EXPECT_EQ(read(with(json, Json::Object{{member, value}})), read(json)) << value.dump();
  });
}

std::string quoted_list(const std::vector<std::string>& all, const std::string& separator) {
  std::string text;
  for (const auto& one : all)
    text += str(text.empty() ? "" : separator, "`", one, "`");
  return text;
}

std::string use_of(const MemberRow& row) {
  switch (row.use) {
    case MemberUse::read: return "read";
    case MemberUse::weights: return "must be absent";
    case MemberUse::ignored: return "ignored";
    case MemberUse::fixed: break;
  }
  std::vector<std::string> values;
  for (const auto& value : values_of(row))
    values.push_back(value.dump());
  return "must be " + quoted_list(values, " or ");
}

TEST(ConfigMembers, the_documents_have_the_same_table) {
  std::string table = "| member | families | Lockstep | what |\n|---|---|---|---|\n";
  for (const auto& row : kMemberRows)
    table += str("| ", quoted_list(words(row.members), ", "), " | ", row.families, " | ",
                 use_of(row), " | ", row.note, " |\n");
  std::ifstream file(LOCKSTEP_DOCS "/huggingface.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(page.find(table), std::string::npos)
      << "docs/huggingface.md: expected the table of tests/model/config_members_table.h:\n"
      << table;
}

}  // namespace lockstep::testing::config_members_test
