// danqing verify as a user runs it: the real program on trees made from the test data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>

#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "testing/testing.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

Outcome verify(const fs::path& tree, const std::string& options = "") {
  const std::string command =
      std::string(DANQING_BINARY) + " verify '" + tree.string() + "' --device cpu --threads 1 " + options + " 2>&1";
  Outcome o;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return o;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) o.output.append(buffer, n);
  const int status = ::pclose(pipe);
  o.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return o;
}

/// The line of the table that holds both texts; empty if there is none.
std::string line_with(const std::string& output, const std::string& a, const std::string& b) {
  for (size_t at = 0, end; at < output.size(); at = end + 1) {
    end = std::min(output.find('\n', at), output.size());
    const std::string line = output.substr(at, end - at);
    if (line.find(a) != std::string::npos && line.find(b) != std::string::npos) return line;
  }
  return "";
}

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// A model directory like the tiny ERNIE model, whose components are links and whose goldens are the named files.
class Tree {
 public:
  explicit Tree(const std::vector<std::string>& goldens) {
    const fs::path source = testing::data("fixtures/ernie-tiny");
    for (const auto& entry : fs::directory_iterator(source))
      if (entry.path().filename() != "golden")
        fs::create_symlink(entry.path(), dir_ / entry.path().filename().string());
    fs::create_directories(golden(""));
    for (const std::string& name : goldens)
      for (const char* extension : {".safetensors", ".json", ""})
        if (fs::is_regular_file(source / "golden" / (name + extension)))
          fs::copy_file(source / "golden" / (name + extension), golden(name + extension));
  }
  const fs::path& path() const { return dir_.path(); }
  fs::path golden(const std::string& file) const { return dir_.path() / "golden" / file; }

  /// Rewrites a golden: `change` gets each tensor's name and bytes and may alter both.
  void rewrite(const std::string& name,
               const std::function<void(std::string&, std::vector<std::byte>&)>& change) const {
    const fs::path file = golden(name + ".safetensors"), next = golden("next.part");
    {
      auto source = TensorSource::open(file);
      ASSERT_TRUE(source.ok());
      auto writer = SafetensorsWriter::create(next);
      ASSERT_TRUE(writer.ok());
      for (const TensorInfo& t : (*source)->tensors()) {
        const auto span = (*source)->bytes(t);
        std::string key = t.name;
        std::vector<std::byte> bytes(span.begin(), span.end());
        change(key, bytes);
        ASSERT_TRUE((*writer)->add(key, t.dtype, t.shape, bytes).ok());
      }
      ASSERT_TRUE((*writer)->finish().ok());
    }
    fs::rename(next, file);
  }
  /// Adds to one f32 value of one tensor.
  void disturb(const std::string& name, const std::string& key, size_t index, float by) const {
    bool found = false;
    rewrite(name, [&](std::string& k, std::vector<std::byte>& bytes) {
      if (k != key) return;
      float v;
      ASSERT_LE((index + 1) * sizeof v, bytes.size());
      std::memcpy(&v, bytes.data() + index * sizeof v, sizeof v);
      v += by;
      std::memcpy(bytes.data() + index * sizeof v, &v, sizeof v);
      found = true;
    });
    ASSERT_TRUE(found) << key;
  }

 private:
  testing::TempDir dir_;
};

TEST(CliVerify, DisturbedValueFailsItsRowAndNoOther) {
  const Tree tree({"scheduler"});
  ASSERT_EQ(verify(tree.path()).exit_code, 0);
  tree.disturb("scheduler", "shift4.n8.sigmas", 3, 1e-6f);  // tolerance: 1e-7 of the value
  const Outcome o = verify(tree.path());
  EXPECT_EQ(o.exit_code, 1) << o.output;
  EXPECT_THAT(line_with(o.output, "scheduler", "shift4.n8 "), HasSubstr("FAIL"));
  EXPECT_THAT(line_with(o.output, "scheduler", "shift4.n4 "), HasSubstr("pass"));
  EXPECT_THAT(o.output, HasSubstr("1 failed"));
}

