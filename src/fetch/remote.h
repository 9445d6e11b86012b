// What there is to fetch: a repository of a hub, or plain URLs.
#pragma once
#include <string>
#include <vector>

#include "fetch/http.h"

namespace danqing::fetch {

struct RemoteFile {
  std::string path;  ///< checked: relative, '/' between parts, nothing odd
  std::string url;
  std::optional<uint64_t> size;
  std::string sha256, git_sha1;  ///< hex, or empty where the hub gives none
  std::string etag;              ///< of a plain URL
};

enum class Hub { huggingface, modelscope };

struct HubAddress {
  Hub hub = Hub::huggingface;
  std::string endpoint;  ///< without a slash at the end
  std::string token;
};

/// HF_ENDPOINT, HF_TOKEN; MODELSCOPE_ENDPOINT (or MODELSCOPE_DOMAIN), MODELSCOPE_API_TOKEN (or MODELSCOPE_TOKEN).
/// Error (usage): an endpoint that is no URL, a token with line breaks.
Result<HubAddress> hub_from_environment(Hub hub);
Result<Hub> parse_hub(std::string_view word);
/// The token for the hub's own origin.
std::vector<Credential> credentials_of(const HubAddress& address);

/// "owner/name[@revision]"; also a page's address on the hub. Error (usage).
struct RepositoryId {
  std::string name, revision;  ///< revision empty: the hub's default
};
Result<RepositoryId> parse_repository(std::string_view text);

struct Listing {
  std::string source;    ///< "huggingface", "modelscope" or "url"
  std::string endpoint;  ///< of the hub
  std::string repository, revision, commit;
  std::vector<RemoteFile> files;  ///< sorted by path
};

/// Errors: as Http::get; bad_input: an answer that is no listing, a path that would leave the folder.
Result<Listing> list_repository(Http& http, const HubAddress& address, const RepositoryId& id);
/// Asks each URL for its size. "#sha256=HEX" at the end is what the file must have.
Result<Listing> list_urls(Http& http, const std::vector<std::string>& urls);

/// A path from outside: relative, no empty part, "." or "..", no backslash, colon or control character, no part that
/// begins with ".danqing" or ends with ".part"; at most 255 bytes a part, 1024 in all. Error (bad_input).
Result<void> check_remote_path(std::string_view path);

}  // namespace danqing::fetch
