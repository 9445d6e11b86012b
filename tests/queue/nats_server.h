// A real nats-server with JetStream on a free port of 127.0.0.1, as a process of its own.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"

extern char** environ;

namespace danqing::testing {

class NatsServer {
 public:
  /// Empty `address()` where no nats-server is installed, or it does not start.
  explicit NatsServer(std::filesystem::path directory) : directory_(std::move(directory)) { start("-1"); }
  ~NatsServer() { stop(SIGKILL); }
  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }
  void stop(int signal) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  /// Again, on the same port and with the same data.
  bool restart() {
    stop(SIGKILL);
    return start(port_);
  }

 private:
  bool start(const std::string& port) {
    namespace fs = std::filesystem;
    const std::string store = (directory_ / "store").string(), ports = (directory_ / "ports").string(),
                      log = (directory_ / "nats.log").string();
    fs::remove_all(ports);
    fs::create_directories(ports);
    std::vector<std::string> words{"nats-server", "-a", "127.0.0.1",        "-p", port, "-js", "-sd", store,
                                   "-l",          log,  "--ports_file_dir", ports};
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    if (::posix_spawnp(&pid_, "nats-server", nullptr, nullptr, argv.data(), environ) != 0) {
      pid_ = 0;
      return false;
    }
    for (int i = 0; i < 500; ++i) {
      for (const auto& e : fs::directory_iterator(ports)) {
        const auto json = read_json(e.path());
        if (!json || !json->contains("nats") || (*json)["nats"].empty()) continue;
        address_ = (*json)["nats"][0].get<std::string>();
        port_ = address_.substr(address_.rfind(':') + 1);
        return true;
      }
      if (::waitpid(pid_, nullptr, WNOHANG) != 0) {
        pid_ = 0;
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  const std::filesystem::path directory_;
  pid_t pid_ = 0;
  std::string address_, port_;
};

}  // namespace danqing::testing
