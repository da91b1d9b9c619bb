#include "checkpoint/safetensors.h"

#include <cmath>
#include <cstring>

#include "tests/testing.h"
#include "tests/wording.h"

namespace lockstep::testing::safetensors_test {

// Bytes of a handwritten safetensors file with this header and data.
std::string file_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &size, 8);
  return length + header + data;
}

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile open(const std::string& bytes) {
    spit(directory_ / "a", bytes);
    return SafetensorsFile(directory_ / "a");
  }
  void expect_refused(const std::string& name, const std::string& bytes, const std::string& pin) {
    expect_refusal<DataError>("checkpoint/safetensors", name,
                              {(directory_ / "a").string() + ": ", pin}, [&] { open(bytes); });
  }

  TemporaryDirectory directory_;
  Bench bench_;
};

const std::string kTwo = R"({"__metadata__":{"format":"pt"},)"
                         R"("b":{"dtype":"I32","shape":[],"data_offsets":[4,8]},)"
                         R"("a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}   )";

TEST_F(Safetensors, a_file_written_by_hand_is_read) {
  const auto file = open(file_bytes(kTwo, std::string("\1\2\3\4\5\0\0\0", 8)));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(file.metadata(), (StoredMetadata{{"format", "pt"}}));
  EXPECT_EQ(file.find("c"), nullptr);
  const auto* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->elements(), 1);
  Tensor integer = bench_.poisoned({1}, DType::int32);
  file.read(*b, 0, integer);
  EXPECT_EQ(integer.as<std::int32_t>()[0], 5);
  Tensor middle = bench_.poisoned({2}, DType::uint8);
  file.read(*file.find("a"), 1, middle);
  EXPECT_EQ(middle.as<std::uint8_t>()[0], 2);
  EXPECT_EQ(middle.as<std::uint8_t>()[1], 3);
}

TEST_F(Safetensors, empty_files_and_empty_tensors_are_valid) {
  EXPECT_TRUE(open(file_bytes("{}", "")).tensors().empty());
  const std::string header = R"({"z":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},)"
                             R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("y":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  const auto file = open(file_bytes(header, "1234"));
  EXPECT_EQ(file.find("z")->elements(), 0);
  EXPECT_EQ(file.find("y")->elements(), 0);
}

TEST_F(Safetensors, every_truncation_is_rejected) {
  const std::string whole = file_bytes(kTwo, "12345678");
  for (std::size_t n = 0; n < whole.size(); ++n)
    expect_contains(message_of<DataError>([&] { open(whole.substr(0, n)); }), directory_ / "a");
}

TEST_F(Safetensors, inconsistent_headers_are_rejected) {
  const std::string whole = file_bytes(kTwo, "12345678");
  const auto edited = [&](std::size_t byte, char value) {
    auto bytes = whole;
    bytes[byte] = value;
    return bytes;
  };
  const auto two = [](const char* first, const char* second, std::size_t bytes) {
    return file_bytes(str(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)", first,
                          R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)", second, "}}"),
                      std::string(bytes, 'd'));
  };
  const std::string w = R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  struct Case {
    const char *name, *pin;
    std::string bytes;
  };
  const Case cases[] = {
      {"a byte more", "1 bytes", whole + "x"},
      {"a huge header", "100000000", edited(7, '\x7f')},
      {"a header beyond the file", "", edited(1, 1)},
      {"a blank first", "'{'", file_bytes(" " + kTwo, "12345678")},
      {"no header", "'{'", file_bytes("", "")},
      {"a list", "'{'", file_bytes("[]", "")},
      {"a hole", "b: ", two("[0,4]", "[5,9]", 9)},
      {"an overlap", "b: ", two("[0,4]", "[3,7]", 7)},
      {"the same range", "b: ", two("[0,4]", "[0,4]", 4)},
      {"a hole at the begin", "a: ", two("[1,5]", "[5,9]", 9)},
      {"metadata of numbers", "__metadata__: ", file_bytes(R"({"__metadata__":{"a":1}})", "")},
      {"a tensor twice", "\"w\"", file_bytes("{" + w + "," + w + "}", "d")},
      {"a pointer of Git LFS", "`git lfs pull`",
       "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"},
      {"nested", "4", file_bytes(R"({"w":{"dtype":[[[[]]]]}})", "")},
  };
  for (const auto& c : cases)
    expect_refused(c.name, c.bytes, c.pin);
  expect_contains(message_of<DataError>([&] { open(file_bytes("{}{}", "")); }), "at byte 2");
}

