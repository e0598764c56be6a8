//! What the reference says of graph files is what is read.

use rye_pages::Table;

use crate::definition::hooks::HookEvent;
use crate::definition::keys::{self, Keys};
use crate::definition::{file, names, node};

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
        table(name).assert_lists(keys.known);
    }
    table("graph limits").assert_lists(file::LIMITS);
    table("node types").assert_lists(node::TYPES);
    table("names").assert_lists(names::EVERYWHERE);
}

#[test]
fn the_reference_lists_the_events_of_hooks_and_their_names() {
    let table = table("hook events");
    table.assert_lists(HookEvent::ALL.map(HookEvent::as_str));
    for event in HookEvent::ALL {
        table.assert_cell_lists(event.as_str(), "names there", event.names());
    }
}
