// Damaged and hostile checkpoints, each made here: opening gives one clean line that names the file, never anything
// else.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/checkpoint.h"
#include "checkpoint/make_files.h"
#include "testing/testing.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using namespace std::string_literals;

struct Case {
  std::string name;
  std::string says;                               // part of the message
  std::function<fs::path(const fs::path&)> make;  // writes into the directory, returns what to open
};

// A file of exactly these bytes.
auto file(std::string bytes, std::string name = "x.safetensors") {
  return [=](const fs::path& dir) { return put(dir, name, bytes); };
}

// One F32 tensor "w" [2, 3] whose header entry is written by hand.
auto entry(const std::string& json) { return file(safetensors("{\"w\":" + json + "}", std::string(24, 'a'))); }

std::vector<Case> safetensors_cases() {
  const std::string good = R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
  return {
      {"empty", "empty file", file("")},
      {"shorter than the length", "8 bytes", file("\x01\x02\x03"s)},
      {"length only", "incomplete", file(le<uint64_t>(100))},
      {"length beyond the file", "incomplete", file(le<uint64_t>(4096) + "{\"w\":")},
      {"absurd length", "at most 100000000", file(le<uint64_t>(UINT64_MAX) + "{}")},
      {"length of 101 MB", "at most 100000000", file(le<uint64_t>(101'000'000) + "{}")},
      {"length zero", "begins with", file(le<uint64_t>(0) + "{}")},
      {"header is a list", "begins with", file(safetensors("[1,2,3]"))},
      {"header is garbage", "not valid JSON", file(safetensors("{\x01\x02\x03}"))},
      {"header stops", "not valid JSON", file(safetensors("{\"w\":{\"dtype\":\"F32\""))},
      {"text behind the JSON", "not valid JSON", file(safetensors("{} {}"))},
      {"name in invalid UTF-8", "not valid JSON",
       file(safetensors("{\"\xff\xfe\":" + good + "}", std::string(24, 'a')))},
      {"deep nesting", "shape expected a list", entry(R"({"dtype":"F32","shape":)" + std::string(100000, '[') + "}")},
      {"entry is a number", "expected an object, got a number", entry("7")},
      {"entry is null", "expected an object, got null", entry("null")},
      {"no dtype", "field 'dtype'", entry(R"({"shape":[2,3],"data_offsets":[0,24]})")},
      {"no shape", "field 'shape'", entry(R"({"dtype":"F32","data_offsets":[0,24]})")},
      {"no offsets", "field 'data_offsets'", entry(R"({"dtype":"F32","shape":[2,3]})")},
      {"empty entry", "field 'dtype'", entry("{}")},
      {"foreign field", "got 'stride'", entry(R"({"dtype":"F32","shape":[2,3],"stride":[3,1],"data_offsets":[0,24]})")},
      {"dtype twice", "'dtype' is there twice",
       entry(R"({"dtype":"F32","dtype":"F32","shape":[2,3],"data_offsets":[0,24]})")},
      {"shape twice", "'shape' is there twice",
       entry(R"({"dtype":"F32","shape":[2,3],"shape":[2,3],"data_offsets":[0,24]})")},
      {"dtype is a number", "dtype expected a text", entry(R"({"dtype":32,"shape":[2,3],"data_offsets":[0,24]})")},
      {"unknown dtype", "known dtype", entry(R"({"dtype":"F4","shape":[2,3],"data_offsets":[0,24]})")},
      {"dtype in small letters", "known dtype", entry(R"({"dtype":"f32","shape":[2,3],"data_offsets":[0,24]})")},
      {"shape is a text", "shape expected a list", entry(R"({"dtype":"F32","shape":"2x3","data_offsets":[0,24]})")},
      {"shape of texts", "shape expected a list", entry(R"({"dtype":"F32","shape":["2"],"data_offsets":[0,24]})")},
      {"negative size", "shape expected a list of sizes, got -2",
       entry(R"({"dtype":"F32","shape":[-2,-3],"data_offsets":[0,24]})")},
      {"fractional size", "shape expected a list of sizes, got 2.5",
       entry(R"({"dtype":"F32","shape":[2.5,3],"data_offsets":[0,24]})")},
      {"size of 2^64-1", "a possible shape",
       entry(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,24]})")},
      {"size beyond 2^64", "shape expected",
       entry(R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,24]})")},
      {"product overflows", "fits into memory",
       entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,24]})")},
      {"bytes overflow", "fits into memory",
       entry(R"({"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,24]})")},
      {"hundred axes", "at most 16 axes",
       entry(R"({"dtype":"F32","shape":[1)" +
             [] {
               std::string s;
               for (int i = 0; i < 99; ++i) s += ",1";
               return s;
             }() +
             R"(],"data_offsets":[0,24]})")},
      {"one offset", "two data_offsets", entry(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0]})")},
      {"three offsets", "two data_offsets", entry(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24,48]})")},
      {"no offset", "two data_offsets", entry(R"({"dtype":"F32","shape":[2,3],"data_offsets":[]})")},
      {"negative offset", "data_offsets expected", entry(R"({"dtype":"F32","shape":[2,3],"data_offsets":[-24,0]})")},
      {"offsets reversed", "24 bytes", entry(R"({"dtype":"F32","shape":[2,3],"data_offsets":[24,0]})")},
      {"span too short", "24 bytes", entry(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,20]})")},
      {"span too long", "20 bytes", entry(R"({"dtype":"F32","shape":[5],"data_offsets":[0,24]})")},
      {"offsets overflow", "24 bytes",
       entry(R"({"dtype":"F32","shape":[2,3],"data_offsets":[18446744073709551591,18446744073709551615]})")},
      {"wrong metadata type", "expected an object", file(safetensors(R"({"__metadata__":[]})"))},
      {"metadata of numbers", "expected a text, got a number", file(safetensors(R"({"__metadata__":{"step":3}})"))},
      {"metadata of objects", "expected a text, got an object", file(safetensors(R"({"__metadata__":{"a":{}}})"))},
      {"metadata twice", "__metadata__' twice", file(safetensors(R"({"__metadata__":{},"__metadata__":{}})"))},
      {"metadata key twice", "hold 'a' twice", file(safetensors(R"({"__metadata__":{"a":"1","a":"2"}})"))},
      {"tensor twice", "tensor 'w' once",
       file(safetensors("{\"w\":" + good + R"(,"w":{"dtype":"F32","shape":[2,3],"data_offsets":[24,48]}})",
                        std::string(48, 'a')))},
      {"overlap", "overlap",
       file(safetensors("{\"w\":" + good + R"(,"v":{"dtype":"F32","shape":[2,3],"data_offsets":[12,36]}})",
                        std::string(36, 'a')))},
      {"same span", "overlap", file(safetensors("{\"w\":" + good + ",\"v\":" + good + "}", std::string(24, 'a')))},
      {"hole", "no holes",
       file(safetensors("{\"w\":" + good + R"(,"v":{"dtype":"F32","shape":[2,3],"data_offsets":[32,56]}})",
                        std::string(56, 'a')))},
      {"hole at the front", "no holes",
       file(safetensors(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}})", std::string(32, 'a')))},
      {"half download", "download is incomplete", file(safetensors("{\"w\":" + good + "}", std::string(23, 'a')))},
      {"no data at all", "download is incomplete", file(safetensors("{\"w\":" + good + "}"))},
      {"bytes at the end", "1 foreign bytes", file(safetensors("{\"w\":" + good + "}", std::string(25, 'a')))},
      {"name with a line break", "tensor 'a\\x0ab'",
       file(safetensors(R"({"a\nb":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", "aaaa"))},
      {"name of a megabyte", "...",
       file(safetensors("{\"" + std::string(1 << 20, 'n') + R"(":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})",
                        "aaaa"))},
  };
}

