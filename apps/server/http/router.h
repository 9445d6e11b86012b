// Which handler answers what: method and pattern, who may call it, and on which thread it runs.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "server/api/error.h"

namespace danqing::server {

enum class Access { all, key, admin };  ///< without a key; with any key; with an admin's
using Handler = std::function<void(const ExchangePtr&)>;

struct Route {
  std::string method, pattern;  ///< "/v1/jobs/{id}", "/v1/admin/models/{id}:reload"
  Access access = Access::key;
  Handler handler;
  bool quick = false;  ///< does not touch disk or database: runs at once on the I/O thread
};

class Router {
 public:
  void add(Route route) { routes_.push_back(std::move(route)); }
  /// Null: nothing there (404), or `allowed` lists other methods (405). HEAD is answered by GET.
  const Route* find(Request& request, std::string& allowed) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace danqing::server
