// Marks what the shared library exports.
#pragma once
#if defined(__GNUC__)
#define DANQING_API __attribute__((visibility("default")))
#else
#define DANQING_API
#endif