std::vector<Case> wrong_file_cases() {
  return {
      {"LFS pointer", "git lfs pull", file("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 34\n")},
      {"LFS pointer as gguf", "git lfs pull",
       file("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 34\n", "x.gguf")},
      {"web page", "HTML", file("<!DOCTYPE html><html><body>404</body></html>")},
      {"web page after blanks", "HTML", file("\xef\xbb\xbf\n  <HTML lang=\"en\">")},
      {"server's JSON", "JSON", file(R"({"error":"Invalid username or password."})")},
      {"server's text", "text", file("Entry not found")},
      {"zip of PyTorch", "zip", file("PK\x03\x04\x00\x00\x08\x08"s, "pytorch_model.bin")},
      {"pickle", "pickle", file("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M"s, "model.ckpt")},
      {"picture", "picture", file("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR"s, "x.png")},
      {"gzip", "archive", file("\x1f\x8b\x08\x00\x00\x00"s, "x.gz")},
      {"ggml before GGUF", "GGUF", file("tjgg\x03\x00\x00\x00"s, "x.bin")},
      {"noise", "unknown data", file("\x13\x37\xff\x00\x01\x99\x88\x77\x66\x55"s, "x.dat")},
      {"nothing there", "no such file", [](const fs::path& dir) { return dir / "absent.safetensors"; }},
      {"empty directory", "got none", [](const fs::path& dir) { return fs::create_directory(dir / "e"), dir / "e"; }},
      {"only pickles", "pytorch_model.bin",
       [](const fs::path& dir) { return put(dir / "m", "pytorch_model.bin", "PK\x03\x04"), dir / "m"; }},
      {"two unrelated files", "a.safetensors, b.safetensors",
       [](const fs::path& dir) {
         put(dir / "m", "a.safetensors", safetensors_of({"x"}));
         put(dir / "m", "b.safetensors", safetensors_of({"y"}));
         return dir / "m";
       }},
      {"shards without index", "index",
       [](const fs::path& dir) {
         put(dir / "m", "model-00001-of-00002.safetensors", safetensors_of({"x"}));
         put(dir / "m", "model-00002-of-00002.safetensors", safetensors_of({"y"}));
         return dir / "m";
       }},
  };
}

