//! The reference documents all sections and variables of tools.

use rye_pages::Table;

use crate::chain::template;
use crate::chain::{anchor, binary, environment, given, interpreter, request, rules, server};

#[test]
fn reference_lists_tool_section_keys() {
    let sections: [(&str, &[&str]); 14] = [
        ("config", &template::KEYS),
        ("config.binaries.*", &binary::KEYS),
        ("config (http)", &request::KEYS),
        ("config.auth", &request::AUTH_KEYS),
        ("config.retry", &request::RETRY_KEYS),
        ("config (mcp)", &server::TOOL_KEYS),
        ("config (mcp_server, stdio)", &server::STDIO_KEYS),
        ("config (mcp_server, http)", &server::HTTP_KEYS),
        ("env_config", &interpreter::SECTION),
        ("env_config.interpreter", &interpreter::KEYS),
        ("config_resolve", &given::KEYS),
        ("anchor", &anchor::ANCHOR),
        ("verify_deps", &anchor::DEPENDENCIES),
        ("child_constraints", &rules::KEYS),
    ];
    let table = Table::read("docs/reference.md", "tool sections");
    table.assert_lists(sections.map(|(section, _)| section));
    for (section, keys) in sections {
        table.assert_cell_lists(section, "keys", keys);
    }
}

#[test]
fn reference_lists_variables_of_every_tool() {
    Table::read("docs/reference.md", "tool variables").assert_lists(environment::OWN);
}
