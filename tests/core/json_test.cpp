#include "core/json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "core/philox.h"
#include "tests/wording.h"

namespace lockstep::testing::json_test {

Json parse(std::string_view text, int depth = 8) {
  return Json::parse(text, "t", depth);
}
std::string refusal(std::string_view text, int depth = 8) {
  return message_of<DataError>([&] { parse(text, depth); });
}

TEST(Json, reads_every_kind_and_keeps_the_order_of_keys) {
  const Json json = parse(R"( {"z": [null, true, -3, 0.5, "x"], "a": {}, "m": []} )");
  EXPECT_EQ(json.as_object()[0].first, "z");
  EXPECT_EQ(json.as_object()[2].first, "m");
  const auto& z = json.at("z").as_array();
  EXPECT_TRUE(z[0].is_null());
  EXPECT_TRUE(z[1].as_bool());
  EXPECT_EQ(z[2].as_integer(), -3);
  EXPECT_EQ(z[2].as_double(), -3.0);
  EXPECT_EQ(z[3].as_double(), 0.5);
  EXPECT_EQ(z[4].as_string(), "x");
  EXPECT_TRUE(json.at("a").as_object().empty());
  EXPECT_TRUE(json.at("m").as_array().empty());
  EXPECT_EQ(json.find("none"), nullptr);
}

TEST(Json, dump_reads_back_as_the_same_text) {
  const std::string text =
      R"({"a":[1,-2,0.5,"b\n\"\\\u0001 \/"],"c":{"d":null,"e":[[],{}]},"f":true})";
  const std::string once = parse(text).dump();
  EXPECT_EQ(once, R"({"a":[1,-2,0.5,"b\n\"\\\u0001 /"],"c":{"d":null,"e":[[],{}]},"f":true})");
  EXPECT_EQ(parse(once).dump(), once);
  EXPECT_EQ(parse(parse(text).dump(2)).dump(), once);
  EXPECT_EQ(parse("{\"a\":[1,{}],\"b\":2}").dump(2),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": 2\n}");
}

TEST(Json, doubles_keep_their_bits_and_stay_doubles) {
  std::vector<double> values = {0.0,
                                -0.0,
                                1.0,
                                1e15,
                                1e22,
                                1e300,
                                0.1,
                                5e-324,
                                -1.0 / 3,
                                std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::min()};
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto words = philox(7, 0, i);
    const double d = std::bit_cast<double>((std::uint64_t{words[0]} << 32) | words[1]);
    if (std::isfinite(d)) values.push_back(d);
  }
  for (const double value : values) {
    const Json again = parse(Json(value).dump());
    EXPECT_FALSE(again.is_integer()) << Json(value).dump();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(again.as_double()), std::bit_cast<std::uint64_t>(value));
  }
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(INFINITY).dump(), "null");
}

TEST(Json, integers_are_exact_to_their_limits_and_doubles_beyond) {
  EXPECT_EQ(parse("9223372036854775807").as_integer(), INT64_MAX);
  EXPECT_EQ(parse("-9223372036854775808").as_integer(), INT64_MIN);
  EXPECT_EQ(Json(std::int64_t{INT64_MIN}).dump(), "-9223372036854775808");
  for (const char* text : {"9223372036854775808", "18446744073709551615", "18446744073709551616",
                           "-9223372036854775809", "1000000000000000019884624838656"}) {
    EXPECT_FALSE(parse(text).is_integer()) << text;
    EXPECT_EQ(parse(text).as_double(), std::strtod(text, nullptr));
  }
}

