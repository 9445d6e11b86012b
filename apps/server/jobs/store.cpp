#include "server/jobs/store.h"

#include <unistd.h>

#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/try.h"
#include "server/auth/crypto.h"
#include "server/queue/sqlite_queue.h"

namespace danqing::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSchema = R"(
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, key TEXT NOT NULL, trace TEXT NOT NULL,
  idempotency TEXT NOT NULL, request_hash TEXT NOT NULL, status TEXT NOT NULL, created REAL NOT NULL,
  started REAL NOT NULL, finished REAL NOT NULL, attempts INTEGER NOT NULL, spec TEXT NOT NULL, notes TEXT NOT NULL,
  error_code TEXT NOT NULL, error_message TEXT NOT NULL, timing TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_status ON jobs (status, seq);
CREATE INDEX IF NOT EXISTS jobs_key ON jobs (key, seq);
CREATE UNIQUE INDEX IF NOT EXISTS jobs_idempotency ON jobs (key, idempotency) WHERE idempotency <> '';
CREATE TABLE IF NOT EXISTS pictures (
  id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, key TEXT NOT NULL, n INTEGER NOT NULL, seed TEXT NOT NULL,
  width INTEGER NOT NULL, height INTEGER NOT NULL, bytes INTEGER NOT NULL, created REAL NOT NULL, model TEXT NOT NULL,
  settings TEXT NOT NULL, UNIQUE (job, n));
CREATE INDEX IF NOT EXISTS pictures_key ON pictures (key, id);
)";

constexpr const char* kJobColumns =
    "seq, id, key, trace, idempotency, request_hash, status, created, started, finished, attempts, spec, notes, "
    "error_code, error_message, timing";
constexpr const char* kPictureColumns = "id, job, n, seed, width, height, bytes, created, model, settings";

std::string select(const char* columns, const char* rest) { return fmt::format("SELECT {} FROM {}", columns, rest); }

Json stored(const std::string& text) {
  auto j = parse_json(text, "database");
  return j ? *j : Json();
}

}  // namespace

std::unique_ptr<Store> Store::open(const fs::path& directory) {
  std::unique_ptr<Store> s(new Store);
  std::error_code ec;
  fs::create_directories(directory / "images", ec);
  s->images_ = directory / "images";
  const auto probe = write_file(s->images_ / ".probe", "x");
  if (probe) {
    fs::remove(s->images_ / ".probe", ec);
  } else {
    s->problem_ = fmt::format("nothing can be written to {} ({}): jobs and pictures are lost when the server stops",
                              directory.string(), probe.error().message);
    std::string pattern = (fs::temp_directory_path(ec) / "danqing-XXXXXX").string();
    if (::mkdtemp(pattern.data())) s->images_ = pattern;
    s->temporary_ = true;
  }
  if (s->problem_.empty())
    if (auto r = s->open_database((directory / "jobs.sqlite").string()); !r)
      s->problem_ =
          fmt::format("{} cannot be used ({}): jobs are lost when the server stops; move the file away, or restore it",
                      (directory / "jobs.sqlite").string(), r.error().message);
  if (!s->problem_.empty()) {
    log::write(log::Level::error, "[storage] " + s->problem_);
    if (auto r = s->open_database(":memory:"); !r) log::write(log::Level::error, r.error().message);
  } else {
    s->remove_unknown_files();
  }
  return s;
}

Store::~Store() {
  std::error_code ec;
  if (temporary_) fs::remove_all(images_, ec);
}

Result<void> Store::open_database(const std::string& path) {
  DQ_TRY(db_, Database::open(path));
  DQ_CHECK(db_->exec(kSchema));
  DQ_CHECK(db_->exec(kQueueSchema));
  path_ = path;
  Statement check(db_->get(), "PRAGMA quick_check(1)");
  if (!check.step()) return check.error();
  if (check.text(0) != "ok") return fail(ErrorCode::failed, "[database] damaged: {}", check.text(0));
  DQ_CHECK(Statement(db_->get(), "INSERT OR IGNORE INTO settings VALUES ('secret', ?)").bind(1, random_hex(32)).run());
  Statement secret(db_->get(), "SELECT value FROM settings WHERE name = 'secret'");
  if (!secret.step()) return secret.error();
  secret_ = secret.text(0);
  return {};
}

// A kill between a picture's file and its row leaves a file that nobody knows.
void Store::remove_unknown_files() {
  std::set<std::string> known;
  Statement s(db_->get(), "SELECT job, n FROM pictures");
  while (s.step())
    for (const char* suffix : {"", ".thumb"})
      known.insert(file(s.text(0), static_cast<int>(s.integer(1)), suffix).filename());
  if (s.failed()) return;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(images_, ec))
    if (!known.count(e.path().filename())) fs::remove(e.path(), ec);
}

