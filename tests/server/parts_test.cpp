// Parts of the server that need no process: the queue, HTTP text, keys, the store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/api/fields.h"
#include "server/auth/crypto.h"
#include "server/auth/keys.h"
#include "server/http/router.h"
#include "server/jobs/queue.h"
#include "server/jobs/store.h"
#include "testing/testing.h"

namespace danqing::server {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> drain(FairQueue& q) {
  std::vector<std::string> ids, order;
  for (const QueueEntry& e : q.order()) order.push_back(e.id);
  QueueEntry e;
  while (q.pop([](const QueueEntry&) { return true; }, e)) ids.push_back(e.id);
  EXPECT_EQ(ids, order) << "order() and pop() disagree";
  return ids;
}

TEST(Queue, takes_turns_between_keys) {
  FairQueue q;
  for (const char* id : {"a1", "a2", "a3"}) q.push({id, "a", 0, id[1]});
  q.push({"b1", "b", 0, 0});
  q.push({"c1", "c", 0, 0});
  q.push({"c2", "c", 0, 1});
  EXPECT_EQ(q.size(), 6u);
  EXPECT_EQ(q.size_of("a"), 3u);
  EXPECT_THAT(drain(q), ElementsAre("a1", "b1", "c1", "a2", "c2", "a3"));
}

TEST(Queue, priority_counts_within_a_key_only) {
  FairQueue q;
  q.push({"a1", "a", 0, 1});
  q.push({"b1", "b", 9, 2});
  q.push({"a2", "a", 5, 3});
  q.push({"a3", "a", 5, 4});
  EXPECT_THAT(drain(q), ElementsAre("a2", "b1", "a3", "a1"));
}

TEST(Queue, skips_what_is_not_ready_and_forgets_what_is_removed) {
  FairQueue q;
  q.push({"a1", "a", 0, 1});
  q.push({"a2", "a", 0, 2});
  QueueEntry e;
  ASSERT_TRUE(q.pop([](const QueueEntry& x) { return x.id != "a1"; }, e));
  EXPECT_EQ(e.id, "a2");
  EXPECT_TRUE(q.remove("a1"));
  EXPECT_FALSE(q.remove("a1"));
  EXPECT_EQ(q.size(), 0u);
  EXPECT_FALSE(q.pop([](const QueueEntry&) { return true; }, e));
}

TEST(Http, targets) {
  Request r;
  ASSERT_TRUE(parse_target("/v1/a%20b?x=1&y=%E7%8C%AB+z&flag", r));
  EXPECT_EQ(r.path, "/v1/a b");
  EXPECT_EQ(r.query["x"], "1");
  EXPECT_EQ(r.query["y"], "猫 z");
  EXPECT_EQ(r.query.count("flag"), 1u);
  for (const char* bad : {"", "x", "/%", "/%4", "/%zz", "/%00", "/?a=%0"}) EXPECT_FALSE(parse_target(bad, r)) << bad;
}

TEST(Http, base64_both_ways) {
  for (const std::string text : {"", "a", "ab", "abc", "abcd", std::string("\0\xff\x80", 3).c_str()}) {
    std::string back;
    ASSERT_TRUE(base64_decode(base64(text), back));
    EXPECT_EQ(back, text);
  }
  EXPECT_EQ(base64("Man"), "TWFu");
  EXPECT_EQ(base64("Ma"), "TWE=");
  std::string out;
  EXPECT_TRUE(base64_decode("data:image/png;base64,TWFu", out));
  EXPECT_EQ(out, "Man");
  EXPECT_FALSE(base64_decode("T*Fu", out));
}

TEST(Http, routes) {
  Router router;
  router.add({"GET", "/v1/jobs/{id}", Access::key, {}, false});
  router.add({"DELETE", "/v1/jobs/{id}", Access::key, {}, false});
  Request r;
  std::string allowed;
  r.method = "HEAD", r.path = "/v1/jobs/7";
  ASSERT_NE(router.find(r, allowed), nullptr);
  EXPECT_EQ(r.params["id"], "7");
  r.method = "POST";
  EXPECT_EQ(router.find(r, allowed), nullptr);
  EXPECT_EQ(allowed, "GET, HEAD, DELETE");
  for (const char* path : {"/", "/v1/jobs", "/v1/jobs/", "/v1/jobs/7/8", "", "v1/jobs/7"}) {
    r.method = "GET", r.path = path, allowed.clear();
    EXPECT_EQ(router.find(r, allowed), nullptr) << path;
    EXPECT_EQ(allowed, "") << path;
  }
}

TEST(Keys, hashes_are_known_ones) {
  // FIPS 180-4's example and RFC 4231's second test.
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hmac_hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Keys, files) {
  const testing::TempDir dir;
  DQ_ASSERT_OK(const ApiKeys::NewKey key, ApiKeys::make("anna", false));
  EXPECT_FALSE(ApiKeys::make("a:b", false));
  ApiKeys keys;
  Request r;
  EXPECT_TRUE(keys.caller(r)->admin);  // no keys: everyone
  std::ofstream(dir.path() / "keys") << "# comment\n\n" << key.line << "\r\n";
  ASSERT_TRUE(keys.load(dir.path() / "keys"));
  EXPECT_FALSE(keys.caller(r));
  r.headers["authorization"] = "Bearer " + key.key;
  ASSERT_TRUE(keys.caller(r));
  EXPECT_EQ(keys.caller(r)->name, "anna");
  EXPECT_FALSE(keys.caller(r)->admin);
  r.headers["authorization"] = "Basic " + base64("me:" + key.key);
  EXPECT_TRUE(keys.caller(r));
  r.headers["authorization"] = "Bearer wrong";
  EXPECT_FALSE(keys.caller(r));
  for (const char* bad :
       {"", "anna", "anna:user:short", "anna:god:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}) {
    std::ofstream(dir.path() / "keys") << bad;
    EXPECT_FALSE(keys.load(dir.path() / "keys")) << bad;
  }
}

JobRecord record(const std::string& key, uint64_t seed) {
  JobRecord r;
  r.id = new_job_id();
  r.key = key;
  r.created = now_seconds();
  r.spec.request.prompts = {"猫"};
  r.spec.request.seeds = {seed};
  r.spec.model = "m";
  return r;
}

TEST(Store, keeps_jobs_and_pictures) {
  const testing::TempDir dir;
  JobRecord job = record("anna", UINT64_MAX);
  {
    const auto store = Store::open(dir.path());
    ASSERT_EQ(store->problem(), "");
    ASSERT_TRUE(store->insert(job));
    ASSERT_TRUE(store->start(job.id, 5));
    ASSERT_TRUE(store->write_picture(job.id, 0, "picture", "thumb"));
  }
  {
    const auto store = Store::open(dir.path());  // as after a crash: running, a file without a row
    ASSERT_EQ(store->unfinished().size(), 1u);
    EXPECT_EQ(store->unfinished()[0].attempts, 1);
    EXPECT_EQ(store->unfinished()[0].spec.request.seeds[0], UINT64_MAX);
    EXPECT_FALSE(store->read_picture(job.id, 0)) << "the file that nobody knows is gone";
    ASSERT_TRUE(store->write_picture(job.id, 0, "picture", "thumb"));
    std::vector<Picture> pictures(1);
    pictures[0].job = job.id;
    pictures[0].seed = UINT64_MAX;
    pictures[0].bytes = 7;
    pictures[0].created = now_seconds();
    job.status = Status::done;
    job.finished = now_seconds();
    ASSERT_TRUE(store->finish(job, pictures));
    EXPECT_TRUE(store->unfinished().empty());
  }
  const auto store = Store::open(dir.path());
  EXPECT_EQ(*store->read_picture(job.id, 0), "picture");
  ASSERT_EQ(store->pictures(job.id).size(), 1u);
  EXPECT_EQ(store->pictures(job.id)[0].seed, UINT64_MAX);
  EXPECT_EQ(store->gallery({"anna", false}, {}).size(), 1u);
  EXPECT_EQ(store->gallery({"berta", false}, {}).size(), 0u);
  EXPECT_EQ(store->gallery({"boss", true}, {}).size(), 1u);
  EXPECT_EQ(store->expire(0, 7), 0);
  EXPECT_EQ(store->expire(0, 6), 1);
  EXPECT_FALSE(store->read_picture(job.id, 0));
  EXPECT_FALSE(store->remove_picture(job.id, 0));
}

TEST(Jobs, ids_are_ours_alone) {
  EXPECT_TRUE(is_job_id(new_job_id()));
  for (const char* bad :
       {"", "job_", "job_00000000000000000000000g", "job_0000000000000000000000001", "../jobs.sqlite"})
    EXPECT_FALSE(is_job_id(bad)) << bad;
}

TEST(Fields, first_error_counts_and_unknown_ones_are_listed) {
  Fields f(Json::parse(R"({"a": 5, "b": "x", "c": 2.0, "d": 1.5, "zzz": 1})"));
  EXPECT_EQ(f.integer("a", 0, 10), 5);
  EXPECT_EQ(f.integer("c", 0, 10), 2);
  EXPECT_FALSE(f.integer("missing", 0, 10));
  EXPECT_FALSE(f.error());
  EXPECT_FALSE(f.integer("d", 0, 10));
  EXPECT_FALSE(f.number("b", 0, 1));
  ASSERT_TRUE(f.error());
  EXPECT_EQ(f.error()->param, "d");
  EXPECT_THAT(f.unknown(), ElementsAre("unknown field 'zzz' was ignored"));
}

}  // namespace
}  // namespace danqing::server
