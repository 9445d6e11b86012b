#include "server/jobs/sqlite.h"

#include "base/try.h"

namespace danqing::server {
namespace {
Error sqlite_error(sqlite3* db, int code) {
  return fail(ErrorCode::failed, "[database] {}", db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}
}  // namespace

Statement::Statement(sqlite3* db, const char* sql) : db_(db) { code_ = sqlite3_prepare_v2(db, sql, -1, &s_, nullptr); }
Statement& Statement::bind(int i, int64_t v) {
  if (s_ && code_ == SQLITE_OK) code_ = sqlite3_bind_int64(s_, i, v);
  return *this;
}
Statement& Statement::bind(int i, double v) {
  if (s_ && code_ == SQLITE_OK) code_ = sqlite3_bind_double(s_, i, v);
  return *this;
}
Statement& Statement::bind(int i, std::string_view v) {
  if (s_ && code_ == SQLITE_OK)
    code_ = sqlite3_bind_text(s_, i, v.data() ? v.data() : "", static_cast<int>(v.size()), SQLITE_TRANSIENT);
  return *this;
}
bool Statement::step() {
  if (failed() || !s_) return false;
  code_ = sqlite3_step(s_);
  return code_ == SQLITE_ROW;
}
Result<void> Statement::run() {
  while (step()) {
  }
  if (failed() || !s_) return error();
  return {};
}
Error Statement::error() const { return sqlite_error(db_, code_); }
std::string Statement::text(int i) const {
  const auto* t = sqlite3_column_text(s_, i);
  return t ? std::string(reinterpret_cast<const char*>(t), static_cast<size_t>(sqlite3_column_bytes(s_, i))) : "";
}

Database::~Database() { sqlite3_close(db_); }

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  std::unique_ptr<Database> d(new Database);
  const int code = sqlite3_open_v2(path.c_str(), &d->db_,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  if (code != SQLITE_OK) return sqlite_error(d->db_, code);
  sqlite3_busy_timeout(d->db_, 5000);
  DQ_CHECK(d->exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON"));
  return d;
}

Result<void> Database::exec(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return sqlite_error(db_, code);
  return {};
}

}  // namespace danqing::server
