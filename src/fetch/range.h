// Bytes of one remote file: any range, through drops and waits, and never of two versions.
#pragma once
#include <mutex>
#include <string>

#include "fetch/remote.h"

namespace danqing::fetch {

/// What a file's answers have in common: the ETag (or Last-Modified). The first answer says what it is.
class Identity {
 public:
  explicit Identity(std::string etag = {}) : etag_(std::move(etag)) {}
  /// False: it is another file than before.
  bool same(const HttpHead& head);
  std::string if_range() const;  ///< the ETag, if it is a strong one
  std::string etag() const;
  void forget();

 private:
  mutable std::mutex mutex_;
  std::string etag_;
};

enum class RangeEnd {
  done,
  no_ranges,  ///< the server sends whole files only
  changed,    ///< another version of the file than before
};

/// Offset in the file and bytes. Called in order, each byte once.
using RangeSink = std::function<Result<void>(uint64_t offset, std::span<const std::byte> bytes)>;

/// `range` of the file; tries go on where the last one broke off. `stop` ends it early (no error). Errors: as
/// Http::get and Patience; bad_input: a web page where a file was expected.
Result<RangeEnd> fetch_range(Http& http, const RemoteFile& file, Identity& identity, ByteRange range,
                             const RangeSink& sink, const std::function<bool()>& stop = {});
/// The file from its beginning in one stream; `restart` is called when a try begins again from byte 0. Returns its
/// size. Errors: also bad_input: a length that is not the expected one.
Result<uint64_t> fetch_whole(Http& http, const RemoteFile& file, Identity& identity, const RangeSink& sink,
                             const std::function<Result<void>()>& restart);
/// Into memory, with several connections. Error (failed) where the server knows no ranges or the file changed.
Result<void> read_range(Http& http, const RemoteFile& file, Identity& identity, ByteRange range,
                        std::span<std::byte> out, int connections, const std::function<void(int64_t)>& moved);

}  // namespace danqing::fetch