TEST_F(Safetensors, invalid_entries_are_rejected_by_name) {
  struct Case {
    const char *entry, *pin;
    std::size_t data_bytes = 4;
  };
  const Case cases[] = {
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", "8 bytes"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})", "4 to 12", 8},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", "data_offsets [4, 0]"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})", "data_offsets [-4, 0]"},
      // 2^32 x 2^32 elements are 0 modulo 2^64.
      {R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", "2^63", 0},
      {R"({"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]})", "-1"},
      {R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})", "9", 1},
      {R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})", "\"F31\""},
      {R"({"shape":[1],"data_offsets":[0,4]})", "\"dtype\""},
      {R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})", ""},
      {R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", ""},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", "2 data_offsets"},
      {"3", "", 0},
  };
  for (const auto& c : cases)
    expect_refused(c.entry,
                   file_bytes(str("{\"w\":", c.entry, "}"), std::string(c.data_bytes, 'd')), c.pin);
}

TEST_F(Safetensors, every_half_precision_number_is_exact_in_fp32) {
  std::string data(2 * 65536, '\0');
  for (unsigned bits = 0; bits < 65536; ++bits)
    std::memcpy(data.data() + std::size_t{2} * bits, &bits, 2);
  const auto file =
      open(file_bytes(R"({"h":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})", data));
  Tensor out = bench_.poisoned({65536}, DType::fp32);
  file.read(*file.find("h"), 0, out);
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const unsigned exponent = (bits >> 10) & 31u, mantissa = bits & 1023u;
    double expected = exponent == 0 ? std::ldexp(mantissa, -24)
                                    : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    if (exponent == 31) expected = mantissa == 0 ? INFINITY : NAN;
    const float found = out.as<float>()[bits];
    EXPECT_EQ(std::signbit(found), bits >> 15 != 0);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(found)) << bits;
    else
      EXPECT_EQ(std::abs(found), expected) << bits;
  }
}

TEST_F(Safetensors, floats_convert_over_pieces_and_from_any_first_element) {
  const std::int64_t n = 200001;
  for (const auto from : {DType::fp32, DType::bf16}) {
    Tensor source = bench_.random({n}, from);
    SafetensorsWriter writer(directory_ / "w", {{"w", stored_type(from), {n}}});
    writer.write({source.data, static_cast<std::size_t>(source.bytes())});
    writer.commit();
    const SafetensorsFile file(directory_ / "w");
    for (const auto to : {DType::fp32, DType::bf16}) {
      Tensor out = bench_.poisoned({n - 7}, to);
      file.read(*file.find("w"), 7, out);
      Tensor expected = bench_.poisoned({n - 7}, to);
      for (std::int64_t i = 7; i < n; ++i)
        Bench::set(expected, i - 7, get(source, i));
      expect_bitwise_equal(out, expected, str(name(from), " to ", name(to)));
    }
  }
}

// Each lies halfway between two fp32 numbers, or next to the middle.
TEST_F(Safetensors, doubles_are_rounded_to_fp32_and_from_there_to_bf16) {
  const std::int64_t n = 70001;
  std::vector<double> source(static_cast<std::size_t>(n));
  const Tensor random = bench_.random({n}, DType::fp32);
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = random.as<float>()[i];
    const double halfway =
        (static_cast<double>(value) + static_cast<double>(std::nextafter(value, 100.0f))) / 2;
    source[static_cast<std::size_t>(i)] =
        i % 2 == 0 ? halfway : std::nextafter(halfway, i % 4 == 1 ? -100.0 : 100.0);
  }
  source[0] = -std::numeric_limits<double>::infinity();
  SafetensorsWriter writer(directory_ / "w", {{"w", StoredType::f64, {n}}});
  writer.write(std::as_bytes(std::span(source)));
  writer.commit();
  const SafetensorsFile file(directory_ / "w");
  Tensor out = bench_.poisoned({n}, DType::fp32), rounded = bench_.poisoned({n}, DType::bf16);
  file.read(*file.find("w"), 0, out);
  file.read(*file.find("w"), 0, rounded);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto expected = static_cast<float>(source[static_cast<std::size_t>(i)]);
    ASSERT_EQ(out.as<float>()[i], expected) << i;
    ASSERT_EQ(rounded.as<BFloat16>()[i], to_bf16(expected)) << i;
  }
  std::vector<double> numbers(source.size());
  file.read(*file.find("w"), 0, std::span(numbers));
  EXPECT_EQ(numbers, source);
}

TEST_F(Safetensors, a_double_beyond_fp32_is_rejected) {
  const double numbers[] = {1, 3.5e38};
  std::string data(sizeof numbers, '\0');
  std::memcpy(data.data(), numbers, sizeof numbers);
  const auto file =
      open(file_bytes(R"({"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})", data));
  Tensor out = bench_.poisoned({2}, DType::fp32);
  expect_refusal<DataError>("checkpoint/safetensors", "a double beyond fp32", {"w: ", "3.5e+38"},
                            [&] { file.read(*file.find("w"), 0, out); });
}