// A directory of two shards holding x and y, under the given index.
auto sharded(std::string index, std::vector<std::string> first = {"x"}, std::vector<std::string> second = {"y"}) {
  return [=](const fs::path& dir) {
    if (!first.empty()) put(dir / "m", "model-00001-of-00002.safetensors", safetensors_of(first));
    if (!second.empty()) put(dir / "m", "model-00002-of-00002.safetensors", safetensors_of(second));
    put(dir / "m", "model.safetensors.index.json", index);
    return dir / "m";
  };
}

std::vector<Case> shard_cases() {
  const std::string a = "\"model-00001-of-00002.safetensors\"", b = "\"model-00002-of-00002.safetensors\"";
  const std::string good = "{\"weight_map\":{\"x\":" + a + ",\"y\":" + b + "}}";
  return {
      {"index is a list", "object", sharded("[]")},
      {"index is no JSON", "got a text", sharded("not an index")},
      {"index breaks off", "not valid JSON", sharded("{\"weight_map\":{\"x\":")},
      {"index without map", "weight_map", sharded("{\"metadata\":{}}")},
      {"map is a list", "weight_map", sharded("{\"weight_map\":[]}")},
      {"map is empty", "empty", sharded("{\"weight_map\":{}}")},
      {"file is a number", "a file name, got 1", sharded("{\"weight_map\":{\"x\":1}}")},
      {"file elsewhere", "beside the index", sharded("{\"weight_map\":{\"x\":\"/etc/passwd\"}}")},
      {"file above", "beside the index", sharded("{\"weight_map\":{\"x\":\"../m/model-00001-of-00002.safetensors\"}}")},
      {"file is dots", "beside the index", sharded("{\"weight_map\":{\"x\":\"..\"}}")},
      {"key twice", "expected key 'x' once", sharded("{\"weight_map\":{\"x\":" + a + ",\"x\":" + b + "}}")},
      {"deep index", "nested deeper", sharded(std::string(5000, '['))},
      {"missing shard", "model-00002-of-00002.safetensors", sharded(good, {"x"}, {})},
      {"tensor not in its shard", "tensor 'z'",
       sharded("{\"weight_map\":{\"x\":" + a + ",\"y\":" + b + ",\"z\":" + b + "}}")},
      {"tensor not in the index", "'z' that it does not name", sharded(good, {"x", "z"})},
      {"tensor in two shards", "tensor 'x' in one shard", sharded(good, {"x"}, {"x", "y"})},
      {"tensor in the other shard", "tensor 'x' expected in model-00002",
       sharded("{\"weight_map\":{\"x\":" + b + ",\"y\":" + a + "}}")},
      {"shard is an LFS pointer", "git lfs pull",
       [=](const fs::path& dir) {
         sharded(good)(dir);
         put(dir / "m", "model-00002-of-00002.safetensors", "version https://git-lfs.github.com/spec/v1\n");
         return dir / "m";
       }},
      {"shard is half", "incomplete",
       [=](const fs::path& dir) {
         sharded(good)(dir);
         put(dir / "m", "model-00002-of-00002.safetensors", safetensors_of({"y"}).substr(0, 80));
         return dir / "m";
       }},
  };
}

