// A memory plan for people and for programs.
#pragma once
#include <string>

#include "base/json.h"
#include "danqing/memory.h"

namespace danqing::app {

Json plan_json(const MemoryPlan& plan);
/// A table of the components and a few sentences; lines end with \n.
std::string plan_text(const MemoryPlan& plan);
std::string placement_text(const ComponentPlan& c);  ///< "resident", "while it computes", "12 of 36 layers stay"

}  // namespace danqing::app
