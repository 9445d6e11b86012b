#include "text/tokenizer_json.h"

#include "base/text.h"
#include "base/try.h"

namespace danqing {
namespace {

constexpr size_t kMaxDepth = 128;
constexpr size_t kMaxTokenBytes = 65536;

// Events of nlohmann's SAX parser. Every handler returns false to stop, with error_ set.
class Handler {
 public:
  explicit Handler(TokenizerJson& out) : out_(out) {}
  std::string error;

  bool null() { return value(nullptr); }
  bool boolean(bool b) { return value(b); }
  bool number_integer(int64_t n) { return mode_ == Mode::vocab ? token(n) : value(n); }
  bool number_unsigned(uint64_t n) {
    if (mode_ == Mode::vocab) return token(n > uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(n));
    return value(n);
  }
  bool number_float(double d, const std::string&) { return value(d); }
  bool binary(Json::binary_t&) { return stop("binary data"); }
  bool string(std::string& s) {
    if (mode_ == Mode::merges) return merge(s);
    if (mode_ == Mode::pair) return part(s);
    return value(std::move(s));
  }

  bool key(std::string& k) {
    key_ = std::move(k);
    return true;
  }
  bool start_object(size_t) {
    if (mode_ != Mode::document) return unexpected();
    if (in_model() && key_ == "vocab") {
      if (out_.bpe.has_vocab) return stop("model.vocab is there twice");
      out_.bpe.has_vocab = true;
      mode_ = Mode::vocab;
      return true;
    }
    return open(Json::object());
  }
  bool end_object() {
    if (mode_ == Mode::vocab) {
      mode_ = Mode::document;
    } else {
      stack_.pop_back();
    }
    return true;
  }
  bool start_array(size_t) {
    if (mode_ == Mode::merges) {
      mode_ = Mode::pair;
      parts_ = 0;
      pair_begin_ = out_.bpe.merge_text.size();
      return true;
    }
    if (mode_ != Mode::document) return unexpected();
    if (in_model() && key_ == "merges") {
      if (out_.bpe.has_merges) return stop("model.merges is there twice");
      out_.bpe.has_merges = true;
      mode_ = Mode::merges;
      return true;
    }
    return open(Json::array());
  }
  bool end_array() {
    if (mode_ == Mode::pair) {
      if (parts_ != 2) return bad_merge();
      out_.bpe.merges.push_back({pair_begin_, left_, right_});
      mode_ = Mode::merges;
    } else if (mode_ == Mode::merges) {
      mode_ = Mode::document;
    } else {
      stack_.pop_back();
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& e) {
    return stop(std::string("not valid JSON (") + e.what() + ")");
  }

 private:
  enum class Mode { document, vocab, merges, pair };

  bool stop(std::string message) {
    error = std::move(message);
    return false;
  }
  bool unexpected() {
    return mode_ == Mode::vocab ? stop("model.vocab expected an integer for the token '" + key_ + "'") : bad_merge();
  }
  bool bad_merge() {
    return stop("model.merges expected two texts (\"a b\" or [\"a\", \"b\"]) at merge " +
                std::to_string(out_.bpe.merges.size()));
  }
  bool in_model() const { return stack_.size() == 2 && model_ == stack_.back(); }

  Json* place(Json&& v) {
    if (stack_.empty()) return &(out_.rest = std::move(v));
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(v);
    return &slot;
  }
  bool value(Json v) {
    if (mode_ != Mode::document) return unexpected();
    place(std::move(v));
    return true;
  }
  bool open(Json v) {
    if (stack_.size() >= kMaxDepth) return stop("nested deeper than 128 levels");
    Json* p = place(std::move(v));
    if (stack_.size() == 1 && stack_.back()->is_object() && key_ == "model") model_ = p;
    stack_.push_back(p);
    return true;
  }

  bool token(int64_t id) {
    std::vector<char>& text = out_.bpe.token_text;
    if (key_.size() > kMaxTokenBytes)
      return stop("model.vocab has a token of " + std::to_string(key_.size()) + " bytes");
    out_.bpe.tokens.push_back({text.size(), static_cast<uint32_t>(key_.size()), id});
    text.insert(text.end(), key_.begin(), key_.end());
    return true;
  }
  bool part(const std::string& s) {
    if (parts_ >= 2 || s.size() > kMaxTokenBytes) return bad_merge();
    (parts_++ == 0 ? left_ : right_) = static_cast<uint32_t>(s.size());
    out_.bpe.merge_text.insert(out_.bpe.merge_text.end(), s.begin(), s.end());
    return true;
  }
  bool merge(const std::string& s) {
    const size_t space = s.find(' ');
    if (space == std::string::npos || s.find(' ', space + 1) != std::string::npos || s.size() > kMaxTokenBytes)
      return bad_merge();
    pair_begin_ = out_.bpe.merge_text.size();
    parts_ = 0;
    if (!part(s.substr(0, space)) || !part(s.substr(space + 1))) return false;
    out_.bpe.merges.push_back({pair_begin_, left_, right_});
    return true;
  }

  TokenizerJson& out_;
  Mode mode_ = Mode::document;
  std::vector<Json*> stack_;  // open containers; a pointer stays valid while it is on the stack
  const Json* model_ = nullptr;
  std::string key_;
  int parts_ = 0;
  uint32_t left_ = 0, right_ = 0;
  size_t pair_begin_ = 0;
};

}  // namespace

Result<TokenizerJson> parse_tokenizer_json(std::string_view text, const std::string& where) {
  TokenizerJson out;
  Handler handler(out);
  try {
    if (Json::sax_parse(text, &handler)) return out;
  } catch (const std::exception& e) {
    return bad_input("[tokenizer] {}: {}", where, one_line(e.what(), 200));
  }
  return bad_input("[tokenizer] {}: {}", where,
                   handler.error.empty() ? "not valid JSON" : one_line(handler.error, 200));
}

}  // namespace danqing
