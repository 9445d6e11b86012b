#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "fetch/http.h"

namespace danqing::fetch {
namespace {

using Url = std::unique_ptr<CURLU, void (*)(CURLU*)>;

Url parsed(const std::string& text) {
  Url url(curl_url(), curl_url_cleanup);
  if (url && curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) url.reset();
  return url;
}

std::string part(CURLU* url, CURLUPart what, unsigned flags = 0) {
  char* value = nullptr;
  if (curl_url_get(url, what, &value, flags) != CURLUE_OK || !value) return "";
  std::string out(value);
  curl_free(value);
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::string origin_of(const std::string& text) {
  const Url url = parsed(text);
  if (!url) return "";
  const std::string scheme = part(url.get(), CURLUPART_SCHEME), host = part(url.get(), CURLUPART_HOST);
  if ((scheme != "http" && scheme != "https") || host.empty()) return "";
  std::string origin = scheme + "://" + host + ":" + part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  std::transform(origin.begin(), origin.end(), origin.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return origin;
}

std::string shown_url(const std::string& text) {
  const Url url = parsed(text);
  if (!url) return "an address that is no URL";
  for (const CURLUPart p : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT})
    curl_url_set(url.get(), p, nullptr, 0);
  return part(url.get(), CURLUPART_URL);
}

std::string url_encode(std::string_view text, bool keep_slash) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos || (c == '/' && keep_slash);
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kDigits[static_cast<unsigned char>(c) >> 4];
      out += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

std::string url_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace danqing::fetch
