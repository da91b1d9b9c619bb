// The expected bytes were made by the Python packages tensorboard 2.21 and protobuf.
#include "train/observe/tensorboard.h"

#include <gtest/gtest.h>
#include <vector>

#include "tests/files.h"

namespace lockstep::testing::tensorboard_test {

std::string hex(std::string_view bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes)
    text += {kDigits[static_cast<unsigned char>(c) >> 4], kDigits[c & 15]};
  return text;
}

TEST(TensorBoard, the_checksum_is_crc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);  // the check value of the polynomial
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
}

TEST(TensorBoard, records_are_the_bytes_that_the_package_writes) {
  EXPECT_EQ(hex(event_record(version_event(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(hex(event_record(session_start_event(2.5, 300))),
            "100000000000000095fbfe1809000000000000044010ac023a0208017d05b37d");
  EXPECT_EQ(hex(event_record(session_start_event(2.5, 200))),
            "100000000000000095fbfe1809000000000000044010c8013a020801a0e37df1");
  const std::vector<Scalar> scalars{{"train/loss", 3.25f}, {"speed/mfu", 0.5f}};
  EXPECT_EQ(
      hex(event_record(scalars_event(3.5, 1, scalars))),
      "3200000000000000241956ec090000000000000c4010012a250a110a0a747261696e2f6c6f73731500005040"
      "0a100a0973706565642f6d6675150000003fd0c9a8c9");
}

TEST(TensorBoard, two_files_of_one_second_have_two_names) {
  const TemporaryDirectory directory;
  const TensorBoardLog first(directory.path(), 0), second(directory.path(), 10);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    names.push_back(entry.path().filename().string());
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].rfind("events.out.tfevents.", 0), 0u);
}

}  // namespace lockstep::testing::tensorboard_test
