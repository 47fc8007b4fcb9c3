// SPDX-License-Identifier: Apache-2.0
//
// Statuses of the C ABI: what is refused, with which code, and that nothing is written then.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "kvarn/kvarn.h"
#include "support/formats.h"
#include "support/isa.h"

namespace kvarn_test {
namespace {

constexpr kvarn_format kKey = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_PORTABLE, 4, 64, 64};
constexpr kvarn_format kValue = {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_PORTABLE, 2, 64, 64};

template <typename Enum>
void SetRaw(Enum* field, int value) {
  static_assert(sizeof(Enum) == sizeof(int));
  std::memcpy(field, &value, sizeof(value));
}

std::vector<kvarn_format> IllegalFormats() {
  std::vector<kvarn_format> list;
  const auto with = [&](auto change) {
    kvarn_format format = kKey;
    change(&format);
    list.push_back(format);
  };
  for (const int bits : {-1, 0, 1, 5, 6, 7, 9, 16}) {
    with([&](kvarn_format* f) { f->bits = bits; });
  }
  for (const int group : {-64, 0, 1, 32, 63, 96, 127, 256}) {
    with([&](kvarn_format* f) { f->group = group; });
  }
  for (const int dim : {-64, 0, 8, 24, 33, 60, 100, 577, 584, 1024}) {
    with([&](kvarn_format* f) { f->head_dim = dim; });
  }
  // As a caller in C, or one built against another header, would pass them.
  with([](kvarn_format* f) { SetRaw(&f->role, 2); });
  with([](kvarn_format* f) { SetRaw(&f->mode, 2); });
  with([](kvarn_format* f) { SetRaw(&f->order, 3); });
  return list;
}

TEST(Capi, StatusTexts) {
  std::set<std::string> texts;
  for (int status = KVARN_OK; status <= KVARN_ERROR_UNSUPPORTED; ++status) {
    const char* text = kvarn_status_text(static_cast<kvarn_status>(status));
    ASSERT_NE(text, nullptr);
    EXPECT_GT(std::strlen(text), 5U);
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 7U);
  EXPECT_NE(kvarn_status_text(static_cast<kvarn_status>(7)), nullptr);
}

TEST(Capi, Version) {
  const std::string want = std::to_string(KVARN_VERSION_MAJOR) + "." +
                           std::to_string(KVARN_VERSION_MINOR) + "." +
                           std::to_string(KVARN_VERSION_PATCH);
  EXPECT_EQ(kvarn_version(), want);
  EXPECT_EQ(KVARN_FORMAT_VERSION, 1);
}

TEST(Capi, ForcingInstructionSets) {
  const std::string best = kvarn_isa_name();
  EXPECT_EQ(kvarn_isa_force("scalar"), KVARN_OK);
  EXPECT_STREQ(kvarn_isa_name(), "scalar");
  for (const char* name : {"", "AVX2", "avx", "sse", "avx5120", "scalar "}) {
    EXPECT_EQ(kvarn_isa_force(name), KVARN_ERROR_ARGUMENT) << name;
    EXPECT_STREQ(kvarn_isa_name(), "scalar") << "a refusal changes nothing";
  }
  for (const char* name : kIsaNames) {
    const kvarn_status status = kvarn_isa_force(name);
    if (status == KVARN_OK) {
      EXPECT_STREQ(kvarn_isa_name(), name);
    } else {
      EXPECT_EQ(status, KVARN_ERROR_UNSUPPORTED) << name;
    }
  }
  EXPECT_EQ(kvarn_isa_force(nullptr), KVARN_OK);
  EXPECT_EQ(kvarn_isa_name(), best);
}

TEST(Capi, Presets) {
  for (const int k : kBits) {
    for (const int v : kBits) {
      for (const int group : kGroups) {
        const std::string name =
            "kvarn_k" + std::to_string(k) + "v" + std::to_string(v) + "_g" + std::to_string(group);
        kvarn_preset preset = {};
        ASSERT_EQ(kvarn_preset_parse(name.c_str(), &preset), KVARN_OK) << name;
        EXPECT_EQ(preset.key_bits, k);
        EXPECT_EQ(preset.value_bits, v);
        EXPECT_EQ(preset.group, group);
      }
    }
  }
  for (const char* name : {"",
                           "kvarn",
                           "kvarn_",
                           "kvarn_k4v2",
                           "kvarn_k4v2_",
                           "kvarn_k4v2_g",
                           "kvarn_k4v2_g12",
                           "kvarn_k4v2_g1280",
                           "kvarn_k4v2_g32",
                           "kvarn_k4v2_g128 ",
                           " kvarn_k4v2_g128",
                           "KVARN_k4v2_g128",
                           "kvarn_k5v2_g128",
                           "kvarn_k4v1_g128",
                           "kvarn_k4v16_g128",
                           "kvarn_k04v2_g128",
                           "kvarn_k4v2_g+64",
                           "kvarn_k4v2_g064",
                           "kvarn_v2k4_g128",
                           "kvarn_k4_g128",
                           "kvarn_k4v2-g128"}) {
    kvarn_preset preset = {7, 7, 7};
    EXPECT_EQ(kvarn_preset_parse(name, &preset), KVARN_ERROR_PRESET) << name;
    EXPECT_EQ(preset.key_bits, 7) << "nothing is written on failure";
    EXPECT_EQ(preset.group, 7);
  }
  kvarn_preset preset = {};
  EXPECT_EQ(kvarn_preset_parse(nullptr, &preset), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_preset_parse("kvarn_k4v2_g128", nullptr), KVARN_ERROR_ARGUMENT);
}

TEST(Capi, IllegalFormatsAreRefusedEverywhere) {
  std::vector<float> rows(1024 * 256, 1.0F);
  std::vector<uint8_t> record(1 << 20, 0xA5);
  const std::vector<uint8_t> untouched = record;
  EXPECT_EQ(kvarn_record_bytes(nullptr), 0U);
  for (const kvarn_format& format : IllegalFormats()) {
    SCOPED_TRACE(testing::Message() << "bits " << format.bits << " group " << format.group
                                    << " dim " << format.head_dim);
    EXPECT_EQ(kvarn_record_bytes(&format), 0U);
    EXPECT_EQ(kvarn_encode(&format, rows.data(), 1, nullptr, nullptr, record.data(), nullptr),
              KVARN_ERROR_FORMAT);
    EXPECT_EQ(kvarn_decode(&format, record.data(), rows.data()), KVARN_ERROR_FORMAT);
    EXPECT_EQ(kvarn_reorder(&format, record.data(), &format, record.data()), KVARN_ERROR_FORMAT);
    EXPECT_EQ(kvarn_reorder(&kKey, record.data(), &format, record.data()), KVARN_ERROR_FORMAT);
    kvarn_plane_config config = {format, 128, 0, 0};
    if (format.order == KVARN_ORDER_PORTABLE) config.format.order = KVARN_ORDER_CPU;
    kvarn_plane* plane = nullptr;
    EXPECT_EQ(kvarn_plane_create(&config, &plane), KVARN_ERROR_FORMAT);
    EXPECT_EQ(plane, nullptr);
  }
  EXPECT_EQ(record, untouched);
}

TEST(Capi, BalanceArguments) {
  std::vector<float> keys(64 * 4, 1.0F);
  std::vector<int8_t> e(64, 99);
  EXPECT_EQ(kvarn_balance(64, nullptr, 4, nullptr, e.data()), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_balance(64, keys.data(), 4, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_balance(64, keys.data(), 0, nullptr, e.data()), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_balance(64, keys.data(), -1, nullptr, e.data()), KVARN_ERROR_ARGUMENT);
  for (const int dim : {0, 24, 60, 584}) {
    EXPECT_EQ(kvarn_balance(dim, keys.data(), 1, nullptr, e.data()), KVARN_ERROR_FORMAT) << dim;
  }
  EXPECT_EQ(e, std::vector<int8_t>(64, 99));
}

TEST(Capi, EncodeArguments) {
  std::vector<float> rows(64 * 64, 1.0F);
  std::vector<int8_t> e(64, 0);
  std::vector<uint8_t> record(kvarn_record_bytes(&kKey), 0xA5);
  const std::vector<uint8_t> untouched = record;
  const auto encode = [&](const kvarn_format* format, int n, const int32_t* position,
                          const int8_t* balance) {
    return kvarn_encode(format, rows.data(), n, position, balance, record.data(), nullptr);
  };
  EXPECT_EQ(encode(nullptr, 1, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_encode(&kKey, nullptr, 1, nullptr, nullptr, record.data(), nullptr),
            KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_encode(&kKey, rows.data(), 1, nullptr, nullptr, nullptr, nullptr),
            KVARN_ERROR_ARGUMENT);
  for (const int n : {-1, 0, 65, 128}) {
    EXPECT_EQ(encode(&kKey, n, nullptr, nullptr), KVARN_ERROR_ARGUMENT) << n;
  }
  for (const auto& bad : {std::vector<int32_t>{-1, 3}, {5, 64}, {7, 7}, {9, 2}}) {
    EXPECT_EQ(encode(&kKey, 2, bad.data(), nullptr), KVARN_ERROR_ARGUMENT);
  }
  EXPECT_EQ(encode(&kValue, 1, nullptr, e.data()), KVARN_ERROR_ARGUMENT) << "V has no balance";
  kvarn_format published = kKey;
  published.mode = KVARN_PUBLISHED;
  EXPECT_EQ(encode(&published, 1, nullptr, e.data()), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(record, untouched);
}

TEST(Capi, DecodeAndReorderArguments) {
  std::vector<uint8_t> record(1 << 16);
  std::vector<float> rows(64 * 64);
  EXPECT_EQ(kvarn_decode(nullptr, record.data(), rows.data()), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_decode(&kKey, nullptr, rows.data()), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_decode(&kKey, record.data(), nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_reorder(nullptr, record.data(), &kKey, record.data()), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_reorder(&kKey, nullptr, &kKey, record.data()), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_reorder(&kKey, record.data(), nullptr, record.data()), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_reorder(&kKey, record.data(), &kKey, nullptr), KVARN_ERROR_ARGUMENT);
  std::vector<uint8_t> out(1 << 16, 0xA5);
  for (int field = 0; field < 5; ++field) {  // anything but the order differs
    kvarn_format other = kKey;
    if (field == 0) other.bits = 2;
    if (field == 1) other.group = 128;
    if (field == 2) other.head_dim = 72;
    if (field == 3) other.mode = KVARN_PUBLISHED;
    if (field == 4) other.role = KVARN_VALUE;
    EXPECT_NE(kvarn_reorder(&kKey, record.data(), &other, out.data()), KVARN_OK) << field;
  }
  EXPECT_EQ(out, std::vector<uint8_t>(1 << 16, 0xA5));
}

}  // namespace
}  // namespace kvarn_test
