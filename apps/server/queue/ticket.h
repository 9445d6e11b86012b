// What travels through a queue: the job as a worker needs it, what the worker tells meanwhile, and what came of it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "server/jobs/job.h"

namespace danqing::server {

/// A job as it waits in a queue. The same id is the same job, however often it is submitted.
struct Ticket {
  std::string id, key;   ///< key: whose it is
  std::string trace_id;  ///< 32 hex digits: follows the job into the worker's log
  std::string origin;    ///< the server that accepted it and wants to hear of it
  std::string size_class;
  int64_t seq = 0;                   ///< older is smaller, within the origin
  double created = 0, deadline = 0;  ///< seconds since 1970; deadline 0 = none
  JobSpec spec;
  std::vector<std::string> revised;  ///< what an external enhancer made of the prompts; empty = as given
  int images() const { return spec.images(); }
};
Json to_json(const Ticket& ticket);
Result<Ticket> ticket_from_json(const Json& json);

/// How much of a card a job takes, by the pixels of one picture: a worker takes the classes whose largest picture its
/// card can hold.
struct SizeClass {
  const char* name;
  int side;  ///< a square of this side is the largest picture of the class
};
/// s, m, l, xl: ascending.
const std::vector<SizeClass>& size_classes();
std::string size_class_of(int width, int height);

/// The end of a job.
struct Outcome {
  Status status = Status::done;  ///< done, failed or cancelled
  std::string code, message;     ///< of a failure
  std::vector<std::string> notes;
  Json timing = Json::object();
  std::vector<Picture> pictures;  ///< done: all of them
  std::string worker;
};
Json to_json(const Outcome& outcome);
Result<Outcome> outcome_from_json(const Json& json);

/// What a worker tells of a job, and in the end what came of it.
struct Update {
  enum class Kind { running, progress, preview, picture, given_back, ended };
  Kind kind = Kind::progress;
  std::string id, worker;
  int together = 0;  ///< running: pictures drawn in the same run, told once a run
  // progress
  std::string stage;
  int step = 0, steps = 0, image = 0, images = 0;
  double seconds_per_step = 0;
  bool alone = true;  ///< image and images are the job's own
  // preview: which picture and step
  int n = 0;
  std::shared_ptr<const Image> preview;
  // picture: as it is to be kept
  Picture picture;
  std::string bytes, thumbnail;
  // ended
  Outcome outcome;
};
/// Pictures travel apart: `preview`, `bytes` and `thumbnail` are not in it.
Json to_json(const Update& update);
Result<Update> update_from_json(const Json& json);

}  // namespace danqing::server
