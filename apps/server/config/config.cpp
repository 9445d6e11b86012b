#include "server/config/config.h"

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "server/config/toml.h"

namespace danqing::server {
namespace {

Error wrong(const char* expected, const Json& got) {
  return usage_error("expected {}, got {}", expected, one_line(dump_json(got), 60));
}

std::string dashed(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

Option integer(const char* key, int Config::*field, int64_t min, int64_t max, const char* help) {
  return {key, help,
          [=](Config& c, const Json& v) -> Result<void> {
            if (!v.is_number_integer()) return wrong("a whole number", v);
            const auto n = v.is_number_unsigned() && v.get<uint64_t>() > INT64_MAX ? INT64_MAX : v.get<int64_t>();
            if (n < min || n > max) return usage_error("expected {} to {}, got {}", min, max, n);
            c.*field = static_cast<int>(n);
            return {};
          },
          [=](const Config& c) { return Json(c.*field); }};
}

Option number(const char* key, double Config::*field, double min, double max, const char* help) {
  return {key, help,
          [=](Config& c, const Json& v) -> Result<void> {
            if (!v.is_number()) return wrong("a number", v);
            const double n = v.get<double>();
            if (!(n >= min && n <= max)) return usage_error("expected {:g} to {:g}, got {:g}", min, max, n);
            c.*field = n;
            return {};
          },
          [=](const Config& c) { return Json(c.*field); }};
}

Option text(const char* key, std::string Config::*field, const char* help, std::vector<std::string> choices = {}) {
  return {key, help,
          [=](Config& c, const Json& v) -> Result<void> {
            if (!v.is_string()) return wrong("text", v);
            const auto& s = v.get_ref<const std::string&>();
            if (!choices.empty() && std::find(choices.begin(), choices.end(), s) == choices.end())
              return usage_error("expected one of {}, got '{}'", fmt::join(choices, ", "), one_line(s, 60));
            c.*field = s;
            return {};
          },
          [=](const Config& c) { return Json(c.*field); }};
}

Option bytes(const char* key, std::string Config::*field, const char* help) {
  return {key, help,
          [=](Config& c, const Json& v) -> Result<void> {
            if (!v.is_string() && !v.is_number_unsigned()) return wrong("bytes, as 32GiB or 1000000", v);
            const std::string s = v.is_string() ? v.get<std::string>() : std::to_string(v.get<uint64_t>());
            DQ_TRY([[maybe_unused]] const uint64_t n, parse_bytes(s));
            c.*field = s;
            return {};
          },
          [=](const Config& c) { return Json(c.*field); }};
}

Option boolean(const char* key, bool Config::*field, const char* help) {
  Option o{key, help,
           [=](Config& c, const Json& v) -> Result<void> {
             if (!v.is_boolean()) return wrong("true or false", v);
             c.*field = v.get<bool>();
             return {};
           },
           [=](const Config& c) { return Json(c.*field); }};
  o.flag = true;
  return o;
}

Option words(const char* key, std::vector<std::string> Config::*field, const char* help) {
  Option o{key, help,
           [=](Config& c, const Json& v) -> Result<void> {
             std::vector<std::string> list;
             if (v.is_string())
               list.push_back(v.get<std::string>());
             else if (!v.is_array())
               return wrong("a list of texts", v);
             else
               for (const Json& e : v) {
                 if (!e.is_string()) return wrong("a list of texts", v);
                 list.push_back(e.get<std::string>());
               }
             c.*field = std::move(list);
             return {};
           },
           [=](const Config& c) { return Json(c.*field); }};
  o.list = true;
  return o;
}

/// Where weights go; the words are those of the command line.
Option placement(const char* key, std::string app::MemoryWords::*field, const char* help) {
  return {key, help,
          [=](Config& c, const Json& v) -> Result<void> {
            if (!v.is_string() && !v.is_number_unsigned()) return wrong("text", v);
            app::MemoryWords words = c.placement;
            words.*field = v.is_string() ? v.get<std::string>() : std::to_string(v.get<uint64_t>());
            DQ_TRY([[maybe_unused]] const MemoryOptions checked, app::parse_memory(words));
            c.placement = std::move(words);
            return {};
          },
          [=](const Config& c) { return Json(c.placement.*field); }};
}

constexpr double kYears = 4e9;  // seconds

std::vector<Option> make_options() {
  using C = Config;
  using W = app::MemoryWords;
  return {
      words("model", &C::models, "Model directory or file, or NAME=PATH; several may be served"),
      text("device", &C::device, "auto, cpu, or a card by name"),
      text("precision", &C::precision, "In which precision the networks run", {"auto", "f32", "bf16", "f16"}),
      integer("threads", &C::threads, 0, 1024, "CPU threads of the networks; 0 = physical cores"),
      text("host", &C::host, "Address to listen on"),
      integer("port", &C::port, 0, 65535, "Port; 0 takes a free one"),
      text("data", &C::data, "Directory of jobs and pictures"),
      text("api_key_file", &C::api_key_file, "Who may use the server; lines made by --new-key"),
      boolean("allow_public", &C::allow_public, "Listen on a public address although there are no keys"),
      words("cors", &C::cors, "Origin that a page may call from, https://example.org or *"),
      words("allowed_host", &C::allowed_hosts,
            "Host name (besides IP addresses and localhost) that a server without keys answers to"),
      integer("batch_size", &C::batch_size, 0, 64,
              "Pictures of different jobs denoised together; 0 = the device's choice"),
      number("guidance_scale", &C::guidance_scale, -1, 1000, "Default guidance; below 0 = the model's"),
      integer("max_steps", &C::max_steps, 1, 1000, "Most steps of a job"),
      integer("max_images", &C::max_images, 1, 256, "Most pictures of a job"),
      integer("max_side", &C::max_side, 16, 16384, "Longest side in pixels"),
      bytes("max_pixels", &C::max_pixels, "Most pixels of a picture"),
      integer("max_prompt_bytes", &C::max_prompt_bytes, 1, 1 << 20, "Longest prompt"),
      integer("queue_size", &C::queue_size, 1, 100000, "Most jobs that wait"),
      integer("queue_per_key", &C::queue_per_key, 1, 100000, "Most jobs of one key that wait"),
      number("deadline_seconds", &C::deadline_seconds, 1, kYears, "A job that is not done by then fails"),
      bytes("max_body", &C::max_body, "Largest body of a request"),
      integer("max_connections", &C::max_connections, 1, 100000, "Most connections at once"),
      integer("http_threads", &C::http_threads, 1, 64, "Threads that answer requests"),
      integer("idle_seconds", &C::idle_seconds, 1, 3600, "Until an idle connection is closed"),
      integer("body_seconds", &C::body_seconds, 1, 3600, "Time for a body to arrive"),
      integer("write_seconds", &C::write_seconds, 1, 3600, "A reader that takes nothing for so long is cut off"),
      number("drain_seconds", &C::drain_seconds, 0, 86400, "After SIGTERM: how long the running job may take"),
      number("keep_days", &C::keep_days, 0, 36500, "Delete jobs and pictures after so many days; 0 = never"),
      bytes("keep_bytes", &C::keep_bytes, "Delete the oldest pictures beyond so many bytes; 0 = never"),
      bytes("memory", &C::memory, "Device memory for all that is computed, as --device-memory; 0 = what is free"),
      placement("reserve", &W::reserve, "Of it, left to the driver and others; empty = a tenth, at most 4 GiB"),
      placement("host_memory", &W::host_memory, "Host memory for the files' pages; empty = what is available"),
      placement("offload", &W::offload, "auto, none, component or stream"),
      placement("vae_tiling", &W::vae_tiling, "auto, on or off"),
      placement("attention_chunk", &W::attention_chunk,
                "auto, or queries at once where attention writes its scores out"),
      placement("weight_type", &W::weight_type, "auto, stored, or a type to quantise to while loading (q8_0, q4_K)"),
      text("enhancer_url", &C::enhancer_url,
           "OpenAI-compatible chat endpoint that writes prompts instead of the model's own enhancer"),
      text("enhancer_model", &C::enhancer_model, "Model name for that endpoint"),
      text("enhancer_key_file", &C::enhancer_key_file, "File with the API key for that endpoint"),
      number("enhancer_seconds", &C::enhancer_seconds, 1, 600, "Time for that endpoint to answer"),
      integer("enhancer_tokens", &C::enhancer_tokens, 1, 8192, "Most tokens that an enhancer writes"),
      integer("preview_every", &C::preview_every, 0, 1000, "Steps between previews; 0 = none"),
      boolean("preload", &C::preload, "Load the first model before the first job"),
      text("log_format", &C::log_format, "json (ECS field names) or text", {"json", "text"}),
      text("log_level", &C::log_level, "debug, info, warning or error", {"debug", "info", "warning", "error"}),
      text("energy_card", &C::energy_card,
           "Card whose energy is charged to jobs: auto (the device), none, or an id or PCI address of danqing monitor"),
      text("sysfs_root", &C::sysfs_root, "Read the cards' state from DIR/sys and DIR/proc"),
      boolean("log_prompts", &C::log_prompts, "Prompts may appear in the log"),
      text("queue", &C::queue, "Queue of many machines: nats://HOST:PORT[,HOST:PORT...]; empty = this machine's own"),
      boolean("also_work", &C::also_work, "With --queue: draw here too, beside the workers"),
      text("queue_creds", &C::queue_creds, "NATS credentials file (JWT and seed)"),
      text("queue_user", &C::queue_user,
           "NATS user; the password from --queue-password-file or $DANQING_QUEUE_PASSWORD"),
      text("queue_password_file", &C::queue_password_file, "File with the password of --queue-user"),
      text("queue_token_file", &C::queue_token_file, "File with a NATS token; or $DANQING_QUEUE_TOKEN"),
      text("queue_tls_ca", &C::queue_tls_ca, "Certificates to trust for the queue; turns TLS on, as tls:// does"),
      text("queue_tls_cert", &C::queue_tls_cert, "Own certificate for the queue"),
      text("queue_tls_key", &C::queue_tls_key, "Its key"),
      text("queue_prefix", &C::queue_prefix, "First word of subjects and streams; one NATS can serve several queues"),
      number("queue_lease_seconds", &C::queue_lease_seconds, 1, 3600,
             "A worker that gives no sign of life for so long counts as dead"),
      integer("queue_attempts", &C::queue_attempts, 1, 20, "Workers that a job may end before it is a dead letter"),
      number("queue_keep_hours", &C::queue_keep_hours, 0.1, 8760,
             "How long results and pictures wait in NATS for their server"),
      integer("queue_replicas", &C::queue_replicas, 1, 5, "Copies of each stream in a NATS cluster"),
      text("worker_name", &C::worker_name, "Name of a worker in results and logs; empty = host name and process id"),
      words(
          "size_classes", &C::size_classes,
          "Classes of jobs that a worker takes (s, m, l, xl: up to 512, 1024, 2048, 4096 pixels square); none = those "
          "that its card can hold"),
  };
}

/// A word of the environment or the command line, as the JSON value that it most likely is.
Json from_word(const std::string& word) {
  auto parsed = parse_json(word, "");
  if (parsed && (parsed->is_number() || parsed->is_boolean())) return *parsed;
  return word;
}

Json from_words(const Option& o, const std::vector<std::string>& list) {
  if (o.list) return list;
  if (o.get(Config{}).is_string()) return list.back();  // "123" is text where text is expected
  return from_word(list.back());
}

Result<void> apply(Config& c, const Option& o, const Json& value, const std::string& source) {
  auto done = o.set(c, value);
  if (done) return {};
  return fail(ErrorCode::usage, "[config] {}: {}", source, done.error().message);
}

Result<void> apply_file(Config& c, const std::string& path) {
  DQ_TRY(const std::string content, read_text(path, 1 << 20));
  const bool toml = path.size() > 5 && path.substr(path.size() - 5) == ".toml";
  DQ_TRY(const Json json, toml ? parse_toml(content, path) : parse_json(content, path));
  if (!json.is_object()) return bad_input("[config] {}: expected an object of settings", path);
  for (const auto& [key, value] : json.items()) {
    const Option* found = nullptr;
    for (const Option& o : options())
      if (o.key == key) found = &o;
    if (!found)
      return usage_error("[config] {}: unknown setting '{}' (danqing serve --print-config lists all)", path,
                         one_line(key, 60));
    DQ_CHECK(apply(c, *found, value, path + ": " + key));
  }
  return {};
}

}  // namespace

const std::vector<Option>& options() {
  static const std::vector<Option> list = make_options();
  return list;
}

void add_flags(CLI::App& command, FlagValues& flags, const std::function<bool(const std::string&)>& wanted) {
  command.add_option("--config", flags.config_file,
                     "Settings from this file (.toml or .json; default: danqing.toml here, if there is one)");
  for (const Option& o : options()) {
    if (wanted && !wanted(o.key)) continue;
    const std::string name = "--" + dashed(o.key) + (o.key == "model" ? ",-m" : o.key == "precision" ? ",--dtype" : "");
    if (o.flag) {
      command.add_flag_callback(
          name, [&flags, key = o.key] { flags.values[key] = {"true"}; }, o.help);
      command.add_flag_callback("--no-" + dashed(o.key), [&flags, key = o.key] { flags.values[key] = {"false"}; })
          ->group("");
    } else {
      command
          .add_option_function<std::vector<std::string>>(
              name, [&flags, key = o.key](const std::vector<std::string>& v) { flags.values[key] = v; }, o.help)
          ->type_name(o.list ? "TEXT ..." : "")
          ->expected(1)
          ->allow_extra_args(false)
          ->multi_option_policy(o.list ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast)
          ->default_str(dump_json(o.get(Config{})));
    }
  }
}

Result<Config> load_config(const FlagValues& flags) {
  Config c;
  std::string file = flags.config_file;
  const char* env_file = std::getenv("DANQING_CONFIG");
  if (file.empty() && env_file) file = env_file;
  std::error_code ec;
  if (file.empty() && std::filesystem::exists("danqing.toml", ec)) file = "danqing.toml";
  if (!file.empty()) DQ_CHECK(apply_file(c, file));
  for (const Option& o : options()) {
    std::string variable = "DANQING_" + o.key;
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char ch) { return std::toupper(ch); });
    const char* value = std::getenv(variable.c_str());
    if (value && *value) DQ_CHECK(apply(c, o, from_words(o, {value}), "$" + variable));
  }
  for (const Option& o : options())
    if (const auto it = flags.values.find(o.key); it != flags.values.end() && !it->second.empty())
      DQ_CHECK(apply(c, o, from_words(o, it->second), "--" + dashed(o.key)));
  return c;
}

Json to_json(const Config& config) {
  Json j = Json::object();
  for (const Option& o : options()) j[o.key] = o.get(config);
  return j;
}

}  // namespace danqing::server