fs::path Store::file(const std::string& job, int n, const char* suffix) const {
  return images_ / fmt::format("{}-{}{}", job, n, suffix);
}

JobRecord Store::read(const Statement& s) const {
  JobRecord j;
  j.seq = s.integer(0);
  j.id = s.text(1), j.key = s.text(2), j.trace_id = s.text(3), j.idempotency_key = s.text(4),
  j.request_hash = s.text(5);
  j.status = parse_status(s.text(6)).value_or(Status::failed);
  j.created = s.number(7), j.started = s.number(8), j.finished = s.number(9);
  j.attempts = static_cast<int>(s.integer(10));
  if (auto spec = spec_from_json(stored(s.text(11)))) j.spec = std::move(*spec);
  const Json notes = stored(s.text(12));
  if (notes.is_array())
    for (const Json& n : notes)
      if (n.is_string()) j.notes.push_back(n.get<std::string>());
  j.error_code = s.text(13), j.error_message = s.text(14);
  j.timing = stored(s.text(15));
  return j;
}

Picture Store::read_picture_row(const Statement& s) const {
  Picture p;
  p.id = s.integer(0), p.job = s.text(1), p.n = static_cast<int>(s.integer(2));
  p.seed = std::strtoull(s.text(3).c_str(), nullptr, 10);
  p.width = static_cast<int>(s.integer(4)), p.height = static_cast<int>(s.integer(5));
  p.bytes = static_cast<uint64_t>(s.integer(6));
  p.created = s.number(7), p.model = s.text(8), p.settings = stored(s.text(9));
  return p;
}

Result<void> Store::insert(JobRecord& j) {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(),
              "INSERT INTO jobs (id, key, trace, idempotency, request_hash, status, created, started, finished, "
              "attempts, spec, notes, error_code, error_message, timing) VALUES (?,?,?,?,?,?,?,0,0,0,?,?,'','','{}')");
  s.bind(1, j.id).bind(2, j.key).bind(3, j.trace_id).bind(4, j.idempotency_key).bind(5, j.request_hash);
  s.bind(6, name(j.status)).bind(7, j.created).bind(8, dump_json(to_json(j.spec))).bind(9, dump_json(Json(j.notes)));
  DQ_CHECK(s.run());
  j.seq = sqlite3_last_insert_rowid(db_->get());
  return {};
}

Result<void> Store::start(const std::string& id, double when) {
  const std::lock_guard lock(mutex_);
  return Statement(db_->get(), "UPDATE jobs SET status = 'running', started = ?, attempts = attempts + 1 WHERE id = ?")
      .bind(1, when)
      .bind(2, id)
      .run();
}

Result<void> Store::requeue(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return Statement(db_->get(), "UPDATE jobs SET status = 'queued', started = 0 WHERE id = ?").bind(1, id).run();
}

Result<void> Store::finish(const JobRecord& j, std::vector<Picture>& pictures) {
  const std::lock_guard lock(mutex_);
  return db_->transaction([&]() -> Result<void> {
    for (Picture& p : pictures) {
      Statement s(db_->get(),
                  "INSERT OR REPLACE INTO pictures (job, key, n, seed, width, height, bytes, created, model, settings) "
                  "VALUES (?,?,?,?,?,?,?,?,?,?)");
      s.bind(1, p.job).bind(2, j.key).bind(3, int64_t{p.n}).bind(4, std::to_string(p.seed));
      s.bind(5, int64_t{p.width}).bind(6, int64_t{p.height}).bind(7, static_cast<int64_t>(p.bytes)).bind(8, p.created);
      s.bind(9, p.model).bind(10, dump_json(p.settings));
      DQ_CHECK(s.run());
      p.id = sqlite3_last_insert_rowid(db_->get());
    }
    DQ_CHECK(Statement(db_->get(), "DELETE FROM queue WHERE id = ? AND state <> 'dead'")
                 .bind(1, std::string_view(j.id))
                 .run());
    // A picture to start from is worth megabytes; once the job is done nobody needs it again.
    if (j.status == Status::done && !j.spec.init_image.empty())
      DQ_CHECK(Statement(db_->get(), "UPDATE jobs SET spec = json_remove(spec, '$.init_image') WHERE id = ?")
                   .bind(1, std::string_view(j.id))
                   .run());
    return Statement(db_->get(),
                     "UPDATE jobs SET status = ?, finished = ?, notes = ?, error_code = ?, error_message = ?, "
                     "timing = ? WHERE id = ?")
        .bind(1, name(j.status))
        .bind(2, j.finished)
        .bind(3, dump_json(Json(j.notes)))
        .bind(4, j.error_code)
        .bind(5, j.error_message)
        .bind(6, dump_json(j.timing))
        .bind(7, j.id)
        .run();
  });
}

