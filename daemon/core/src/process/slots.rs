//! Numbers of ports in the command of a process: slots `{port.NAME}`, and variables `PORT_NAME`.

use std::borrow::Cow;

use crate::model::{Ports, ProcessSpec};

const OPEN: &str = "{port.";

/// Returns the variable that holds the number of the port `name`.
pub fn port_variable(name: &str) -> String {
    format!("PORT_{}", name.to_ascii_uppercase())
}

/// Returns `text` with the number of a port in each slot. Without ports no text is a slot. The error names a slot whose
/// port does not exist.
pub fn fill_port_slots<'a>(text: &'a str, ports: &Ports) -> Result<Cow<'a, str>, String> {
    if ports.is_empty() || !text.contains(OPEN) {
        return Ok(text.into());
    }
    let mut pieces = text.split(OPEN);
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let slot = piece.split_once('}');
        let number = slot.and_then(|(name, rest)| Some((ports.get(name)?, rest)));
        let Some((number, rest)) = number else {
            let name = slot.map_or(piece, |(name, _)| name);
            let names: Vec<&str> = ports.keys().map(String::as_str).collect();
            return Err(format!(
                "`{{port.{name}}}` is no port of the process: `ports` has {}",
                names.join(", ")
            ));
        };
        filled.push_str(&number.to_string());
        filled.push_str(rest);
    }
    Ok(filled.into())
}

/// Fails if a slot in `spec` names no port, or `env` has a variable of a port.
pub(super) fn check(spec: &ProcessSpec) -> Result<(), String> {
    // Numbers do not matter here.
    let ports: Ports = spec.ports.keys().map(|name| (name.clone(), 1)).collect();
    fill_port_slots(&spec.command, &ports).map_err(|why| format!("`command`: {why}"))?;
    for arg in spec.args.iter().flatten() {
        fill_port_slots(arg, &ports).map_err(|why| format!("`args`: {why}"))?;
    }
    for (name, value) in &spec.env {
        fill_port_slots(value, &ports).map_err(|why| format!("`env.{name}`: {why}"))?;
    }
    for port in spec.ports.keys() {
        let variable = port_variable(port);
        if spec.env.contains_key(&variable) {
            return Err(format!("`env.{variable}` is set by the port `{port}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_known_ports_are_filled() {
        let ports = Ports::from([("http".to_owned(), 20_000), ("db".to_owned(), 5432)]);
        for (text, filled) in [
            ("serve", "serve"),
            ("--port={port.http}", "--port=20000"),
            ("{port.db}:{port.http}{port.db} {x}", "5432:200005432 {x}"),
        ] {
            assert_eq!(fill_port_slots(text, &ports).unwrap(), filled);
        }
        for text in [
            "{port.x}",
            "{port.http",
            "{port.}",
            "a {port.db} {port. http}",
        ] {
            let problem = fill_port_slots(text, &ports).unwrap_err();
            assert!(problem.contains("db, http"), "{text}: {problem}");
        }
        assert_eq!(
            fill_port_slots("{port.x}", &Ports::new()).unwrap(),
            "{port.x}"
        );
        assert_eq!(port_variable("http_2"), "PORT_HTTP_2");
    }
}