TEST_F(Safetensors, every_type_except_f8_is_read_as_numbers) {
  // The number 1 in each type.
  const std::pair<const char*, std::string> ones[] = {{"BOOL", {"\1", 1}},
                                                      {"U8", {"\1", 1}},
                                                      {"I8", {"\1", 1}},
                                                      {"I16", {"\1\0", 2}},
                                                      {"U16", {"\1\0", 2}},
                                                      {"I32", {"\1\0\0\0", 4}},
                                                      {"U32", {"\1\0\0\0", 4}},
                                                      {"I64", {"\1\0\0\0\0\0\0\0", 8}},
                                                      {"F16", {"\0\x3c", 2}},
                                                      {"U64", {"\1\0\0\0\0\0\0\0", 8}},
                                                      {"BF16", {"\x80\x3f", 2}},
                                                      {"F32", {"\0\0\x80\x3f", 4}},
                                                      {"F64", {"\0\0\0\0\0\0\xf0\x3f", 8}}};
  double number = 0;
  const auto read = [&](const char* type, const std::string& bytes) {
    const auto file = open(file_bytes(
        str(R"({"w":{"dtype":")", type, R"(","shape":[1],"data_offsets":[0,)", bytes.size(), "]}}"),
        bytes));
    number = 0;
    file.read(*file.find("w"), 0, std::span(&number, 1));
  };
  for (const auto& [type, bytes] : ones) {
    read(type, bytes);
    EXPECT_EQ(number, 1) << type;
  }
  expect_refusal<DataError>("checkpoint/safetensors", "a number of fp8", {"F8_E4M3"},
                            [&] { read("F8_E4M3", "1"); });
}

TEST_F(Safetensors, types_that_do_not_convert_are_rejected) {
  const auto file = open(file_bytes(kTwo, "12345678"));
  Tensor out = bench_.poisoned({1}, DType::fp32);
  expect_refusal<DataError>("checkpoint/safetensors", "another type", {"b: ", "fp32", "I32"},
                            [&] { file.read(*file.find("b"), 0, out); });
  expect_refusal<Error>("checkpoint/safetensors", "a range beyond the tensor",
                        {"a: ", "2 elements", "3 of 4"},
                        [&] { file.read(*file.find("a"), 3, bench_.poisoned({2}, DType::uint8)); });
}

TEST_F(Safetensors, written_tensors_are_read_back) {
  std::vector<StoredTensor> tensors = {{"a", StoredType::f32, {3}},
                                       {"odd \"name\"\n\xC3\xA9", StoredType::u8, {1, 5}},
                                       {"empty", StoredType::i64, {0}},
                                       {"one", StoredType::bf16, {}}};
  SafetensorsWriter writer(directory_ / "w", tensors, {{"format", "pt"}, {"k", "v"}});
  EXPECT_EQ(writer.header().size() % 8, 0u);
  writer.write(std::as_bytes(std::span("0123456789a", 11)));
  writer.write(std::as_bytes(std::span("bcdefgh", 8)));
  writer.commit();
  EXPECT_EQ(slurp(directory_ / "w"), writer.header() + std::string("0123456789abcdefgh\0", 19));
  const SafetensorsFile file(directory_ / "w");
  ASSERT_EQ(file.tensors().size(), 4u);
  for (const auto& tensor : writer.tensors()) {
    const auto* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->type, tensor.type);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(found->offset, tensor.offset);
    EXPECT_EQ(found->bytes, tensor.bytes);
  }
  EXPECT_EQ(file.metadata(), (StoredMetadata{{"format", "pt"}, {"k", "v"}}));
}

TEST_F(Safetensors, a_writer_rejects_tensors_that_a_reader_rejects) {
  const StoredTensor a{"a", StoredType::u8, {4}};
  struct Case {
    const char *name, *pin, *data;
    std::vector<StoredTensor> tensors;
  };
  const Case cases[] = {
      {"written twice", "a", "12345678", {a, a}},
      {"written as metadata", "__metadata__", "1234", {{"__metadata__", StoredType::u8, {4}}}},
      {"too few bytes written", "", "123", {a}},
      {"too many bytes written", "", "12345", {a}},
      {"a bad shape written", "n: ", "", {{"n", StoredType::u8, {-1}}}}};
  for (const auto& c : cases)
    expect_refusal<Error>("checkpoint/safetensors", c.name, {c.pin}, [&] {
      SafetensorsWriter writer(directory_ / "w", c.tensors);
      writer.write(std::as_bytes(std::span(std::string_view(c.data))));
      writer.commit();
    });
  EXPECT_FALSE(std::filesystem::exists(directory_ / "w"));
}

}  // namespace lockstep::testing::safetensors_test
