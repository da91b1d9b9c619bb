#include "core/units.h"

#include <gtest/gtest.h>
#include <limits>

namespace lockstep::units_test {

TEST(Units, numbers_get_three_digits_and_a_unit) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(812.4), "812");
  EXPECT_EQ(human_count(999.6), "1.00k");
  EXPECT_EQ(human_count(12345), "12.3k");
  EXPECT_EQ(human_count(2.541e6), "2.54M");
  EXPECT_EQ(human_count(7e12), "7.00T");
  EXPECT_EQ(human_count(7e16), "70000T");
  EXPECT_EQ(three_digits(412.4), " 412");
  EXPECT_EQ(three_digits(std::numeric_limits<double>::quiet_NaN()), " nan");
}

TEST(Units, text_is_formatted_and_trimmed) {
  EXPECT_EQ(formatted("%+.1f%% of %s", 12.34, "it"), "+12.3% of it");
  EXPECT_EQ(formatted("%200d", 1), std::string(95, ' '));
  EXPECT_EQ(trimmed("  a b "), "a b ");
  EXPECT_EQ(trimmed("   "), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Units, bytes_of_files_are_decimal_and_of_memory_binary) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(40.06e6), "40.1 MB");
  EXPECT_EQ(human_memory(1023), "1023 B");
  EXPECT_EQ(human_memory(1023.6 * 1024), "1.00 MiB");
  EXPECT_EQ(human_memory(1 << 20), "1.00 MiB");
  EXPECT_EQ(human_memory(1.25 * (1 << 30)), "1.25 GiB");
  EXPECT_EQ(human_memory(7.5e6), "7.15 MiB");  // not "0 GiB"
}

TEST(Units, durations_are_short_to_read) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(2.4e-6), "2.40 us");
  EXPECT_EQ(human_seconds(0.9994e-3), "999 us");
  EXPECT_EQ(human_seconds(0.9996e-3), "1.00 ms");
  EXPECT_EQ(human_seconds(0.0567), "56.7 ms");
  EXPECT_EQ(human_seconds(0.4123), "412 ms");
  EXPECT_EQ(human_seconds(4.123), "4.12 s");
  EXPECT_EQ(human_seconds(123.4), "123 s");
  EXPECT_EQ(human_eta(42), "42s");
  EXPECT_EQ(human_eta(58 * 60), "58m");
  EXPECT_EQ(human_eta(62 * 60), "1h02m");
  EXPECT_EQ(human_eta((3 * 24 + 4) * 3600), "3d04h");
  EXPECT_EQ(human_eta(59 * 60 + 45), "1h00m");
  EXPECT_EQ(human_eta(-1), "?");
  EXPECT_EQ(human_eta(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(Units, long_numbers_are_grouped) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1'000), "1,000");
  EXPECT_EQ(with_commas(1'234'567), "1,234,567");
}

TEST(Units, a_table_is_as_wide_as_its_cells) {
  EXPECT_EQ(text_table({}), "");
  EXPECT_EQ(text_table({{"call", "group", "bytes"}, {"reduce_scatter", "shard", "12"}, {"a"}}),
            "call            group  bytes\n"
            "reduce_scatter  shard  12\n"
            "a\n");
}

}  // namespace lockstep::units_test
