#include "core/toml.h"

#include <gtest/gtest.h>
#include <limits>

#include "tests/wording.h"

namespace lockstep::testing::toml_test {

// The error of a parser; "" if it throws none.
std::string refusal(std::string_view text) {
  try {
    parse_toml(text, "a.toml");
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}
// Checks the line of the error; the text after it comes from toml++.
void refused_at(const char* place, const std::string& text) {
  const auto message = refusal(text);
  EXPECT_TRUE(message.starts_with(str(place, ": "))) << text << ": " << message;
}

const TomlEntry& entry(const TomlDocument& document, const std::string& key) {
  for (const auto& e : document.entries)
    if (e.key == key) return e;
  throw Error("no key " + key);
}

TEST(Toml, every_kind_of_value_keeps_its_type_and_line) {
  const auto d = parse_toml(
      "[a]\nb = true\ni = 1_000\nf = 1e-3\ns = 'x'\nl = [\n'p',\n'q']\n[c.d]\nn = 0x10\n"
      "t = 2020-01-01\nm = [1]\n",
      "a.toml");
  EXPECT_EQ(std::get<bool>(entry(d, "a.b").value), true);
  EXPECT_EQ(std::get<std::int64_t>(entry(d, "a.i").value), 1000);
  EXPECT_EQ(std::get<double>(entry(d, "a.f").value), 1e-3);
  EXPECT_EQ(std::get<std::string>(entry(d, "a.s").value), "x");
  EXPECT_EQ(std::get<std::vector<std::string>>(entry(d, "a.l").value),
            (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(std::get<std::int64_t>(entry(d, "c.d.n").value), 16);
  for (const char* key : {"c.d.t", "c.d.m"})  // no option has this type
    expect_wording("core/toml", key, describe(entry(d, key).value));
  EXPECT_EQ(entry(d, "a.b").line, 2);
  EXPECT_EQ(entry(d, "c.d.n").line, 10);
}

TEST(Toml, inline_and_dotted_tables_are_tables_too) {
  const auto d = parse_toml("a = { x = 1 }\nb.y = 2\n[empty]\n", "a.toml");
  EXPECT_EQ(std::get<std::int64_t>(entry(d, "a.x").value), 1);
  EXPECT_EQ(std::get<std::int64_t>(entry(d, "b.y").value), 2);
  std::vector<std::string> names;
  for (const auto& table : d.tables)
    names.push_back(table.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "empty"}));
}

TEST(Toml, a_key_with_a_dot_in_quotes_is_not_a_path) {
  const auto d = parse_toml("\"train.steps\" = 1\n", "a.toml");
  EXPECT_EQ(d.entries.at(0).key, "\"train.steps\"");
}

TEST(Toml, invalid_toml_is_rejected_with_its_line) {
  refused_at("a.toml:2", "[a]\nb = \n");
  refused_at("a.toml:2", "x = 1\nx = 2\n");
  for (const char* text : {"x = 'open", "x = \"\xff\"", "[=]", "[\\u00e9 x]", "[[=]]", "[.a]", "[",
                           "[[", "[a", "[]", "[#"})
    refused_at("a.toml:1", text);
}

TEST(Toml, every_character_is_valid_in_a_string_and_few_outside) {
  for (int c = 0x80; c <= 0xffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;  // surrogates
    const std::string utf8 =
        c < 0x800
            ? std::string{char(0xc0 | c >> 6), char(0x80 | (c & 63))}
            : std::string{char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
    ASSERT_NE(refusal("y = 1\n" + utf8 + "x = 1"), "") << c;
    ASSERT_TRUE(parse_toml_value("'" + utf8 + "'")) << c;
    const auto behind = parse_toml("x = \"\"\"\\\n y" + utf8 + "\"\"\"", "a.toml");
    ASSERT_EQ(std::get<std::string>(behind.entries.at(0).value), "y" + utf8) << c;
  }
  const auto first = parse_toml("x = \"\"\"\\\n \u3042\"\"\"", "a.toml");
  EXPECT_EQ(std::get<std::string>(first.entries.at(0).value), "\u3042");
}

TEST(Toml, deep_nesting_is_rejected_before_parsing) {
  std::string dotted = "\n";
  for (int i = 0; i < 100000; ++i)
    dotted += "a.";
  expect_refusal<ConfigError>("core/toml", "a long line", {"a.toml:2", "200005", "4096"},
                              [&] { parse_toml(dotted + "b = 1", "a.toml"); });
  std::string arrays = "x = ";
  for (int i = 0; i < 100000; ++i)
    arrays += "[\n";
  EXPECT_NE(refusal(arrays), "");
  std::string deepest;  // the deepest key that fits on a line
  for (int i = 0; i < 2040; ++i)
    deepest += "a.";
  EXPECT_EQ(parse_toml(deepest + "b = 1", "a.toml").entries.size(), 1u);
}

TEST(Toml, a_single_value_is_parsed_and_nothing_else) {
  EXPECT_EQ(std::get<std::int64_t>(*parse_toml_value("5")), 5);
  EXPECT_EQ(std::get<std::string>(*parse_toml_value("'a b'")), "a b");
  EXPECT_FALSE(parse_toml_value("cosine"));
  EXPECT_FALSE(parse_toml_value(""));
  EXPECT_FALSE(parse_toml_value("1\nother = 2"));
  EXPECT_FALSE(parse_toml_value("1\n[other]"));
  EXPECT_EQ(std::get<std::vector<std::string>>(*parse_toml_value("[\n'a',\n'b',\n]")).size(), 2u);
  EXPECT_FALSE(parse_toml_value(std::string(5000, ' ') + "1"));
}

TEST(Toml, printed_values_read_back_equal) {
  for (const std::string text :
       {"", "plain", "quote \" and \\", "tab\tnew\nline\x01\x7f", "\xc3\xa9"})
    EXPECT_EQ(std::get<std::string>(*parse_toml_value(toml_quoted(text))), text);
  for (const double value : {0.0, -0.0, 1.0, 0.1, 1e-8, 6e-4, 1e300, 1.0 / 3.0, 123456789.0})
    EXPECT_EQ(std::get<double>(*parse_toml_value(toml_number(value))), value);
  EXPECT_EQ(toml_number(1e-5f), "1e-05");
  EXPECT_EQ(static_cast<float>(std::get<double>(*parse_toml_value(toml_number(1e-5f)))), 1e-5f);
}

}  // namespace lockstep::testing::toml_test
