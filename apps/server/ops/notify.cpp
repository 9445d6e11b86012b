#include "server/ops/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace danqing::server {

void notify(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un a{};
  if (!path || !*path || std::strlen(path) >= sizeof a.sun_path) return;
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path, path, std::strlen(path));
  if (a.sun_path[0] == '@') a.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  (void)!::sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&a),
                  static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path)));
  ::close(fd);
}

double watchdog_seconds() {
  const char* usec = std::getenv("WATCHDOG_USEC");
  return usec ? std::strtod(usec, nullptr) / 2e6 : 0;
}

}  // namespace danqing::server
