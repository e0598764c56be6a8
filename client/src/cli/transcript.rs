//! The arguments of `transcript`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use super::run_name::RunName;

/// A transcript to print or to check.
#[derive(Debug, Args)]
pub(crate) struct Transcript {
    /// The run, or with --verify a file: a name with a `/`, or one that ends in `.jsonl`.
    #[arg(value_name = "RUN|FILE")]
    pub(crate) source: TranscriptSource,
    /// Only so many of the last events of a run.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u32>,
    /// Also check signatures, the end of the file and long payloads, and tell what that came to.
    #[arg(long)]
    pub(crate) verify: bool,
    /// The public key that signed the file (default: the keys of the daemon of the state directory; if there are none, the trusted keys).
    #[arg(long, value_name = "PEM", requires = "verify")]
    pub(crate) key: Option<PathBuf>,
}

/// Source of a transcript: a run, from its daemon, or a file, which need not belong to a daemon of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TranscriptSource {
    Run(RunName),
    File(PathBuf),
}

impl Transcript {
    /// Returns the rule that the combination of flags breaks, or `None`.
    pub(crate) const fn problem(&self) -> Option<&'static str> {
        match &self.source {
            TranscriptSource::Run(_) if self.key.is_some() => {
                Some("--key is for a file: a run is checked with the keys of its daemon")
            }
            TranscriptSource::File(_) if !self.verify => Some(
                "a file is only checked, by --verify; `ryectl transcript RUN` prints the transcript of a run",
            ),
            TranscriptSource::File(_) if self.tail.is_some() => {
                Some("--tail is for a run: of a file nothing is printed")
            }
            TranscriptSource::Run(_) | TranscriptSource::File(_) => None,
        }
    }
}

impl TranscriptSource {
    /// Returns the name of the run, or `None` for a file.
    pub(crate) const fn run_mut(&mut self) -> Option<&mut RunName> {
        match self {
            Self::Run(run) => Some(run),
            Self::File(_) => None,
        }
    }
}

impl FromStr for TranscriptSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = Path::new(text);
        if text.contains('/') || path.extension().is_some_and(|end| end == "jsonl") {
            Ok(Self::File(path.to_owned()))
        } else {
            text.parse().map(Self::Run)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_a_file_if_it_has_a_slash_or_ends_in_jsonl() {
        for text in [
            "./t",
            "/t",
            "a/b",
            "transcript.jsonl",
            "run-1-abcdefghij.jsonl",
        ] {
            let source = text.parse();
            assert_eq!(source, Ok(TranscriptSource::File(text.into())), "{text}");
        }
        for text in ["app-1767225600-abcdefghij", "app", "@last", "a.jsonl.b"] {
            let source = text.parse();
            let run = text.parse().map(TranscriptSource::Run);
            assert_eq!(source, run, "{text}");
            assert!(source.is_ok(), "{text}");
        }
        assert!("@first".parse::<TranscriptSource>().is_err());
    }
}
