//! `mcp import`: the daemon lists the tools of a server, and the user's key signs them here.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rye_client::exit::Exit;
use rye_core::id::{ItemId, ItemRef};
use rye_core::seal::{SecretKey, sha256_hex};
use rye_item::draft;
use rye_item::sign;
use rye_proto::{convert, v1};
use serde_json::{Value, json};

use super::local::Local;
use crate::cli::Import;
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::{Format, Output};
use crate::session::Session;

/// Tool that lists the tools of a server.
const TOOLS: &str = "rye/core/mcp/tools";

/// Maximum length in bytes of the last part of an id.
const MOST_STEM: usize = 64;
/// Digits of the hash that distinguishes names.
const HASH_DIGITS: usize = 8;

/// A tool of the server, and the item that it becomes.
struct Found {
    name: String,
    description: String,
    hash: String,
    item: ItemId,
    text: String,
    /// Action on the file, in words.
    done: &'static str,
}

pub(super) async fn import(asked: Import, session: &mut Session) -> Result<Exit, Failure> {
    let local = Local::of(session)?;
    let key = if asked.yes { Some(local.key()?) } else { None };
    let pattern = asked.tools.as_deref().map(pattern).transpose()?;
    let request = v1::ExecuteRequest {
        item: Some((&ItemRef::tool(ItemId::new(TOOLS)?)).into()),
        project: session.project()?.display().to_string(),
        params_json: json!({"server": asked.server.as_str()}).to_string(),
        trace: false,
        dry_run: false,
        idempotency_key: String::new(),
    };
    let answer = session.client().await?.execute(request).await?;
    let envelope = convert::object("envelope_json", &answer.envelope_json)?;
    let root = session.project()?;
    let output = &mut session.output;
    if let Some(error) = envelope.get("error").and_then(Value::as_str) {
        output.error(error);
        return Ok(Exit::Failed);
    }
    let told = envelope.get("data").unwrap_or(&Value::Null);
    let transport = told["transport"].as_str().unwrap_or_default();
    let tools = told["tools"].as_array().into_iter().flatten();
    let mut found = Vec::new();
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            output.warning("the server lists a tool without a name, which is left out");
            continue;
        }
        if pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(name))
        {
            found.push(Found::of(tool, &asked.server, transport)?);
        }
    }
    if found.is_empty() {
        output.error(&format!("the server `{}` has no such tool", asked.server));
        return Ok(Exit::Failed);
    }
    let mut exit = Exit::Done;
    for tool in &mut found {
        if output.format() == Format::Text {
            show(tool, output)?;
        }
        let Some(key) = &key else { continue };
        match tool.write(&root, &local, key, asked.replace) {
            Ok(path) => {
                if output.format() == Format::Text {
                    output.line(&format!("  {} {}", tool.done, path.display()))?;
                }
            }
            Err(failure) => exit = output.part(exit, Err(failure)),
        }
    }
    if output.format() == Format::Json {
        let rows = found.iter().map(Found::to_json);
        output.json(&rows.collect::<Vec<_>>())?;
    }
    if key.is_none() {
        output.note("nothing was written: read what the tools say of themselves, then add --yes, which signs them with your key");
    }
    Ok(exit)
}

fn pattern(glob: &str) -> Result<GlobMatcher, Failure> {
    let built = GlobBuilder::new(glob).literal_separator(false).build();
    let built = built.map_err(|source| sign::Error::Pattern {
        pattern: glob.to_owned(),
        source,
    })?;
    Ok(built.compile_matcher())
}

fn show(tool: &Found, output: &mut Output) -> Result<(), Failure> {
    output.line(&format!("{}  as tool:{}", tool.name, tool.item))?;
    for line in tool.description.lines() {
        output.line(&format!("  {}", line.replace(char::is_control, " ")))?;
    }
    Ok(())
}

impl Found {
    fn of(tool: &Value, server: &ItemId, transport: &str) -> Result<Self, Failure> {
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        let (name, description, hash) = (text("name"), text("description"), text("schema_hash"));
        let item = item_of(server, &name)?;
        let mut told = Self {
            name,
            description,
            hash,
            item,
            text: String::new(),
            done: "found",
        };
        told.text = told.file(server, transport, &tool["input_schema"]);
        Ok(told)
    }