std::vector<Case> gguf_cases() {
  const auto gguf = [](const Gguf& g) { return file(g.bytes(), "x.gguf"); };
  const auto pair = [&](const std::string& p) { return gguf({.pairs = {p}}); };
  const auto tensor = [&](const std::string& t) { return gguf({.tensors = {t}, .data = std::string(64, 'a')}); };
  const std::string w = gguf_tensor("w", {4, 4}, 0, 0);
  const auto list = [](uint32_t type, uint64_t n, const std::string& values) { return le(type) + le(n) + values; };
  return {
      {"version 1", "version 2 or 3, got 1", gguf({.version = 1})},
      {"version 4", "version 2 or 3, got 4", gguf({.version = 4})},
      {"big endian", "big-endian", gguf({.version = 0x03000000})},
      {"magic only", "version", file("GGUF", "x.gguf")},
      {"absurd tensor count", "tensors", gguf({.tensor_count = UINT64_MAX - 1})},
      {"count of the file size", "tensors", gguf({.tensor_count = 32})},
      {"absurd metadata count", "metadata", gguf({.pair_count = uint64_t{1} << 60})},
      {"key of 2^63 bytes", "metadata key 1", pair(le<uint64_t>(uint64_t{1} << 63) + "abcdefgh")},
      {"key longer than allowed", "at most 65535", pair(gguf_pair(std::string(70000, 'k'), 0, "a"))},
      {"unknown value type", "type of 0 to 12, got 13", pair(gguf_pair("k", 13, "aaaaaaaa"))},
      {"text of 2^62 bytes", "value of 'k'", pair(gguf_pair("k", 8, le<uint64_t>(uint64_t{1} << 62)))},
      {"text beyond the file", "value of 'k'", pair(gguf_pair("k", 8, le<uint64_t>(5000)))},
      {"bool of 7", "0 or 1", pair(gguf_pair("k", 7, "\x07"))},
      {"array of arrays", "elements of type 9", pair(gguf_pair("k", 9, list(9, 1, list(0, 1, "a"))))},
      {"array of unknown type", "elements of type 99", pair(gguf_pair("k", 9, list(99, 1, "a")))},
      {"array of 2^60", "elements of 'k'", pair(gguf_pair("k", 9, list(0, uint64_t{1} << 60, "a")))},
      {"array whose bytes overflow", "elements of 'k'",
       pair(gguf_pair("k", 9, list(12, (uint64_t{1} << 61) + 1, "a")))},
      {"array of texts breaks off", "value of 'k'",
       pair(gguf_pair("k", 9, list(8, 2, gguf_text("a") + le<uint64_t>(1000))))},
      {"key twice", "'k' once", gguf({.pairs = {gguf_pair("k", 0, "a"), gguf_pair("k", 0, "b")}})},
      {"alignment zero", "power of two", pair(gguf_pair("general.alignment", 4, le<uint32_t>(0)))},
      {"alignment 33", "power of two", pair(gguf_pair("general.alignment", 4, le<uint32_t>(33)))},
      {"alignment of 2 GiB", "power of two", pair(gguf_pair("general.alignment", 4, le<uint32_t>(1u << 31)))},
      {"alignment is a text", "power of two", pair(gguf_pair("general.alignment", 8, gguf_text("32")))},
      {"one of three parts", "llama-gguf-split", pair(gguf_pair("split.count", 2, le<uint16_t>(3)))},
      {"name of 2^40 bytes", "name of tensor 1", tensor(le<uint64_t>(uint64_t{1} << 40) + w)},
      {"nine axes", "at most 8 axes", tensor(gguf_tensor("w", std::vector<uint64_t>(9, 1), 0, 0))},
      {"absurd axes", "at most 8 axes", tensor(gguf_text("w") + le<uint32_t>(UINT32_MAX) + std::string(64, 'a'))},
      {"size of 2^64-1", "a possible shape", tensor(gguf_tensor("w", {UINT64_MAX}, 0, 0))},
      {"product overflows", "fits into memory", tensor(gguf_tensor("w", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0))},
      {"bytes overflow", "fits into memory", tensor(gguf_tensor("w", {uint64_t{1} << 62}, 0, 0))},
      {"retired type", "ggml type, got number 4", tensor(gguf_tensor("w", {4, 4}, 4, 0))},
      {"type of 2^31", "ggml type, got number 2147483648", tensor(gguf_tensor("w", {4, 4}, 1u << 31, 0))},
      {"row no multiple of the block", "multiple of 32", tensor(gguf_tensor("w", {16, 2}, 2, 0))},
      {"quantised scalar", "multiple of 256", tensor(gguf_tensor("w", {}, 12, 0))},
      {"offset not aligned", "multiple of 32", tensor(gguf_tensor("w", {4}, 0, 4))},
      {"offset beyond the file", "incomplete", tensor(gguf_tensor("w", {4}, 0, 1 << 20))},
      {"offset overflows", "inside the file", tensor(gguf_tensor("w", {4}, 0, UINT64_MAX - 31))},
      {"half download", "incomplete", gguf({.tensors = {w}, .data = std::string(63, 'a')})},
      {"overlap", "overlap", gguf({.tensors = {w, gguf_tensor("v", {4, 4}, 0, 32)}, .data = std::string(128, 'a')})},
      {"tensor twice", "tensor 'w' once",
       gguf({.tensors = {w, gguf_tensor("w", {4, 4}, 0, 64)}, .data = std::string(128, 'a')})},
      {"noted shape of another size", "as many elements",
       gguf({.pairs = {gguf_pair("comfy.gguf.orig_shape.w", 9, list(5, 2, le(3) + le(5)))},
             .tensors = {w},
             .data = std::string(64, 'a')})},
      {"noted shape negative", "as many elements",
       gguf({.pairs = {gguf_pair("comfy.gguf.orig_shape.w", 9, list(5, 2, le(-4) + le(-4)))},
             .tensors = {w},
             .data = std::string(64, 'a')})},
  };
}

