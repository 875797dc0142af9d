//! Go's templates, which no maintained crate runs: kubectl does it, on an object handed to it and without a server.

use std::{ffi::OsString, process::Output};

use serde_json::{Value, json};

use crate::{error::Error, session::Tools};

pub struct Template {
    text: String,
    missing_is_fine: bool,
}

impl Template {
    pub fn new(text: String, missing_is_fine: bool) -> Self {
        Self { text, missing_is_fine }
    }

    pub fn render(&self, object: &Value, tools: Tools<'_>) -> Result<String, Error> {
        let kubectl = tools
            .kubectl()
            .ok_or_else(|| Error::said("go-template: kubectl runs it, and is not in $PATH"))?;
        let listed = object["items"].is_array();
        // kubectl would take a list apart. Inside of a template of its own, `$` is what that was called with.
        let (object, text) = if listed {
            let wrapped =
                json!({"apiVersion": "v1", "kind": "Wrapped", "metadata": {"name": "list"}, "list": object});
            (
                wrapped,
                format!("{{{{define \"list\"}}}}{}{{{{end}}}}{{{{template \"list\" .list}}}}", self.text),
            )
        } else {
            (object.clone(), self.text.clone())
        };
        let done = self.kubectl(&kubectl, &text, &object, tools)?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        // What is wrong with the template itself is told of it as it was typed.
        let plain = if listed {
            self.kubectl(
                &kubectl,
                &self.text,
                &json!({"apiVersion": "v1", "kind": "Wrapped", "metadata": {"name": "list"}}),
                tools,
            )?
        } else {
            done.clone()
        };
        let parsed = !String::from_utf8_lossy(&plain.stderr).contains("error parsing template");
        let said = String::from_utf8_lossy(if parsed { &done.stderr } else { &plain.stderr }).into_owned();
        Err(Error::said(said.trim_end().trim_start_matches("error: ")))
    }

    fn kubectl(
        &self,
        kubectl: &OsString,
        text: &str,
        object: &Value,
        tools: Tools<'_>,
    ) -> Result<Output, Error> {
        let line =
            ["patch", "--local", "-f", "-", "--type=merge", "-p", "{}", "-o", "go-template", "--template"];
        let mut arguments: Vec<OsString> = line.map(OsString::from).to_vec();
        arguments.push(text.into());
        arguments.push(format!("--allow-missing-template-keys={}", self.missing_is_fine).into());
        (tools.run)(kubectl, &arguments, object.to_string().as_bytes())
            .map_err(|error| Error::said(format!("{}: {error}", kubectl.to_string_lossy())))
    }
}