TEST(CliVerify, DisturbedNetworkOutputFails) {
  const Tree tree({"dit_f32"});
  ASSERT_EQ(verify(tree.path(), "--only one_token").exit_code, 0);
  tree.disturb("dit_f32", "one_token.out", 5, 1e-3f);  // of values of size 1: relative L2 6e-5, tolerance 5e-6
  const Outcome o = verify(tree.path(), "--only one_token");
  EXPECT_EQ(o.exit_code, 1) << o.output;
  EXPECT_THAT(line_with(o.output, "dit_f32", "one_token.out"), HasSubstr("FAIL"));
}

TEST(CliVerify, NoiseIsHeldToAnAbsoluteTolerance) {
  const Tree tree({"init_latents"});
  tree.disturb("init_latents", "seed42.1x128x4x6.f32", 100, 2e-6f);  // tolerance: 5e-7 absolute
  const Outcome o = verify(tree.path());
  EXPECT_EQ(o.exit_code, 1) << o.output;
  EXPECT_THAT(line_with(o.output, "init_latents", "seed42.1x128x4x6.f32"), HasSubstr("FAIL"));
}

TEST(CliVerify, WrongVerdictFails) {
  const Tree tree({"errors.json"});
  write_text(tree.golden("errors.json"), R"({"refused_here": {"call": {"height": 72}, "result": "ok"},
    "accepted_here": {"call": {"height": 32}, "result": "ValueError"},
    "right": {"call": {"width": 100}, "result": "ValueError"},
    "unsayable": {"call": {"prompt_embeds": "list of 1"}, "result": "ok"}})");
  const Outcome o = verify(tree.path());
  EXPECT_EQ(o.exit_code, 1) << o.output;
  EXPECT_THAT(line_with(o.output, "errors", "refused_here"), HasSubstr("FAIL"));
  EXPECT_THAT(line_with(o.output, "errors", "accepted_here"), HasSubstr("FAIL"));
  EXPECT_THAT(line_with(o.output, "errors", "right "), HasSubstr("pass"));
  EXPECT_THAT(line_with(o.output, "errors", "unsayable"), HasSubstr("not run: no such argument here: prompt_embeds"));
}

TEST(CliVerify, DamagedAndMissingGoldensAreFailedRows) {
  const Tree tree({"scheduler", "init_latents", "vae"});
  fs::resize_file(tree.golden("init_latents.safetensors"), 1000);
  fs::remove(tree.golden("vae.safetensors"));  // its JSON stays
  const Outcome o = verify(tree.path());
  EXPECT_EQ(o.exit_code, 1) << o.output;
  EXPECT_THAT(line_with(o.output, "init_latents", "file "), HasSubstr("FAIL"));
  EXPECT_THAT(line_with(o.output, "vae", "file "), HasSubstr("FAIL"));
  EXPECT_THAT(line_with(o.output, "scheduler", "shift4.n8 "), HasSubstr("pass"));
}

TEST(CliVerify, NamesAreDiscovered) {
  const Tree tree({"dit_f32"});
  tree.rewrite("dit_f32", [](std::string& key, std::vector<std::byte>&) {
    if (key.starts_with("one_token.")) key = "other.name" + key.substr(9);
  });
  const Outcome o = verify(tree.path(), "--only other.name");
  EXPECT_EQ(o.exit_code, 0) << o.output;
  EXPECT_THAT(line_with(o.output, "dit_f32", "other.name.out"), HasSubstr("pass"));
}

TEST(CliVerify, ToleranceGrowsWithTheMeasuredSpread) {
  const Tree tree({"dit_f32"});
  auto json = read_json(tree.golden("dit_f32.json"));
  ASSERT_TRUE(json.ok());
  (*json)["measured"]["one_token"]["f32_vs_f64"]["rel_l2"] = 1e-4;
  write_text(tree.golden("dit_f32.json"), dump_json(*json));
  tree.disturb("dit_f32", "one_token.out", 5, 1e-3f);  // fails above, under the page's tolerance
  const Outcome o = verify(tree.path(), "--only one_token --json");
  EXPECT_EQ(o.exit_code, 0) << o.output;
  EXPECT_THAT(o.output, HasSubstr("10 x measured f32 spread 1.00e-04"));
}