void check(const std::vector<Case>& cases, size_t at_least) {
  EXPECT_GE(cases.size(), at_least);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDir dir;
    const auto opened = TensorSource::open(c.make(dir.path()));
    if (opened.ok()) {
      ADD_FAILURE() << "opened";
      continue;
    }
    const Error& e = opened.error();
    EXPECT_EQ(e.code, ErrorCode::bad_input);
    EXPECT_NE(e.message.find(c.says), std::string::npos) << e.message;
    EXPECT_NE(e.message.find(dir.path().string()), std::string::npos) << "does not name the file: " << e.message;
    EXPECT_EQ(e.message.find('\n'), std::string::npos) << e.message;
    EXPECT_LT(e.message.size(), 700u);
    EXPECT_EQ(e.message[0], '[');
  }
}

TEST(Malformed, Safetensors) { check(safetensors_cases(), 50); }
TEST(Malformed, WrongFiles) { check(wrong_file_cases(), 17); }
TEST(Malformed, Shards) { check(shard_cases(), 19); }
TEST(Malformed, Gguf) { check(gguf_cases(), 40); }

// Opens, or refuses in one line that names the file; what opens can be read to its last byte.
void open_and_read_all(const fs::path& path) {
  const auto opened = TensorSource::open(path);
  if (!opened.ok()) {
    EXPECT_NE(opened.error().message.find(path.string()), std::string::npos) << opened.error().message;
    return;
  }
  unsigned sum = 0;
  for (const TensorInfo& t : (*opened)->tensors())
    for (std::byte b : (*opened)->bytes(t)) sum += static_cast<unsigned>(b);
  EXPECT_LT(sum, ~0u);
}

std::string small_safetensors() {
  return safetensors(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                     R"("v":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})",
                     std::string(32, 'a'));
}

std::string small_gguf() {
  return Gguf{.pairs = {gguf_pair("general.architecture", 8, gguf_text("ernie_image")),
                        gguf_pair("general.alignment", 4, le<uint32_t>(32)),
                        gguf_pair("a.list", 9, le<uint32_t>(8) + le<uint64_t>(2) + gguf_text("x") + gguf_text("y"))},
              .tensors = {gguf_tensor("w", {32, 2}, 8, 0), gguf_tensor("v", {5}, 0, 96)},
              .data = std::string(116, 'a')}
      .bytes();
}

TEST(Malformed, EveryTruncationIsAnError) {
  for (const auto& [name, bytes] :
       {std::pair{"x.safetensors", small_safetensors()}, std::pair{"x.gguf", small_gguf()}}) {
    const TempDir dir;
    ASSERT_TRUE(TensorSource::open(put(dir.path(), name, bytes)).ok()) << name;
    for (size_t n = 0; n < bytes.size(); ++n) {
      const auto opened = TensorSource::open(put(dir.path(), name, bytes.substr(0, n)));
      ASSERT_FALSE(opened.ok()) << name << " cut after " << n;
      EXPECT_NE(opened.error().message.find(name), std::string::npos) << opened.error().message;
    }
  }
}

TEST(Malformed, EveryByteChanged) {
  for (const auto& [name, bytes] :
       {std::pair{"x.safetensors", small_safetensors()}, std::pair{"x.gguf", small_gguf()}}) {
    const TempDir dir;
    for (size_t i = 0; i < bytes.size(); ++i)
      for (const char c : {'\0', '\xff', '9', static_cast<char>(bytes[i] ^ 1)}) {
        std::string changed = bytes;
        changed[i] = c;
        open_and_read_all(put(dir.path(), name, changed));
      }
  }
}

}  // namespace
}  // namespace danqing
