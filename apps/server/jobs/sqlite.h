// SQLite with errors as values.
#pragma once
#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "danqing/result.h"

namespace danqing::server {

/// One prepared statement being run. Columns and parameters count from 0 and 1, as SQLite counts them.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql);
  ~Statement() { sqlite3_finalize(s_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement& bind(int i, int64_t v);
  Statement& bind(int i, double v);
  Statement& bind(int i, std::string_view v);
  /// True: a row is there; false: the end, or an error (see `failed`).
  bool step();
  bool failed() const { return code_ != SQLITE_OK && code_ != SQLITE_ROW && code_ != SQLITE_DONE; }
  Result<void> run();
  Error error() const;
  int64_t integer(int i) const { return sqlite3_column_int64(s_, i); }
  double number(int i) const { return sqlite3_column_double(s_, i); }
  std::string text(int i) const;

 private:
  sqlite3* db_;
  sqlite3_stmt* s_ = nullptr;
  int code_ = SQLITE_OK;
};

class Database {
 public:
  /// ":memory:" for none on disk. WAL and full synchronisation: what was committed survives.
  static Result<std::unique_ptr<Database>> open(const std::string& path);
  ~Database();
  sqlite3* get() const { return db_; }
  Result<void> exec(const char* sql);
  /// begin ... commit; rolled back if `f` fails.
  template <class F>
  Result<void> transaction(F&& f) {
    if (auto r = exec("BEGIN IMMEDIATE"); !r) return r;
    if (auto r = f(); !r) {
      (void)exec("ROLLBACK");
      return r;
    }
    if (auto r = exec("COMMIT"); !r) {
      (void)exec("ROLLBACK");
      return r;
    }
    return {};
  }

 private:
  Database() = default;
  sqlite3* db_ = nullptr;
};

}  // namespace danqing::server
