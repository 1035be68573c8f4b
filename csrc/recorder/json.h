// A JSON text, written front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vcc::recorder {

class Json {
 public:
  Json& open(char bracket) {
    separate();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  Json& close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  Json& name(std::string_view key) {
    text(key);
    text_ += ':';
    first_ = true;
    return *this;
  }
  Json& number(uint64_t value) { return raw(std::to_string(value)); }
  Json& number_signed(int64_t value) { return raw(std::to_string(value)); }
  Json& text(std::string_view value);
  Json& hex(const void* bytes, size_t size);
  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  Json& raw(std::string_view value) {
    separate();
    text_ += value;
    return *this;
  }

  std::string text_;
  bool first_ = true;
};

inline Json& Json::text(std::string_view value) {
  separate();
  text_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') text_ += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) text_ += c;
  }
  text_ += '"';
  return *this;
}

inline Json& Json::hex(const void* bytes, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  separate();
  text_ += '"';
  for (size_t i = 0; i < size; ++i) {
    const uint8_t byte = static_cast<const uint8_t*>(bytes)[i];
    text_ += kDigits[byte >> 4];
    text_ += kDigits[byte & 15];
  }
  text_ += '"';
  return *this;
}

}  // namespace vcc::recorder
