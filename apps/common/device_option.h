// --device, the same in every command that computes.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace danqing::app {

/// "auto", a name, or several joined by commas; "list" prints devices_text() and ends the program well.
void add_device_option(CLI::App& c, std::string& device, const std::string& group = "Options");

/// What there is to compute on, one line each, which one "auto" takes, and which backends offer nothing and why.
std::string devices_text();

}  // namespace danqing::app
