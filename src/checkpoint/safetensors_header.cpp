#include "checkpoint/safetensors_header.h"

#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace danqing {
namespace {

// {"__metadata__": {text: text}, NAME: {"dtype": text, "shape": [integers], "data_offsets": [begin, end]}, ...}
class HeaderReader : public Json::json_sax_t {
 public:
  HeaderReader(SafetensorsHeader& out, const std::string& where) : out_(out), where_(where) {}
  std::optional<Error> error;

  bool start_object(size_t) override {
    switch (place_) {
      case Place::start: place_ = Place::top; return true;
      case Place::name:
        place_ = key_ == "__metadata__" ? Place::metadata : Place::entry;
        if (place_ == Place::entry) out_.entries.push_back({.name = key_});
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return true;
      default: return unexpected("an object");
    }
  }
  bool end_object() override {
    if (place_ == Place::entry && !(has_dtype_ && has_shape_ && has_offsets_)) {
      const char* missing = !has_dtype_ ? "dtype" : !has_shape_ ? "shape" : "data_offsets";
      return wrong("{} expected a field '{}', got none", entry(), missing);
    }
    place_ = place_ == Place::top ? Place::end : Place::top;
    return true;
  }
  bool key(std::string& k) override {
    key_ = std::move(k);
    switch (place_) {
      case Place::top:
        if (key_ == "__metadata__" && has_metadata_) return wrong("the header holds '__metadata__' twice");
        has_metadata_ |= key_ == "__metadata__";
        place_ = Place::name;
        return true;
      case Place::metadata:
        if (out_.metadata.count(key_)) return wrong("the metadata hold '{}' twice", one_line(key_));
        place_ = Place::metadata_value;
        return true;
      case Place::entry:
        if (key_ == "dtype") return field(has_dtype_, Place::dtype);
        if (key_ == "shape") return field(has_shape_, Place::shape);
        if (key_ == "data_offsets") return field(has_offsets_, Place::offsets);
        return wrong("{} expected the fields dtype, shape and data_offsets, got '{}'", entry(), one_line(key_));
      default: return unexpected("a key");
    }
  }
  bool start_array(size_t) override {
    if (place_ == Place::shape) return place_ = Place::shape_values, true;
    if (place_ == Place::offsets) return place_ = Place::offset_values, true;
    return unexpected("a list");
  }
  bool end_array() override {
    if (place_ == Place::offset_values && offsets_ != 2)
      return wrong("{} expected two data_offsets, got {}", entry(), offsets_);
    offsets_ = 0;
    place_ = Place::entry;
    return true;
  }
  bool number_unsigned(uint64_t v) override {
    if (place_ == Place::shape_values) {
      if (v > static_cast<uint64_t>(INT64_MAX))
        return wrong("{} expected a possible shape, got a size of {}", entry(), v);
      if (out_.entries.back().shape.size() >= kMaxRank)
        return wrong("{} expected at most {} axes, got more", entry(), kMaxRank);
      out_.entries.back().shape.push_back(static_cast<int64_t>(v));
      return true;
    }
    if (place_ == Place::offset_values) {
      (offsets_ == 0 ? out_.entries.back().begin : out_.entries.back().end) = v;
      return ++offsets_ <= 2 || wrong("{} expected two data_offsets, got more", entry());
    }
    return unexpected("a number");
  }
  bool string(std::string& v) override {
    if (place_ == Place::dtype) {
      out_.entries.back().dtype = std::move(v);
      place_ = Place::entry;
      return true;
    }
    if (place_ == Place::metadata_value) {
      out_.metadata[key_] = std::move(v);
      place_ = Place::metadata;
      return true;
    }
    return unexpected("a text");
  }
  bool number_integer(int64_t v) override { return unexpected(fmt::format("{}", v)); }
  bool number_float(double, const std::string& text) override { return unexpected(one_line(text, 40)); }
  bool boolean(bool v) override { return unexpected(v ? "true" : "false"); }
  bool null() override { return unexpected("null"); }
  bool binary(Json::binary_t&) override { return unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return wrong("the header is not valid JSON (at its byte {}); the file is damaged", position);
  }

 private:
  enum class Place {
    start,
    top,
    name,
    metadata,
    metadata_value,
    entry,
    dtype,
    shape,
    shape_values,
    offsets,
    offset_values,
    end,
  };
  static constexpr size_t kMaxRank = 16;

  std::string entry() const { return fmt::format("tensor '{}':", one_line(out_.entries.back().name)); }
  bool field(bool& seen, Place next) {
    if (seen) return wrong("{} the field '{}' is there twice", entry(), key_);
    seen = true;
    place_ = next;
    return true;
  }
  template <class... A>
  bool wrong(fmt::format_string<A...> f, A&&... args) {
    error = bad_input("[checkpoint] {}: {}", where_, fmt::format(f, std::forward<A>(args)...));
    return false;
  }
  bool unexpected(std::string_view got) {
    switch (place_) {
      case Place::start: return wrong("expected a header that is a JSON object, got {}", got);
      case Place::name: return wrong("header field '{}' expected an object, got {}", one_line(key_), got);
      case Place::metadata_value: return wrong("metadata '{}' expected a text, got {}", one_line(key_), got);
      case Place::dtype: return wrong("{} dtype expected a text, got {}", entry(), got);
      case Place::shape:
      case Place::shape_values: return wrong("{} shape expected a list of sizes, got {}", entry(), got);
      case Place::offsets:
      case Place::offset_values: return wrong("{} data_offsets expected [begin, end], got {}", entry(), got);
      default: return wrong("the header's JSON has {} in a wrong place", got);
    }
  }

  SafetensorsHeader& out_;
  const std::string& where_;
  Place place_ = Place::start;
  std::string key_;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_ = 0;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, const std::string& where) {
  SafetensorsHeader header;
  HeaderReader reader(header, where);
  try {
    Json::sax_parse(json, &reader);
  } catch (const std::exception& e) {
    return bad_input("[checkpoint] {}: the header cannot be read ({})", where, one_line(e.what()));
  }
  if (reader.error) return *reader.error;
  return header;
}

}  // namespace danqing
