// Everything that `danqing serve` can be told: one table for the configuration file, the environment and the flags.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "common/memory_options.h"
#include "danqing/result.h"

namespace danqing::server {

struct Config {
  std::vector<std::string> models;  ///< "NAME=PATH" or "PATH"
  std::string device = "auto", precision = "auto";
  int threads = 0;
  std::string host = "127.0.0.1";
  int port = 7860;
  std::string data = "danqing-data";
  std::string api_key_file;
  bool allow_public = false;
  std::vector<std::string> cors, allowed_hosts;
  int batch_size = 0;
  double guidance_scale = -1;  ///< below 0: the model's
  int max_steps = 150, max_images = 16, max_side = 2048;
  std::string max_pixels = "4194304";
  int max_prompt_bytes = 16384;
  int queue_size = 500, queue_per_key = 500;
  double deadline_seconds = 3600;
  std::string max_body = "32MiB";
  int max_connections = 2048, http_threads = 4;
  int idle_seconds = 60, body_seconds = 30, write_seconds = 60;
  double drain_seconds = 60;
  double keep_days = 0;
  std::string keep_bytes = "0", memory = "0";
  app::MemoryWords placement;  ///< device_memory comes from `memory`
  std::string enhancer_url, enhancer_model, enhancer_key_file;
  double enhancer_seconds = 20;
  int enhancer_tokens = 512;
  int preview_every = 1;
  bool preload = true;
  std::string log_format = "json", log_level = "info";
  bool log_prompts = false;
  std::string energy_card = "auto", sysfs_root = "/";
  std::string queue;  ///< nats://HOST:PORT[,...]; empty: this machine's own
  bool also_work = false;
  std::string queue_creds, queue_user, queue_password_file, queue_token_file;
  std::string queue_tls_ca, queue_tls_cert, queue_tls_key;
  std::string queue_prefix = "danqing";
  double queue_lease_seconds = 30, queue_keep_hours = 24;
  int queue_attempts = 5, queue_replicas = 1;
  std::string worker_name;
  std::vector<std::string> size_classes;  ///< of the jobs that a worker takes; empty: those that fit
};

/// One way to set one field.
struct Option {
  std::string key;  ///< "max_steps": in the file; flag --max-steps; environment DANQING_MAX_STEPS
  std::string help;
  std::function<Result<void>(Config&, const Json&)> set;  ///< a number, text, boolean or list, checked
  std::function<Json(const Config&)> get;
  bool flag = false;  ///< true or false
  bool list = false;
};
const std::vector<Option>& options();

/// What the flags said, by key; filled by CLI11 when it parses.
struct FlagValues {
  std::map<std::string, std::vector<std::string>> values;
  std::string config_file;
};
/// `wanted`: which keys become flags; empty = all.
void add_flags(CLI::App& command, FlagValues& values, const std::function<bool(const std::string&)>& wanted = {});

/// Defaults, then the file (.toml, or JSON), then the environment, then the flags. Errors (usage, bad_input) name the
/// source and the key; an unknown key of a file is an error.
Result<Config> load_config(const FlagValues& flags);
Json to_json(const Config& config);

}  // namespace danqing::server
