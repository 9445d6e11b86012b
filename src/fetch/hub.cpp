// The listings of the two hubs.
//   Hugging Face  /api/models/ID/revision/REV?blobs=true: commit, names, sizes, hashes. Mirrors that leave sizes out
//   are
//                 asked for /api/models/ID/tree/COMMIT?recursive=true, page by page.
//   ModelScope    /api/v1/models/ID/repo/files?Revision=REV&Recursive=True; files at /api/v1/models/ID/repo.
#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "fetch/digest.h"
#include "fetch/remote.h"

namespace danqing::fetch {
namespace {

constexpr size_t kMaxListing = 64 << 20;
constexpr int kMaxPages = 1000;

std::string text_of(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : "";
}

std::optional<uint64_t> size_of(const Json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_number_unsigned()) return {};
  return it->get<uint64_t>();
}

Error no_listing(const std::string& url) {
  return bad_input("[pull] {}: expected a hub's list of files, got something else; is HF_ENDPOINT or --hub right?",
                   shown_url(url));
}

class Lister {
 public:
  Lister(Http& http, const HubAddress& address, const RepositoryId& id) : http_(http), address_(address) {
    out_.source = address.hub == Hub::huggingface ? "huggingface" : "modelscope";
    out_.endpoint = address.endpoint;
    out_.repository = id.name;
    out_.revision = !id.revision.empty() ? id.revision : address.hub == Hub::huggingface ? "main" : "master";
  }

  Result<Listing> run() {
    if (address_.hub == Hub::huggingface)
      DQ_CHECK(huggingface());
    else
      DQ_CHECK(modelscope());
    std::set<std::string> names;
    for (const RemoteFile& f : out_.files) {
      DQ_CHECK(check_remote_path(f.path));
      if (!names.insert(f.path).second)
        return bad_input("[pull] {}: lists '{}' twice", out_.repository, one_line(f.path));
    }
    for (const std::string& n : names)  // "a" and "a/b" cannot both be
      for (size_t slash = n.find('/'); slash != std::string::npos; slash = n.find('/', slash + 1))
        if (names.count(n.substr(0, slash)) > 0)
          return bad_input("[pull] {}: lists '{}' as a file and as a folder", out_.repository,
                           one_line(n.substr(0, slash)));
    std::sort(out_.files.begin(), out_.files.end(),
              [](const RemoteFile& a, const RemoteFile& b) { return a.path < b.path; });
    return std::move(out_);
  }

 private:
  Result<Json> ask(const std::string& url, HttpHead* head = nullptr) {
    DQ_TRY(const std::string text, http_.text(url, kMaxListing, head));
    auto json = parse_json(text, shown_url(url));
    if (!json) return no_listing(url);
    return json;
  }

  Result<void> huggingface() {
    const std::string base = address_.endpoint + "/api/models/" + out_.repository;
    const std::string url = base + "/revision/" + url_encode(out_.revision, false) + "?blobs=true";
    DQ_TRY(const Json json, ask(url));
    const auto siblings = json.find("siblings");
    if (!json.is_object() || siblings == json.end() || !siblings->is_array()) return no_listing(url);
    out_.commit = checked_hex(text_of(json, "sha"), 40);
    bool sizes = true;
    for (const Json& s : *siblings) {
      if (!s.is_object()) return no_listing(url);
      RemoteFile f{.path = text_of(s, "rfilename")};
      f.size = size_of(s, "size");
      f.git_sha1 = checked_hex(text_of(s, "blobId"), 40);
      if (const auto lfs = s.find("lfs"); lfs != s.end() && lfs->is_object()) take_lfs(*lfs, "sha256", f);
      sizes &= f.size.has_value();
      out_.files.push_back(std::move(f));
    }
    if (!sizes) {
      out_.files.clear();
      DQ_CHECK(tree(base + "/tree/" + url_encode(at(), false) + "?recursive=true"));
    }
    for (RemoteFile& f : out_.files)
      f.url = address_.endpoint + "/" + out_.repository + "/resolve/" + url_encode(at(), false) + "/" +
              url_encode(f.path, true);
    return {};
  }

  /// The commit, so that a push in the middle of the pull changes nothing.
  const std::string& at() const { return out_.commit.empty() ? out_.revision : out_.commit; }

  static void take_lfs(const Json& lfs, const char* key, RemoteFile& f) {
    f.sha256 = checked_hex(text_of(lfs, key), 64);
    f.git_sha1.clear();  // of the pointer, not of the file
    if (const auto size = size_of(lfs, "size")) f.size = size;
  }

  Result<void> tree(std::string url) {
    for (int page = 0; page < kMaxPages; ++page) {
      HttpHead head;
      DQ_TRY(const Json json, ask(url, &head));
      if (!json.is_array()) return no_listing(url);
      for (const Json& e : json) {
        if (!e.is_object()) return no_listing(url);
        if (text_of(e, "type") != "file") continue;
        RemoteFile f{.path = text_of(e, "path")};
        f.size = size_of(e, "size");
        f.git_sha1 = checked_hex(text_of(e, "oid"), 40);
        if (const auto lfs = e.find("lfs"); lfs != e.end() && lfs->is_object()) take_lfs(*lfs, "oid", f);
        out_.files.push_back(std::move(f));
      }
      const std::string next = next_page(head.link);
      if (next.empty()) return {};
      if (origin_of(next) != origin_of(address_.endpoint)) return no_listing(url);
      url = next;
    }
    return bad_input("[pull] {}: expected at most {} pages of files", out_.repository, kMaxPages);
  }

  /// Link: <URL>; rel="next"
  static std::string next_page(const std::string& link) {
    const size_t rel = link.find("rel=\"next\"");
    if (rel == std::string::npos) return "";
    const size_t close = link.rfind('>', rel), open = link.rfind('<', close);
    if (close == std::string::npos || open == std::string::npos) return "";
    return link.substr(open + 1, close - open - 1);
  }

  Result<void> modelscope() {
    const std::string base = address_.endpoint + "/api/v1/models/" + out_.repository + "/repo";
    const std::string revision = url_encode(out_.revision, false);
    const std::string url = base + "/files?Revision=" + revision + "&Recursive=True";
    DQ_TRY(const Json json, ask(url));
    const auto data = json.find("Data");
    if (!json.is_object() || data == json.end() || !data->is_object()) {
      const std::string message = json.is_object() ? text_of(json, "Message") : "";
      return message.empty() ? no_listing(url) : bad_input("[pull] {}: {}", shown_url(url), one_line(message));
    }
    const auto files = data->find("Files");
    if (files == data->end() || !files->is_array()) return no_listing(url);
    for (const Json& e : *files) {
      if (!e.is_object()) return no_listing(url);
      if (text_of(e, "Type") == "tree") continue;
      RemoteFile f{.path = text_of(e, "Path")};
      f.size = size_of(e, "Size");
      f.sha256 = checked_hex(text_of(e, "Sha256"), 64);
      f.url = base + "?Revision=" + revision + "&FilePath=" + url_encode(f.path, false);
      out_.files.push_back(std::move(f));
    }
    return {};
  }

  Http& http_;
  const HubAddress& address_;
  Listing out_;
};

}  // namespace

Result<Listing> list_repository(Http& http, const HubAddress& address, const RepositoryId& id) {
  return Lister(http, address, id).run();
}

}  // namespace danqing::fetch
