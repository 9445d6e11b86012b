#include "server/ops/process.h"

#include <pthread.h>
#include <sys/resource.h>

#include "server/ops/ecs_log.h"

namespace danqing::server {

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, s);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of write(), not the end
  return set;
}

void configure_log(const Config& config) {
  const std::string& word = config.log_level;
  configure_log(config.log_format == "json", word == "debug"     ? log::Level::debug
                                             : word == "warning" ? log::Level::warning
                                             : word == "error"   ? log::Level::error
                                                                 : log::Level::info);
}

}  // namespace danqing::server
