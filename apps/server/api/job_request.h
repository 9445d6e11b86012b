// A request's JSON as a job.
#pragma once
#include "server/api/fields.h"
#include "server/jobs/job.h"

namespace danqing::server {

/// POST /v1/jobs: every setting of the command line, by its name there.
Api<JobSpec> native_spec(Fields& f);
/// temperature, top_p, top_k, max_new_tokens, seed; errors stay in `f`.
void read_enhance_options(Fields& f, EnhanceOptions& o);
/// The extensions that all families share: seed(s), steps, guidance_scale, negative_prompt, enhance, sampler, shift.
void read_common(Fields& f, JobSpec& s);

}  // namespace danqing::server