    /// Renders the tool as a YAML file. Text of the server is written as JSON, which is YAML that the text cannot end.
    fn file(&self, server: &ItemId, transport: &str, schema: &Value) -> String {
        let quoted = |text: &str| plain(&Value::String(text.to_owned()));
        format!(
            "version: \"1.0.0\"\n\
             tool_type: mcp\n\
             executor_id: rye/core/runtimes/mcp/{transport}\n\
             category: {}\n\
             name: {}\n\
             description: {}\n\
             config:\n  server: {server}\n  tool_name: {}\n  schema_hash: {}\n\
             input_schema: {}\n",
            quoted(self.item.category()),
            quoted(self.item.name()),
            quoted(&self.description),
            quoted(&self.name),
            quoted(&self.hash),
            plain(schema),
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "tool": self.name,
            "item": format!("tool:{}", self.item),
            "description": self.description,
            "schema_hash": self.hash,
            "done": self.done,
        })
    }

    /// Writes and signs the file. A file with the same content is only signed.
    fn write(
        &mut self,
        root: &Path,
        local: &Local,
        key: &SecretKey,
        replace: bool,
    ) -> Result<PathBuf, Failure> {
        let path = root.join(format!(".ai/tools/{}.yaml", self.item));
        let failed = |source| draft::Error::Write {
            path: path.clone(),
            source,
        };
        let there = fs::read_to_string(&path).ok();
        let is_same = |there: &str| there.ends_with(&self.text);
        match &there {
            Some(there) if is_same(there) => self.done = "is as it was in",
            Some(_) if !replace => {
                return Err(LocalError::precondition(format!(
                    "`{}` is there already and says something else; look at both, then write over it with `--replace`",
                    path.display()
                ))
                .into());
            }
            Some(_) | None => {
                if let Some(folder) = path.parent() {
                    fs::create_dir_all(folder).map_err(failed)?;
                }
                fs::write(&path, &self.text).map_err(failed)?;
                self.done = "wrote and signed";
            }
        }
        for place in sign::targets(&local.spaces, &path.display().to_string())? {
            let _signed = sign::sign(&local.spaces, &place, key, local.now)?;
        }
        Ok(path)
    }
}

/// Returns the id of the tool `name`: in a folder that is named after its server, next to the folder of servers. A name
/// that no file can have is changed and takes a hash of the name, so that no two tools of a server share an id.
fn item_of(server: &ItemId, name: &str) -> Result<ItemId, Failure> {
    let may_stay = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut stem: String = name
        .chars()
        .map(|c| if may_stay(c) { c } else { '_' })
        .collect();
    if stem != name || stem.len() > MOST_STEM {
        stem.truncate(MOST_STEM - HASH_DIGITS - 1);
        write!(stem, "_{}", &sha256_hex(name)[..HASH_DIGITS])
            .expect("writing to a String cannot fail");
    }
    let folder = server.category();
    let above = folder.rsplit_once('/').map_or(folder, |(above, _)| above);
    Ok(ItemId::new(format!("{above}/{}/{stem}", server.name()))?)
}

/// Renders JSON in printable ASCII; other characters are escaped.
fn plain(value: &Value) -> String {
    let mut plain = String::new();
    for c in value.to_string().chars() {
        match u32::from(c) {
            0x20..=0x7e => plain.push(c),
            // YAML has one escape for each character, where JSON needs two for some.
            code => write!(plain, "\\U{code:08x}").expect("writing to a String cannot fail"),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_tool_id_is_in_folder_of_its_server() {
        let server = ItemId::new("mcp/servers/docs").unwrap();
        for (name, expected) in [
            ("search", "mcp/docs/search"),
            ("a.b/../c d", "mcp/docs/a_b____c_d_729160cd"),
            ("a_b", "mcp/docs/a_b"),
            ("a.b", "mcp/docs/a_b_2e7336dc"),
        ] {
            assert_eq!(item_of(&server, name).unwrap().as_str(), expected);
        }
        let long = "é".repeat(300);
        let id = item_of(&server, &long).unwrap();
        assert_eq!(id.name().len(), MOST_STEM);
    }

    #[test]
    fn imported_tool_text_cannot_escape_its_yaml_value() {
        let told = json!({
            "name": "x\nversion: 9",
            "description": "a\u{2028}b\u{85}: {é} 😀\n# end\"",
            "schema_hash": "00",
            "input_schema": {"type": "object", "description": "\n---\n"},
        });
        let server = ItemId::new("mcp/servers/docs").unwrap();
        let found = Found::of(&told, &server, "stdio").unwrap();
        let read = rye_core::yaml::parse(&found.text).unwrap().value;
        assert_eq!(read["version"], "1.0.0");
        for key in ["description", "input_schema"] {
            assert_eq!(read[key], told[key], "{key}");
        }
        assert_eq!(read["config"]["tool_name"], told["name"]);
    }
}
