//! What users see, pinned word by word: help, refusals, `--json` shapes, pages, and the event streams of many scenarios.
//!
//! The snapshots lie in `snapshots`. `INSTA_UPDATE=always cargo test -p rye-tests pinned` writes them anew; read the
//! difference before you keep it, for each line of it is something a user or a script meets.

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