TEST(Json, invalid_json_is_rejected_at_its_byte) {
  using std::string_literals::operator""s;
  const std::string deep(1 << 20, '[');
  std::string many = "{";
  for (int i = 0; i < 100; ++i)
    many += str("\"k", i, "\":0,");
  struct Case {
    std::string name, text, pin;
    int depth = 8;
  };
  const Case cases[] = {
      {"a key twice", R"({"a":1,"b":{"a":2},"b":3})", "t: at byte 21: the key \"b\""},
      {"an escaped key twice", R"({"a":1,"\u0061":2})", "the key \"a\""},
      {"one of many keys twice", many + R"("k7":0})", "the key \"k7\""},
      {"the last of many keys twice", many + R"("k99":0})", "the key \"k99\""},
      {"nested", "[[{\"a\":[]}]]", "t: at byte 7: ", 3},
      {"nested a million times", deep, " 8 "},
      {"zero behind", "{}\0garbage"s, "t: at byte 2: "},
      {"zero", "\0"s, "t: at byte 0: "},
      {"a pointer of Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
       "`git lfs pull`"},
  };
  for (const auto& c : cases)
    expect_refusal<DataError>("core/json", c.name, {c.pin}, [&] { parse(c.text, c.depth); });
  for (const char* text :
       {"", " ", "nul", "[1,]", "{\"a\":1,}", "{a:1}", "'a'", "01", "+1", ".5", "NaN", "Infinity",
        "// c\n1", "\"\n\"", "\"\\x\"", "\"\\ud800\"", "[1e999]"})
    expect_contains(refusal(text), "t: at byte ");  // the rest is the library's
  EXPECT_EQ(parse(many + R"("x":0})").as_object().size(), 101u);
  EXPECT_EQ(parse("[[{}]]", 3).dump(), "[[{}]]");
  EXPECT_EQ(parse("\"\\u0000\"").as_string(), "\0"s);
}

TEST(Json, every_truncation_and_any_text_after_the_value_is_rejected) {
  const std::string text = R"({"a": [1, 2.5e3, "x\u00e9"], "b": {"c": null, "d": true}})";
  for (std::size_t n = 0; n < text.size(); ++n)
    expect_contains(refusal(text.substr(0, n)), "t: at byte ");
  for (const char* tail : {"}", "x", ",", "{}", "1"})
    expect_contains(refusal(text + tail), str("t: at byte ", text.size(), ": "));
  EXPECT_EQ(parse(text + " \n").as_object().size(), 2u);
}

TEST(Json, invalid_utf8_is_rejected_when_read_and_replaced_when_written) {
  const char* bad[] = {"\x80",         "\xC0\xAF",         "\xE0\x80\xAF",
                       "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80",
                       "\xC3",         "\xE2\x82",         "\xFF"};
  for (const char* text : bad) {
    const std::string message = refusal(str("\"", text, "\""));
    expect_contains(message, "t: at byte ");
    EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x80;
    })) << message;
    const std::string written = Json(str("a", text, "b")).dump();
    EXPECT_EQ(written.substr(0, 5), "\"a\xEF\xBF\xBD");
    EXPECT_EQ(parse(written).as_string().back(), 'b');
  }
  for (const char* text : {"\xC2\x80", "\xE2\x82\xAC", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(parse(Json(text).dump()).as_string(), text);
}

TEST(Json, set_and_push_build_values) {
  Json json;
  json.set("a", 1);
  json.set("b", "x");
  json.set("a", 2.5);
  Json list;
  list.push(true);
  list.push(Json());
  json.set("c", list);
  EXPECT_EQ(json.dump(), R"({"a":2.5,"b":"x","c":[true,null]})");
  EXPECT_THROW(json.push(1), DataError);
  EXPECT_THROW(list.set("a", 1), DataError);
}

TEST(Json, values_and_members_of_another_kind_are_rejected) {
  const auto json =
      parse(R"({"a": [], "n": 5, "x": 1.5, "h": "0123456789abcdef0123456789abcdeF"})");
  EXPECT_EQ(integer_at(json, "n", 5, 5), 5);
  struct Case {
    const char *name, *pin;
    std::function<void()> act;
  };
  const Case cases[] = {
      {"no string", "", [&] { json.at("a").as_string(); }},
      {"no key", "\"b\"", [&] { json.at("b"); }},
      {"no object", "", [] { parse("1").find("a"); }},
      {"no boolean", "", [] { parse("null").as_bool(); }},
      {"no number", "", [] { parse("\"1\"").as_double(); }},
      {"no integer", "", [] { parse("9223372036854775808").as_integer(); }},
      {"too small", "\"n\" is 5, expected 6 to 9", [&] { integer_at(json, "n", 6, 9); }},
      {"not the one", "\"n\" is 5, expected 4", [&] { integer_at(json, "n", 4, 4); }},
      {"a fraction", "\"x\" is 1.5", [&] { integer_at(json, "x", 0, 9); }},
      {"no text", "\"n\" is 5", [&] { text_at(json, "n"); }},
      {"no hash", "\"h\" is \"0123456789abcdef0123456789abcdeF\"", [&] { hash_at(json, "h"); }},
  };
  for (const auto& c : cases)
    expect_refusal<DataError>("core/json", c.name, {c.pin}, c.act);
}

}  // namespace lockstep::testing::json_test