std::optional<JobRecord> Store::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(), select(kJobColumns, "jobs WHERE id = ?").c_str());
  if (!s.bind(1, id).step()) return {};
  return read(s);
}

std::optional<JobRecord> Store::find_idempotent(const std::string& key, const std::string& idempotency_key) {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(), select(kJobColumns, "jobs WHERE key = ? AND idempotency = ?").c_str());
  if (!s.bind(1, key).bind(2, idempotency_key).step()) return {};
  return read(s);
}

std::vector<JobRecord> Store::list(const Caller& caller, std::optional<Status> status, const Page& page) {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(), select(kJobColumns,
                                 "jobs WHERE (?1 OR key = ?2) AND (?3 = '' OR status = ?3) AND (?4 = 0 OR seq < ?4) "
                                 "ORDER BY seq DESC LIMIT ?5")
                              .c_str());
  s.bind(1, int64_t{caller.admin}).bind(2, caller.name).bind(3, status ? name(*status) : "");
  s.bind(4, page.before).bind(5, int64_t{page.limit});
  std::vector<JobRecord> out;
  while (s.step()) out.push_back(read(s));
  return out;
}

std::vector<JobRecord> Store::unfinished() {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(), select(kJobColumns, "jobs WHERE status IN ('queued', 'running') ORDER BY seq").c_str());
  std::vector<JobRecord> out;
  while (s.step()) out.push_back(read(s));
  return out;
}

std::vector<Picture> Store::pictures(const std::string& job) {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(), select(kPictureColumns, "pictures WHERE job = ? ORDER BY n").c_str());
  s.bind(1, job);
  std::vector<Picture> out;
  while (s.step()) out.push_back(read_picture_row(s));
  return out;
}

std::vector<Picture> Store::gallery(const Caller& caller, const Page& page) {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(), select(kPictureColumns,
                                 "pictures WHERE (?1 OR key = ?2) AND (?3 = 0 OR id < ?3) ORDER BY id DESC LIMIT ?4")
                              .c_str());
  s.bind(1, int64_t{caller.admin}).bind(2, caller.name).bind(3, page.before).bind(4, int64_t{page.limit});
  std::vector<Picture> out;
  while (s.step()) out.push_back(read_picture_row(s));
  return out;
}

bool Store::remove_picture(const std::string& job, int n) {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(), "DELETE FROM pictures WHERE job = ? AND n = ?");
  if (!s.bind(1, job).bind(2, int64_t{n}).run() || sqlite3_changes(db_->get()) == 0) return false;
  std::error_code ec;
  for (const char* suffix : {"", ".thumb"}) fs::remove(file(job, n, suffix), ec);
  return true;
}

int Store::expire(double before, uint64_t bytes) {
  std::vector<std::pair<std::string, int>> doomed;
  {
    const std::lock_guard lock(mutex_);
    Statement s(db_->get(), "SELECT job, n, bytes, created FROM pictures ORDER BY id DESC");
    uint64_t sum = 0;
    while (s.step()) {
      sum += static_cast<uint64_t>(s.integer(2));
      if (s.number(3) < before || (bytes && sum > bytes))
        doomed.emplace_back(s.text(0), static_cast<int>(s.integer(1)));
    }
  }
  for (const auto& [job, n] : doomed) remove_picture(job, n);
  const std::lock_guard lock(mutex_);
  (void)Statement(db_->get(),
                  "DELETE FROM jobs WHERE finished > 0 AND finished < ? AND status NOT IN ('queued','running') "
                  "AND id NOT IN (SELECT job FROM pictures)")
      .bind(1, before)
      .run();
  return static_cast<int>(doomed.size());
}

Result<void> Store::write_picture(const std::string& job, int n, const std::string& bytes,
                                  const std::string& thumbnail) {
  DQ_CHECK(write_file(file(job, n, ".thumb"), thumbnail));
  return write_file(file(job, n, ""), bytes);
}
Result<std::string> Store::read_picture(const std::string& job, int n) const { return read_text(file(job, n, "")); }
Result<std::string> Store::read_thumbnail(const std::string& job, int n) const {
  return read_text(file(job, n, ".thumb"));
}

uint64_t Store::picture_bytes() {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(), "SELECT COALESCE(SUM(bytes), 0) FROM pictures");
  return s.step() ? static_cast<uint64_t>(s.integer(0)) : 0;
}

}  // namespace danqing::server
