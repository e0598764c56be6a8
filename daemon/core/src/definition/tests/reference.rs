//! The reference pages describe exactly the graph files that are accepted.

use rye_pages::Table;

use crate::declared::Keys;
use crate::definition::hook::HookEvent;
use crate::definition::{file, keys, roots};

fn table(name: &str) -> Table {
    Table::read("docs/reference.md", name)
}

#[test]
fn the_reference_lists_the_keys_of_graph_files() {
    let lists: [(&str, &Keys); 7] = [
        ("graph file", &keys::FILE),
        ("graph config", &keys::CONFIG),
        ("action keys", &keys::ACTION),
        ("edge keys", &keys::EDGE),
        ("retry keys", &keys::RETRY),
        ("hook keys", &keys::HOOK),
        ("hook action keys", &keys::HOOK_ACTION),
    ];
    for (name, keys) in lists {
        table(name).assert_lists(keys.known());
    }
    table("graph limits").assert_lists(file::LIMITS);
    table("node types").assert_lists(keys::TYPES);
    table("names").assert_lists(roots::EVERYWHERE);
}

#[test]
fn the_reference_lists_the_events_of_hooks_and_their_names() {
    let table = table("hook events");
    table.assert_lists(HookEvent::ALL.map(HookEvent::as_str));
    for event in HookEvent::ALL {
        table.assert_cell_lists(event.as_str(), "names there", event.names());
    }
}

#[test]
fn the_reference_lists_the_keys_of_results_that_are_known() {
    let table = table("result keys");
    table.assert_lists(["foreach", "parallel", "approval", "service", "wait"]);
    let of_items = [roots::RESULTS].into_iter().chain(roots::COUNTS);
    table.assert_cell_lists("foreach", "keys of `result`", of_items);
    let parallel = table.cell("parallel", "keys of `result`");
    for key in roots::COUNTS {
        assert!(parallel.contains(&format!("`{key}`")), "{parallel}");
    }
    table.assert_cell_lists("approval", "keys of `result`", roots::APPROVAL);
    table.assert_cell_lists("service", "keys of `result`", roots::SERVICE);
    table.assert_cell_lists("wait", "keys of `result`", roots::PROCESS_WAIT);
}
