//! User-visible output, pinned word by word: help, refusals, `--json` shapes, pages, and the event streams of many
//! scenarios.
//!
//! The snapshots are in `snapshots`. `INSTA_UPDATE=always cargo test -p rye-tests pinned` writes them. Read the
//! difference before you keep it, because each line is visible to users or scripts.

mod crashes;
mod graphs;
mod help;
mod hooks;
mod nested;
pub(crate) mod normal;
mod refusals;
mod scenario;
mod shapes;
mod steered;

/// Compares `text` with the snapshot `name`.
pub(crate) fn pin(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
