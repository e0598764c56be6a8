//! The help of `ryectl` itself: its verbs in groups.

use std::ffi::OsStr;

use clap::builder::StyledStr;
use clap::{Command, CommandFactory as _};

use super::verb::Cli;

/// Verbs in groups by subject. Each verb is in exactly one group.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Begin",
        &["init", "new", "run", "graph", "thread", "execute", "proc"],
    ),
    (
        "Look at runs",
        &[
            "ps",
            "get",
            "attach",
            "logs",
            "steps",
            "state",
            "events",
            "transcript",
            "tree",
            "chain",
            "can",
        ],
    ),
    (
        "Steer runs",
        &[
            "approvals",
            "approve",
            "deny",
            "wait",
            "suspend",
            "resume",
            "cancel",
            "kill",
            "rm",
            "prune",
            "budget",
        ],
    ),
    (
        "Items",
        &["ls", "show", "fetch", "schema", "test", "mcp", "models"],
    ),
    (
        "Trust",
        &["key", "trust", "untrust", "sign", "verify", "lock"],
    ),
    (
        "The daemon and its files",
        &["daemon", "cache", "objects", "completions", "man"],
    ),
];

/// Returns the command line with its help.
pub(crate) fn command() -> Command {
    // As in shells, an empty variable counts as unset.
    let mut command = Cli::command().mut_args(|arg| {
        let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
        match arg.get_env() {
            Some(name) if is_empty(name) => arg.env(None),
            Some(_) | None => arg,
        }
    });
    let template = template(&command);
    let groups: Vec<String> = command
        .get_subcommands()
        .filter(|verb| verb.has_subcommands())
        .map(|verb| verb.get_name().to_owned())
        .collect();
    for group in groups {
        command = command.mut_subcommand(group, |group| {
            group
                .arg_required_else_help(true)
                .disable_help_subcommand(true)
        });
    }
    command.arg_required_else_help(true).help_template(template)
}

/// Returns the usage of the verb that is named in `usage`, the usage text of an error. That text lists options which
/// the environment has set as if they had to be given.
pub(crate) fn usage(usage: &str) -> Option<StyledStr> {
    with_verb(usage, Command::render_usage)
}

/// Returns the help of the verb that is named in `usage`, the usage text of an error.
pub(crate) fn help(usage: &str) -> Option<StyledStr> {
    with_verb(usage, Command::render_help)
}

fn with_verb<T>(usage: &str, say: impl FnOnce(&mut Command) -> T) -> Option<T> {
    let mut root = command();
    root.build();
    let mut verb = &mut root;
    for word in usage.strip_prefix("Usage: ryectl ")?.split_whitespace() {
        if verb.find_subcommand(word).is_none() {
            break;
        }
        verb = verb.find_subcommand_mut(word)?;
    }
    Some(say(verb))
}

/// Returns the template of the help of `ryectl`, with its verbs in groups.
fn template(command: &Command) -> String {
    let widest = command
        .get_subcommands()
        .map(|verb| verb.get_name().len())
        .max()
        .unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, verbs) in GROUPS {
        text.push('\n');
        text.push_str(heading);
        text.push_str(":\n");
        for name in verbs {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(format!("  {name:widest$}  {about}").trim_end());
            text.push('\n');
        }
    }
    text.push_str("\n`ryectl help VERB` says more about one.\n\nOptions of every verb:\n{options}{after-help}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group_of_the_help() {
        let command = Cli::command();
        let mut named: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, verbs)| *verbs)
            .copied()
            .collect();
        let mut verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        named.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(named, verbs);
    }
}
