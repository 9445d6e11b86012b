// The few pieces of cryptography that the server needs, from OpenSSL.
#pragma once
#include <string>
#include <string_view>

namespace danqing::server {

std::string sha256_hex(std::string_view text);
std::string hmac_hex(std::string_view secret, std::string_view text);
std::string random_hex(int bytes);
/// Takes the same time wherever they differ.
bool equal_secrets(std::string_view a, std::string_view b);

}  // namespace danqing::server
