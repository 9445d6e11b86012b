# danqing_embed(OUT ROOT FILES): a C++ file with the bytes of ROOT/FILES, found by danqing::server::embedded_files().
function(danqing_embed out root files)
  set(text "#include \"server/web/embedded.h\"\n\n")
  set(table "")
  set(depends "")
  set(i 0)
  foreach(file ${files})
    string(APPEND text "__asm__(\".pushsection .rodata\\nwebfile_${i}:\\n.incbin \\\"${root}/${file}\\\"\\nwebfile_${i}_end:\\n.byte 0\\n.popsection\\n\");\nextern \"C\" const char webfile_${i}[] __attribute__((visibility(\"hidden\"))), webfile_${i}_end[] __attribute__((visibility(\"hidden\")));\n")
    string(APPEND table "      {\"${file}\", {webfile_${i}, static_cast<size_t>(webfile_${i}_end - webfile_${i})}},\n")
    list(APPEND depends ${root}/${file})
    math(EXPR i "${i} + 1")
  endforeach()
  string(APPEND text "\nnamespace danqing::server {\nconst std::map<std::string_view, std::string_view>& embedded_files() {\n  static const std::map<std::string_view, std::string_view> files{\n${table}  };\n  return files;\n}\n}  // namespace danqing::server\n")
  # The compiler does not see what .incbin reads.
  file(CONFIGURE OUTPUT ${out} CONTENT "${text}" @ONLY)
  if(NOT CMAKE_SCRIPT_MODE_FILE)
    set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS "${depends}")
  endif()
endfunction()

# danqing_embed_text(OUT FILE NAMESPACE FUNCTION): a C++ file with NAMESPACE::FUNCTION(), which gives the bytes of FILE.
function(danqing_embed_text out file namespace function)
  file(CONFIGURE OUTPUT ${out} CONTENT "#include <string_view>

__asm__(\".pushsection .rodata\\nembedded_${function}:\\n.incbin \\\"${file}\\\"\\nembedded_${function}_end:\\n.byte 0\\n.popsection\\n\");
extern \"C\" const char embedded_${function}[] __attribute__((visibility(\"hidden\"))), embedded_${function}_end[] __attribute__((visibility(\"hidden\")));

namespace ${namespace} {
std::string_view ${function}() {
  return {embedded_${function}, static_cast<size_t>(embedded_${function}_end - embedded_${function})};
}
}  // namespace ${namespace}
" @ONLY)
  set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS ${file})
endfunction()
