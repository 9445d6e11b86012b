// Jobs and pictures on disk: a SQLite database (WAL) and one directory of picture files.
// What was accepted survives a kill at any moment: a picture's file is complete under its name before the row that
// tells of it is committed, and a job is done in the same transaction that names its pictures. Thread-safe.
#pragma once
#include <filesystem>
#include <memory>
#include <mutex>

#include "server/http/http.h"
#include "server/jobs/job.h"
#include "server/jobs/sqlite.h"

namespace danqing::server {

struct Page {
  int limit = 50;
  int64_t before = 0;  ///< rows older than this one; 0 = from the newest
};

class Store {
 public:
  /// Never fails for a bad disk: with a database or directory that cannot be used it works in memory (and a temporary
  /// directory) and `problem` says why. A damaged database is left as it is.
  static std::unique_ptr<Store> open(const std::filesystem::path& directory);
  ~Store();
  const std::string& problem() const { return problem_; }
  const std::string& path() const { return path_; }      ///< of the database; ":memory:" if none can be used
  const std::string& secret() const { return secret_; }  ///< signs picture addresses

  Result<void> insert(JobRecord& job);  ///< assigns seq
  Result<void> start(const std::string& id, double when);
  /// One transaction: the job's end, its pictures (whose files exist), its row in the queue.
  Result<void> finish(const JobRecord& job, std::vector<Picture>& pictures);
  /// Back to the queue, after a crash or a drain.
  Result<void> requeue(const std::string& id);
  std::optional<JobRecord> find(const std::string& id);
  std::optional<JobRecord> find_idempotent(const std::string& key, const std::string& idempotency_key);
  /// Newest first; an admin (of a server with keys) sees all.
  std::vector<JobRecord> list(const Caller& caller, std::optional<Status> status, const Page& page);
  /// Queued and running ones, oldest first.
  std::vector<JobRecord> unfinished();
  std::vector<Picture> pictures(const std::string& job);
  std::vector<Picture> gallery(const Caller& caller, const Page& page);
  /// True if it was there.
  bool remove_picture(const std::string& job, int n);
  /// Deletes pictures (and jobs) older than `before`, then the oldest beyond `bytes` (0 = no limit). How many went.
  int expire(double before, uint64_t bytes);

  /// The file is complete or not there. Format by the job's output.
  Result<void> write_picture(const std::string& job, int n, const std::string& bytes, const std::string& thumbnail);
  Result<std::string> read_picture(const std::string& job, int n) const;
  Result<std::string> read_thumbnail(const std::string& job, int n) const;
  uint64_t picture_bytes();

 private:
  Store() = default;
  Result<void> open_database(const std::string& path);
  std::filesystem::path file(const std::string& job, int n, const char* suffix) const;
  JobRecord read(const Statement& s) const;
  Picture read_picture_row(const Statement& s) const;
  void remove_unknown_files();

  std::unique_ptr<Database> db_;
  std::filesystem::path images_;
  std::string path_, problem_, secret_;
  bool temporary_ = false;
  std::mutex mutex_;
};

}  // namespace danqing::server
