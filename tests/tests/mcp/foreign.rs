//! Servers of third parties: of the Python package `mcp`, by stdio and by HTTP, and one from npm.
//!
//! `RYE_MCP_PYTHON` names a Python with the package, `RYE_MCP_NPM` the program `mcp-server-everything`. Without one of
//! them, the tests that need it report that and check nothing.

use std::path::PathBuf;

use rye_tests::{World, skipped, until};
use serde_json::json;

use super::{execute, until_none_is_left};

const PYTHON: &str = "\
import sys
from mcp.server import MCPServer

server = MCPServer('tests')

@server.tool()
def add(a: int, b: int) -> int:
    'Adds two numbers.'
    return a + b

server.run(*sys.argv[1:2], **({'port': int(sys.argv[2])} if sys.argv[2:] else {}))
";

fn named(variable: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        skipped(&format!("{variable} names no program"));
    }
    program
}

fn server(world: &World, config: &str) {
    world.tool(
        "mcp/servers/theirs.yaml",
        &format!(
            "version: \"1.0.0\"\ntool_type: mcp_server\nexecutor_id: null\ncategory: mcp/servers\nname: theirs\n\
             description: \"A server of others.\"\nconfig: {config}\n"
        ),
    );
    let _imported = world.ryectl("mcp import mcp/servers/theirs --yes").ok();
}

#[test]
fn a_server_of_the_python_package_is_called_by_stdio() {
    let Some(python) = named("RYE_MCP_PYTHON") else {
        return;
    };
    let world = World::new();
    let _daemon = world.start("");
    world.write("theirs.py", PYTHON);
    let command = json!({"transport": "stdio", "command": python, "args": ["{project_path}/theirs.py", "stdio"]});
    server(&world, &command.to_string());
    let out = execute(&world, "mcp/theirs/add", &json!({"a": 20, "b": 22}));
    assert_eq!(out["data"]["content"][0]["text"], "42", "{out}");
    until_none_is_left(&world);
}

#[test]
fn a_server_of_the_python_package_is_called_by_http() {
    let Some(python) = named("RYE_MCP_PYTHON") else {
        return;
    };
    let world = World::new();
    let _daemon = world.start("");
    let file = world.write("theirs.py", PYTHON);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut command =
        rye_tests::command::in_clean_environment(python, &world.home(), &world.project());
    command
        .arg(file)
        .args(["streamable-http", &port.to_string()]);
    let mut process = command.spawn().unwrap();
    until("the server to listen", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let config = json!({"transport": "http", "url": format!("http://127.0.0.1:{port}/mcp")});
    server(&world, &config.to_string());
    let out = execute(&world, "mcp/theirs/add", &json!({"a": 20, "b": 22}));
    process.kill().unwrap();
    let _status = process.wait().unwrap();
    assert_eq!(out["data"]["content"][0]["text"], "42", "{out}");
}

#[test]
fn a_server_from_npm_is_called_by_stdio() {
    let Some(program) = named("RYE_MCP_NPM") else {
        return;
    };
    let world = World::new();
    let _daemon = world.start("");
    let config = json!({"transport": "stdio", "command": program, "args": ["stdio"]});
    server(&world, &config.to_string());
    let out = execute(&world, "mcp/theirs/echo", &json!({"message": "hello"}));
    assert_eq!(out["data"]["content"][0]["text"], "Echo: hello", "{out}");
}