TEST(CliVerify, EveryValueIsAccountedFor) {
  const Tree tree({"scheduler", "lora", "lora_out", "tokens", "dit_f32", "vae"});
  tree.rewrite("scheduler", [](std::string& key, std::vector<std::byte>&) {
    if (key == "shift1.n1.sigmas") key = "mystery";
  });
  write_text(tree.golden("future_stage.json"), "{}");
  fs::copy_file(tree.golden("lora_out.safetensors"), tree.golden("future_stage.safetensors"));
  const Outcome o = verify(tree.path(), "--json");
  EXPECT_EQ(o.exit_code, 0) << o.output;
  const auto report = parse_json(o.output, "report");
  ASSERT_TRUE(report.ok()) << o.output;
  std::vector<std::string> files;
  for (const Json& f : (*report)["files"]) {
    files.push_back(f["file"].get<std::string>());
    int sum = 0;
    for (const char* mark : {"compared", "inputs", "failed", "not_run", "not_selected"}) sum += f[mark].get<int>();
    EXPECT_EQ(sum, f["count"].get<int>()) << files.back();
    EXPECT_EQ(f["not_selected"].get<int>(), 0) << files.back();
  }
  EXPECT_THAT(files, ::testing::IsSupersetOf({"golden/scheduler", "golden/lora", "golden/lora_out", "golden/tokens",
                                              "golden/dit_f32", "golden/vae", "golden/future_stage"}));
  EXPECT_THAT(o.output,
              HasSubstr("no check for 3 values in this build: mystery"));  // sigmas, and what belonged to them
  EXPECT_THAT(o.output, HasSubstr("this build has no check for a file of this name"));
}

TEST(CliVerify, OtherPipelinesAreListedAsNotRun) {
  testing::TempDir dir;
  const fs::path model = dir / "other-tiny";
  write_text(model / "model_index.json", R"({"_class_name": "FutureImagePipeline"})");
  write_text(model / "golden/errors.json", R"({"no_prompt": {"call": {}, "result": "ValueError"}})");
  fs::copy_file(testing::data("fixtures/ernie-tiny/golden/scheduler.safetensors"),
                model / "golden/scheduler.safetensors");
  const Outcome o = verify(dir.path());
  EXPECT_EQ(o.exit_code, 0) << o.output;
  EXPECT_THAT(line_with(o.output, "other-tiny/scheduler", "not run"),
              HasSubstr("the pipeline 'FutureImagePipeline' is not in this build"));
  EXPECT_THAT(line_with(o.output, "other-tiny/errors", "not run"),
              HasSubstr("the pipeline 'FutureImagePipeline' is not in this build"));
  EXPECT_THAT(o.output, HasSubstr("0 passed, 0 failed, 2 not run"));
}

TEST(CliVerify, NothingToVerifyIsBadInput) {
  testing::TempDir dir;
  EXPECT_EQ(verify(dir.path()).exit_code, 3);
  EXPECT_EQ(verify(dir / "absent").exit_code, 3);
  write_text(dir / "model_index.json", R"({"_class_name": "ErnieImagePipeline"})");  // a model without goldens
  const Outcome o = verify(dir.path());
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.output, HasSubstr("holds nothing to verify"));
}

TEST(CliVerify, WrongUseIsSaid) {
  const Tree tree({"scheduler"});
  EXPECT_EQ(verify(tree.path(), "--only nothing-is-called-so").exit_code, 2);
  EXPECT_EQ(verify(tree.path(), "--dtype f64").exit_code, 2);
  EXPECT_EQ(verify(tree.path(), "--device no-such-card").exit_code, 2);
  const Outcome o = verify(tree.path(), "--only 'scheduler shift4.n?'");
  EXPECT_EQ(o.exit_code, 0) << o.output;
  EXPECT_THAT(o.output, HasSubstr("cases not selected"));
  EXPECT_THAT(o.output, Not(HasSubstr("shift4.n20")));
}

}  // namespace
}  // namespace danqing
